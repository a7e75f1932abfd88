package idem_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// leave leaves each intent unresolved, a second apart, and returns their keys.
func leave(t *testing.T, cfg idem.Config, ins ...idem.Intent) (keys []idem.Key) {
	t.Helper()
	cfg.Policy.Attempts = 1
	c := newClient(t, cfg)
	for _, in := range ins {
		s := answers(unknown)
		_, err := idem.Do(t.Context(), c, in, s.call)
		wantOutcome(t, err, idem.OutcomeUnknown)
		keys = append(keys, s.sent(t))
		time.Sleep(time.Second)
	}
	return keys
}

func orders(n int) (ins []idem.Intent) {
	for i := range n {
		id := fmt.Sprintf("o%03d", i)
		ins = append(ins, idem.Intent{ID: id, Payload: order{id, i}})
	}
	return ins
}

// B057, B061, B086: what a dead process has left is found again in the scope,
// the oldest first, under the same keys and with the same payloads.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		cfg := idem.Config{Store: store, Scope: "shop", MaxPayload: 1000}
		ins := orders(250) // more than a page
		keys := leave(t, cfg, ins...)
		other := cfg
		other.Scope = "elsewhere"
		leave(t, other, ins[:1]...)

		var mu sync.Mutex
		var asked []order
		var now, most int
		n, err := idem.Resume(t.Context(), newClient(t, cfg), func(_ context.Context, key idem.Key, o order) (receipt, error) {
			mu.Lock()
			asked = append(asked, o)
			if key != keys[o.Amount] {
				t.Errorf("%s under %s, first sent under %s", o.ID, key, keys[o.Amount])
			}
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return receipt{"ch_" + o.ID}, nil
		})
		if err != nil || n != len(ins) || len(asked) != len(ins) {
			t.Fatalf("%d settled, %d asked, %v", n, len(asked), err)
		}
		if most != 8 {
			t.Errorf("%d at once", most)
		}
		for i := 0; i < len(asked); i += 8 { // the order within a handful is nobody's
			end := min(i+8, len(asked))
			slices.SortFunc(asked[i:end], func(a, b order) int { return a.Amount - b.Amount })
		}
		if !slices.IsSortedFunc(asked, func(a, b order) int { return a.Amount - b.Amount }) {
			t.Errorf("not the oldest first: %v", asked)
		}
		res, err := idem.Do(t.Context(), newClient(t, cfg), ins[3], never[receipt](t))
		wantSource(t, res, err, idem.SourceReplayed)
		if n, err := idem.Resume(t.Context(), newClient(t, cfg), neverCall[order](t)); n != 0 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
	})
}

func neverCall[Req any](t *testing.T) func(context.Context, idem.Key, Req) (receipt, error) {
	return func(context.Context, idem.Key, Req) (receipt, error) {
		t.Error("called")
		return receipt{}, nil
	}
}

// What can't be resumed is told of, with its name, and stays as it is.
func TestResumeLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		cfg := idem.Config{Store: store, Scope: "shop", MaxPayload: 40}
		leave(t, cfg,
			idem.Intent{ID: "fits", Payload: order{"o", 1}},
			idem.Intent{ID: "too large", Payload: order{strings.Repeat("o", 40), 1}},
			idem.Intent{ID: "another type", Payload: []int{1}},
			idem.Intent{ID: "still unknown", Payload: order{"u", 1}},
			idem.Intent{ID: "refused", Payload: order{"r", 1}},
			idem.Intent{Key: "a-key-of-its-own", Payload: order{"k", 1}},
		)
		req, err := http.NewRequestWithContext(idem.WithIntent(t.Context(), idem.Intent{ID: "http"}), "POST", "http://example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		once := cfg
		once.Policy.Attempts = 1
		_, err = newClient(t, once).Transport(replies(500)).RoundTrip(req)
		wantOutcome(t, err, idem.OutcomeUnknown)

		n, err := idem.Resume(t.Context(), newClient(t, once), func(_ context.Context, _ idem.Key, o order) (receipt, error) {
			switch o.ID {
			case "u":
				return receipt{}, unknown
			case "r":
				// It comes from behind the key layer: a replayed refusal.
				return receipt{}, idem.Rejected(errBoom)
			}
			return receipt{"ch_" + o.ID}, nil
		})
		if n != 2 {
			t.Errorf("%d settled, want fits and the key", n)
		}
		var left []string
		for _, part := range err.(interface{ Unwrap() []error }).Unwrap() {
			e := failure(t, part)
			left = append(left, e.ID)
			if e.ID == "http" && !strings.Contains(e.Error(), "HTTP request") {
				t.Errorf("a request: %v", e)
			}
			if e.Key == "" || e.Scope != "shop" {
				t.Errorf("%+v", e)
			}
		}
		slices.Sort(left)
		// A function's word proves nothing of an earlier, unknown attempt.
		if want := []string{"another type", "http", "refused", "still unknown", "too large"}; !slices.Equal(left, want) {
			t.Errorf("left %q, want %q", left, want)
		}
		unresolved := 0
		for _, rec := range records(t, store) {
			if rec.Unresolved() {
				unresolved++
			}
		}
		if unresolved != 5 {
			t.Errorf("%d unresolved", unresolved)
		}
	})
}

