package idem_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

func TestWireStored(t *testing.T) {
	intent := func(t *testing.T) context.Context {
		return idem.WithIntent(t.Context(), idem.Intent{Scope: "s", ID: "order-1"})
	}
	t.Run("a replay is the response as it was, without the network", func(t *testing.T) {
		for _, status := range []int{200, 201, 202, 204} {
			body := map[bool]string{true: "", false: "charged\x00\xff"}[status == 204]
			srv := wireServe(t, wireReply(503, ""), wireReply(status, body, "Location: /charges/1", "Etag: \"x\"", "X-Two: 1", "X-Two: 2"))
			store := wireStore(t)
			first := wireClient(t, idem.Config{Store: store}, wireBase(t)).do(t, wirePost(t, srv.URL).WithContext(intent(t)))
			second := wireClient(t, idem.Config{Store: store}, wireFunc(func(*http.Request) (*http.Response, error) {
				t.Error("it was sent again")
				return nil, errors.New("no network")
			})).do(t, wirePost(t, srv.URL).WithContext(intent(t)))
			if first.err != nil || second.err != nil {
				t.Fatal(first.err, second.err)
			}
			if second.body != body || second.resp.StatusCode != status || second.resp.Status != first.resp.Status || second.resp.ContentLength != first.resp.ContentLength {
				t.Errorf("%d: replay %q %q, Content-Length %d", status, second.resp.Status, second.body, second.resp.ContentLength)
			}
			if !maps.EqualFunc(first.resp.Header, second.resp.Header, slices.Equal) {
				t.Errorf("%d: header %v, was %v", status, second.resp.Header, first.resp.Header)
			}
			a, b := idem.ReportOf(first.resp), idem.ReportOf(second.resp)
			if a.Source != idem.SourceExecuted || b.Source != idem.SourceReplayed || a.Key != b.Key || b.Attempts != 0 || b.WireSends != 0 || b.Outcome != idem.OutcomeExecuted {
				t.Errorf("%d: reports %+v, then %+v", status, a, b)
			}
		}
	})
	t.Run("a response without headers", func(t *testing.T) {
		store := wireStore(t)
		base := wireFunc(func(req *http.Request) (*http.Response, error) { return wireAnswer(req, 200, ""), nil })
		for range 2 {
			res := wireClient(t, idem.Config{Store: store}, base).do(t, wirePost(t, "http://c.example/").WithContext(intent(t)))
			res.resp.Header.Set("X-Own", "1") // a nil map would panic
		}
	})
	t.Run("an open key is written as it was first sent", func(t *testing.T) {
		for _, quoted := range []bool{false, true} {
			var lines []string
			base := wireFunc(func(req *http.Request) (*http.Response, error) {
				lines = append(lines, req.Header.Get("Idempotency-Key"))
				return wireAnswer(req, map[bool]int{true: 500, false: 200}[len(lines) == 1], ""), nil
			})
			store := wireStore(t)
			for _, q := range []bool{quoted, !quoted} {
				cfg := idem.Config{Store: store, Contract: idem.Contract{Quoted: q}, Policy: idem.Policy{Attempts: 1}}
				wireClient(t, cfg, base).do(t, wirePost(t, "http://c.example/").WithContext(intent(t)))
			}
			if len(lines) != 2 || lines[0] != lines[1] || (lines[0][0] == '"') != quoted {
				t.Errorf("quoted %v: %q", quoted, lines)
			}
		}
	})
	t.Run("keyless too", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, "done"))
		w := wireClient(t, idem.Config{Store: wireStore(t), Contract: idem.Keyless}, wireBase(t))
		for range 2 {
			if res := w.do(t, wirePost(t, srv.URL).WithContext(intent(t))); res.body != "done" {
				t.Errorf("%v", res.err)
			}
		}
		if seen := srv.requests(); len(seen) != 1 || len(seen[0].Keys) != 0 {
			t.Errorf("%d requests", len(seen))
		}
	})
	t.Run("over the bound", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, "0123456789"))
		w := wireClient(t, idem.Config{Store: wireStore(t), MaxResult: 9}, wireBase(t))
		if res := w.do(t, wirePost(t, srv.URL).WithContext(intent(t))); res.body != "0123456789" {
			t.Fatalf("%v", res.err)
		}
		if res := w.do(t, wirePost(t, srv.URL).WithContext(intent(t))); !res.is(idem.ErrResultNotRetained) || res.outcome() != idem.OutcomeExecuted || len(srv.requests()) != 1 {
			t.Errorf("%v after %d requests", res.err, len(srv.requests()))
		}
	})
	t.Run("B024 a caller who has stopped leaves no trace", func(t *testing.T) {
		ctx, cancel := context.WithCancel(intent(t))
		cancel()
		store := &wireCounting{Store: wireStore(t)}
		wireClient(t, idem.Config{Store: store}, wireBase(t)).do(t, wirePost(t, "http://c.example/").WithContext(ctx))
		if store.claims != 0 {
			t.Errorf("%d claims", store.claims)
		}
	})
	t.Run("B038 nor does a key that is refused", func(t *testing.T) {
		store := &wireCounting{Store: wireStore(t)}
		ctx := idem.WithIntent(t.Context(), idem.Intent{Key: "a\nb"})
		res := wireClient(t, idem.Config{Store: store}, wireBase(t)).do(t, wirePost(t, "http://c.example/").WithContext(ctx))
		if !res.is(idem.ErrInvalidKey) || store.claims != 0 {
			t.Errorf("%v after %d claims", res.err, store.claims)
		}
	})
	for _, row := range []struct {
		name   string
		steps  []wireStep
		second string // the body of the next call
		want   idem.Outcome
		is     error
		same   bool // as the first call's key
	}{
		{"executed, another payload", []wireStep{wireReply(200, "")}, "other", idem.OutcomeRejected, idem.ErrPayloadMismatch, true},
		{"rejected: a fresh key, another payload", []wireStep{wireReply(422, ""), wireReply(200, "")}, "other", idem.OutcomeExecuted, nil, false},
		{"not executed: the same key", []wireStep{wireReply(401, ""), wireReply(200, "")}, wireBody, idem.OutcomeExecuted, nil, true},
		{"unknown: the same key and payload", []wireStep{wireReply(500, "", "X-Should-Retry: false"), wireReply(200, "")}, wireBody, idem.OutcomeExecuted, nil, true},
		{"unknown: another payload", []wireStep{wireReply(500, "", "X-Should-Retry: false")}, "other", idem.OutcomeRejected, idem.ErrPayloadMismatch, true},
		{"unknown sticks to the record", []wireStep{wireReply(500, "", "X-Should-Retry: false"), wireReply(422, "")}, wireBody, idem.OutcomeUnknown, idem.ErrOutcomeUnknown, true},
		{"unknown sticks to the record, unless the key layer answers", []wireStep{wireReply(500, "", "X-Should-Retry: false"), wireReply(422, "", wireFirst)}, wireBody, idem.OutcomeRejected, nil, true},
		{"mismatch at the server: the key is kept", []wireStep{wireProblem(422, "key-reused"), wireReply(200, "")}, wireBody, idem.OutcomeExecuted, nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			srv := wireServe(t, row.steps...)
			store := wireStore(t)
			wireClient(t, idem.Config{Store: store}, wireBase(t)).do(t, wirePost(t, srv.URL).WithContext(intent(t)))
			res := wireClient(t, idem.Config{Store: store}, wireBase(t)).do(t, wireRequestTo(t, http.MethodPost, srv.URL, row.second).WithContext(intent(t)))
			if res.outcome() != row.want || (row.is == nil) != (res.err == nil) || row.is != nil && !res.is(row.is) {
				t.Fatalf("%v: %v, want %v: %v", res.outcome(), res.err, row.want, row.is)
			}
			seen := srv.requests()
			if len(seen) != len(row.steps) {
				t.Errorf("%d requests, want %d", len(seen), len(row.steps))
			}
			if len(seen) == 2 && (seen[0].Keys[0] == seen[1].Keys[0]) != row.same {
				t.Errorf("keys %q and %q", seen[0].Keys, seen[1].Keys)
			}
		})
	}
}