// The kept payload is the latest one, also after a refusal or a free start
// with another.
func TestResumePayloadReplaced(t *testing.T) {
	for name, first := range map[string]error{"refused": idem.Rejected(errBoom), "not executed": notExecuted} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := idem.Config{Store: newStore(t), Scope: "shop", MaxPayload: 1000, Policy: idem.Policy{Attempts: 1}}
				_, err := idem.Do(t.Context(), newClient(t, cfg), idem.Intent{ID: "o", Payload: order{"o", 1}}, answers(first).call)
				failure(t, err)
				leave(t, cfg, idem.Intent{ID: "o", Payload: order{"<o>", 2}})
				var got order
				n, err := idem.Resume(t.Context(), newClient(t, cfg), func(_ context.Context, _ idem.Key, o order) (receipt, error) {
					got = o
					return receipt{}, nil
				})
				if n != 1 || err != nil || got != (order{"<o>", 2}) {
					t.Errorf("%d, %v, %+v", n, err, got)
				}
			})
		})
	}
}

// A payload is kept, and decoded, as it was: large numbers, and text that JSON
// for web pages would lengthen.
func TestResumePayloadKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := idem.Config{Store: newStore(t), Scope: "shop", MaxPayload: 32 << 10}
		payload := map[string]any{"n": int64(9007199254740993), "text": strings.Repeat("<&>", 10_000)}
		leave(t, cfg, idem.Intent{ID: "o", Payload: payload})
		n, err := idem.Resume(t.Context(), newClient(t, cfg), func(_ context.Context, _ idem.Key, got map[string]any) (receipt, error) {
			if fmt.Sprint(got) != fmt.Sprint(payload) {
				t.Errorf("got %.100v", got)
			}
			return receipt{}, nil
		})
		if n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// Two processes that start at once share the work.
func TestResumeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := idem.Config{Store: newStore(t), Scope: "shop", MaxPayload: 1000}
		leave(t, cfg, orders(40)...)
		var calls atomic.Int64
		var all sync.WaitGroup
		for range 2 {
			c := newClient(t, cfg)
			all.Go(func() {
				n, err := idem.Resume(t.Context(), c, func(context.Context, idem.Key, order) (receipt, error) {
					calls.Add(1)
					time.Sleep(100 * time.Millisecond)
					return receipt{}, nil
				})
				if n == 0 || err != nil {
					t.Error(n, err)
				}
			})
		}
		all.Wait()
		if calls.Load() != 40 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// Intents without a payload need none.
func TestResumeWithoutPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := idem.Config{Store: newStore(t), Scope: "shop"}
		leave(t, cfg, idem.Intent{ID: "nightly"})
		n, err := idem.Resume(t.Context(), newClient(t, cfg), func(context.Context, idem.Key, struct{}) (receipt, error) { return receipt{}, nil })
		if n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// The key of a leftover may have expired: then Recover is asked.
func TestResumeExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := idem.Config{Store: newStore(t), Scope: "shop", MaxPayload: 1000, Contract: short}
		leave(t, cfg, orders(2)...)
		time.Sleep(time.Hour)
		if n, err := idem.Resume(t.Context(), newClient(t, cfg), neverCall[order](t)); n != 0 || !errors.Is(err, idem.ErrKeyExpired) {
			t.Errorf("%d, %v", n, err)
		}
		h := &hook{res: idem.Resolution{Outcome: idem.OutcomeExecuted, Value: receipt{"ch_0"}}}
		cfg.Recover = h.recover
		if n, err := idem.Resume(t.Context(), newClient(t, cfg), neverCall[order](t)); n != 2 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if string(h.asked[0].Payload) != `{"ID":"o000","Amount":0}` && string(h.asked[0].Payload) != `{"ID":"o001","Amount":1}` {
			t.Errorf("payload %s", h.asked[0].Payload)
		}
	})
}

// A context that ends leaves the rest as it is.
func TestResumeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		cfg := idem.Config{Store: store, Scope: "shop", MaxPayload: 1000}
		leave(t, cfg, orders(30)...)
		ctx, cancel := context.WithCancel(t.Context())
		n, err := idem.Resume(ctx, newClient(t, cfg), func(context.Context, idem.Key, order) (receipt, error) {
			cancel()
			return receipt{}, nil
		})
		graceOver()
		if !errors.Is(err, context.Canceled) || n > 8 {
			t.Errorf("%d, %v", n, err)
		}
		n, err = idem.Resume(t.Context(), newClient(t, cfg), func(context.Context, idem.Key, order) (receipt, error) { return receipt{}, nil })
		if err != nil || n < 22 {
			t.Errorf("then %d, %v", n, err)
		}
	})
}

func TestResumeRefuses(t *testing.T) {
	call := neverCall[order](t)
	c := newClient(t, idem.Config{})
	if _, err := idem.Resume(t.Context(), c, call); !errors.Is(err, idem.ErrConfig) {
		t.Error(err)
	}
	if _, err := idem.Resume[order, receipt](t.Context(), nil, call); !errors.Is(err, idem.ErrConfig) {
		t.Error(err)
	}
	if _, err := idem.Resume[order, receipt](t.Context(), c, nil); !errors.Is(err, idem.ErrInvalidIntent) {
		t.Error(err)
	}
}

// A store that fails hides nothing of what was settled before.
func TestResumeStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &pages{Store: newStore(t)}
		cfg := idem.Config{Store: store, Scope: "shop", MaxPayload: 1000}
		leave(t, cfg, orders(150)...)
		store.broken = true
		n, err := idem.Resume(t.Context(), newClient(t, cfg), func(context.Context, idem.Key, order) (receipt, error) { return receipt{}, nil })
		if n != 100 || !errors.Is(err, idem.ErrStore) || !errors.Is(err, errBoom) {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// pages is a store whose second page can't be read.
type pages struct {
	keystore.Store
	broken bool
}

func (p *pages) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	if p.broken && q.After != ([32]byte{}) {
		return nil, errBoom
	}
	return p.Store.Records(ctx, q)
}