// wireKeyed is a server that honours keys: one effect for each, however often
// it is asked.
type wireKeyed struct {
	latency func() time.Duration

	mu      sync.Mutex
	effects map[string]int
	asked   int
}

func (s *wireKeyed) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.effects[req.Header.Get("Idempotency-Key")]++
	s.asked++
	s.mu.Unlock()
	select {
	case <-time.After(s.latency()):
		return wireAnswer(req, 201, "charged"), nil
	case <-req.Context().Done(): // the effect stays
		return nil, context.Cause(req.Context())
	}
}

func TestWireOuterLoop(t *testing.T) {
	t.Run("B166 B167 whoever repeats a call, it is one key", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			srv := &wireKeyed{effects: map[string]int{}, latency: func() time.Duration {
				if time.Since(start) < 2*time.Minute {
					return 8 * time.Second
				}
				return 10 * time.Millisecond
			}}
			const customers = 100
			var wg sync.WaitGroup
			for i := range customers {
				wg.Go(func() {
					id := string(rune('a'+i%26)) + string(rune('a'+i/26))
					for n := 0; ; n++ {
						// A process of its own each time: nothing is left but the ID.
						hc := &http.Client{Timeout: 20 * time.Second, Transport: wireClient(t, idem.Config{Policy: idem.Policy{AttemptTimeout: 5 * time.Second}}, srv)}
						ctx := idem.WithIntent(t.Context(), idem.Intent{Scope: "s", ID: id})
						resp, err := hc.Do(wirePost(t, "http://c.example/charges").WithContext(ctx))
						if err == nil {
							resp.Body.Close()
							return
						}
						if !errors.Is(err, idem.ErrOutcomeUnknown) || n > 20 {
							t.Errorf("%v", err)
							return
						}
						time.Sleep(15 * time.Second)
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Minute)
			if len(srv.effects) != customers || srv.asked < 3*customers {
				t.Errorf("%d keys for %d intents, %d requests", len(srv.effects), customers, srv.asked)
			}
		})
	})
	t.Run("B035 two processes with one store ask once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := &wireKeyed{effects: map[string]int{}, latency: func() time.Duration { return time.Second }}
			store := wireStore(t)
			results := make(chan wireResult, 2)
			for range 2 {
				w := wireClient(t, idem.Config{Store: store, Policy: idem.Policy{Attempts: 4}}, srv)
				ctx := idem.WithIntent(t.Context(), idem.Intent{Scope: "s", ID: "1"})
				go func() { results <- w.do(t, wirePost(t, "http://c.example/charges").WithContext(ctx)) }()
			}
			for range 2 {
				if res := <-results; res.body != "charged" {
					t.Errorf("%v", res.err)
				}
			}
			if srv.asked != 1 {
				t.Errorf("%d requests", srv.asked)
			}
		})
	})
}

// wireCounting counts claims.
type wireCounting struct {
	keystore.Store
	claims int
}

func (s *wireCounting) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	s.claims++
	return s.Store.Claim(ctx, p)
}
