package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

var o1 = keystore.RecordID(keystore.Client, "shop", "id", "o1")

// TestResolveRefuses: only a record that is unresolved is resolved; of the
// others it is told what they are.
func TestResolveRefuses(t *testing.T) {
	w := newWorld(t)
	_, _, _ = w.do(idem.Config{}, order, nil)
	_, _, _ = w.do(idem.Config{}, idem.Intent{Scope: "shop", ID: "free"}, idem.NotExecuted(errLost))
	w.claim("running", true)
	if err := w.store.Release(t.Context(), w.claim("dead", false).Owner, keystore.ReleaseParams{How: keystore.Abandon}); err != nil {
		t.Fatal(err)
	}
	for id, says := range map[string]string{
		"o1": "is done (value, 18 bytes)", "free": "is free", "running": "lease stands for another 1h0m0s", "dead": "had not begun", "none": "no such record",
	} {
		before, _ := w.store.Records(t.Context(), keystore.Query{})
		w.refuses(says, "resolve", "-half", "client", "-scope", "shop", "-id", id, "-not-executed", "-yes")
		after, _ := w.store.Records(t.Context(), keystore.Query{})
		for i := range before {
			if before[i].State != after[i].State || before[i].Token != after[i].Token {
				t.Errorf("%s: %+v became %+v", id, before[i], after[i])
			}
		}
	}
}

// TestResolveAsks: nothing is changed unless the question is answered y.
func TestResolveAsks(t *testing.T) {
	for answer, changes := range map[string]bool{"": false, "n\n": false, "\n": false, "yesterday\n": false, "y": true, "Y\n": true, " yes \n": true} {
		w := newWorld(t)
		w.unresolved()
		got := idemWith(t, strings.NewReader(answer), "resolve", hexOf(o1), "-not-executed", "-store", w.url)
		if !strings.Contains(got.errOut, "resolve record 114e73213458… (client, scope shop, ID o1) as not executed? [y/N]") {
			t.Errorf("asked: %s", got.errOut)
		}
		rec := w.record(o1)
		if changes && (got.code != exitOK || rec.State != keystore.Free) {
			t.Errorf("answered %q: %+v, %+v", answer, got, rec)
		}
		if !changes && (got.code != exitFailed || !rec.Unresolved() || rec.Token != 1) {
			t.Errorf("answered %q: %+v, %+v", answer, got, rec)
		}
	}
}

// TestResolveRefusesFiles: a file that is no result of the record changes
// nothing.
func TestResolveRefusesFiles(t *testing.T) {
	w := newWorld(t)
	w.unresolved()
	const raw = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
	call, request := "-half client -scope shop -id o1", "-half client -scope shop -id o2"
	run, served := "-half server -scope jobs -id o3", "-half server -scope single-tenant -key o4"
	for _, tt := range []struct {
		record, args, file, says string
		code                     int
	}{
		{call, "", "{", "not JSON", exitFailed},
		{call, "", "", "not JSON", exitFailed},
		{call, "", raw, "not JSON", exitFailed},
		{call, "", `"` + strings.Repeat("a", maxResult) + `"`, "-done-without-result", exitFailed},
		{call, "", `"` + strings.Repeat("a", 2*maxResult) + `"`, "-done-without-result", exitFailed},
		{call, "-status 201", "{}", "-status is for HTTP requests", exitUsage},
		{request, "", "{}", "no raw HTTP response", exitFailed},
		{request, "", "", "no raw HTTP response", exitFailed},
		{request, "", "HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\n{}", "its length", exitFailed},
		{request, "", "HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\n{}", "1 bytes follow", exitFailed},
		{request, "", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n{}", "its body", exitFailed},
		{request, "", "HTTP/1.1 402 No\r\n\r\n", "use -rejected", exitFailed},
		{request, "", "HTTP/1.1 500 No\r\n\r\n", "does not tell that it was executed", exitFailed},
		{request, "-status 100", "{}", "does not tell", exitFailed},
		{request, "-status 204", "{}", "has no body", exitFailed},
		{request, "-status 201", strings.Repeat("a", maxResult+1), "-done-without-result", exitFailed},
		{run, "", "nil", "not JSON", exitFailed},
		{served, "", "HTTP/1.1 429 No\r\n\r\n", "no final answer", exitFailed},
		{served, "-status 500", "{}", "no final answer", exitFailed},
	} {
		args := append(strings.Fields(tt.record+" "+tt.args), "-yes", "-done", w.file(tt.file))
		if got := w.idem("resolve", args...); got.code != tt.code || !strings.Contains(got.errOut, tt.says) {
			t.Errorf("%s %.40q: %+v, want exit %d and %q", tt.record+tt.args, tt.file, got, tt.code, tt.says)
		}
	}
	w.refuses("no such file", "resolve", hexOf(o1), "-yes", "-done", "/nowhere/at/all")
	for _, args := range []string{served + " -rejected", served + " -rejected -status 200", served + " -rejected -status 429", run + " -rejected -status 422"} {
		if got := w.idem("resolve", append(strings.Fields(args), "-yes")...); got.code != exitUsage {
			t.Errorf("%s: %+v", args, got)
		}
	}
	recs, err := w.store.Records(t.Context(), keystore.Query{Unresolved: true})
	if err != nil || len(recs) != 4 {
		t.Errorf("%d records are unresolved, %v", len(recs), err)
	}
	for _, rec := range recs {
		if rec.Token != 1 {
			t.Errorf("record %x was taken over", rec.ID)
		}
	}
}

// reading is a standard input that does something before it answers y.
type reading func()

func (f reading) Read(p []byte) (int, error) {
	f()
	return copy(p, "y\n"), io.EOF
}

// TestResolveChangedMeanwhile: what was found out is not brought into a record
// that has changed while the operator was asked.
func TestResolveChangedMeanwhile(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*world, keystore.Owner)
		want func(keystore.Record) bool
	}{
		{"its owner completes it late", func(w *world, o keystore.Owner) {
			if err := w.store.Complete(t.Context(), o, keystore.CompleteParams{Result: []byte("late"), Retention: time.Hour}); err != nil {
				t.Error(err)
			}
		}, func(rec keystore.Record) bool { return rec.State == keystore.Done && string(rec.Result) == "late" }},
		{"its owner frees it late", func(w *world, o keystore.Owner) {
			if err := w.store.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Forget}); err != nil {
				t.Error(err)
			}
		}, func(rec keystore.Record) bool { return rec.State == keystore.Free }},
		{"it is tried again, and unresolved again", func(w *world, _ keystore.Owner) {
			_, _, _ = w.do(idem.Config{}, idem.Intent{Scope: "shop", ID: "x"}, idem.Unknown(errLost))
		}, func(rec keystore.Record) bool { return rec.Unresolved() && rec.Token == 2 }},
		{"it is tried again, and that runs", func(w *world, _ keystore.Owner) {
			_, err := w.store.Claim(t.Context(), keystore.ClaimParams{
				ID: [32]byte(recordOf("x")), Fingerprint: w.record([32]byte(recordOf("x"))).Fingerprint,
				Nonce: [16]byte{2}, Lease: time.Hour, Takeover: true})
			if err != nil {
				t.Error(err)
			}
		}, func(rec keystore.Record) bool { return rec.LeaseLeft > 0 && rec.Token == 2 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			sum, err := idem.Fingerprint(nil)
			if err != nil {
				t.Fatal(err)
			}
			cl := w.claim("x", true)
			w.exec(`UPDATE idem_records SET fingerprint = ?`, sum[:])
			if err := w.store.Release(t.Context(), cl.Owner, keystore.ReleaseParams{How: keystore.Abandon}); err != nil {
				t.Fatal(err)
			}
			got := idemWith(t, reading(func() { tt.do(w, cl.Owner) }), "resolve", "-half=client", "-scope=shop", "-id=x", "-done-without-result", "-store", w.url)
			if rec := w.record([32]byte(recordOf("x"))); got.code != exitFailed || !strings.Contains(got.errOut, "changed meanwhile") || !tt.want(rec) {
				t.Errorf("%+v, %+v", got, rec)
			}
		})
	}
}

// storeBetween is a store in which something happens right before a call.
type storeBetween struct {
	keystore.Store
	claim    func() error
	complete func() error
}

func (s storeBetween) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	if s.claim != nil {
		if err := s.claim(); err != nil {
			return keystore.Claim{}, err
		}
	}
	return s.Store.Claim(ctx, p)
}

func (s storeBetween) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	if s.complete != nil {
		if err := s.complete(); err != nil {
			return err
		}
	}
	return s.Store.Complete(ctx, o, p)
}

// settleBetween settles a record that is unresolved by a claim of owner's.
func settleBetween(t *testing.T, between func(*world, keystore.Owner) storeBetween) (keystore.Record, error) {
	t.Helper()
	w := newWorld(t)
	cl := w.claim("x", true)
	if err := w.store.Release(t.Context(), cl.Owner, keystore.ReleaseParams{How: keystore.Abandon}); err != nil {
		t.Fatal(err)
	}
	id := [32]byte(recordOf("x"))
	v := viewOf(w.record(id))
	plan, err := (&verdict{withoutResult: true}).settlement(v, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := between(w, cl.Owner)
	s.Store = w.store
	err = (&call{ctx: t.Context(), storeURL: w.url}).settle(s, v, plan)
	return w.record(id), err
}

// TestFreedBeforeTheClaim: an owner who only stalled frees the record right
// before it is taken over. What it knew outranks what was found out.
func TestFreedBeforeTheClaim(t *testing.T) {
	rec, err := settleBetween(t, func(w *world, o keystore.Owner) storeBetween {
		return storeBetween{claim: func() error {
			return w.store.Release(context.Background(), o, keystore.ReleaseParams{How: keystore.Forget})
		}}
	})
	if !errors.Is(err, errChanged) || rec.State != keystore.Free {
		t.Errorf("%v, %+v", err, rec)
	}
}

// TestFencedAtTheEnd: another owner takes the record after its lease; nothing
// is said to have been settled.
func TestFencedAtTheEnd(t *testing.T) {
	rec, err := settleBetween(t, func(w *world, _ keystore.Owner) storeBetween {
		return storeBetween{complete: func() error {
			w.exec(`UPDATE idem_records SET nonce = randomblob(16), token = token + 1, revision = revision + 1`)
			return nil
		}}
	})
	if !errors.Is(err, errChanged) || rec.State != keystore.Running {
		t.Errorf("%v, %+v", err, rec)
	}
}

// TestStoreFails: a store that does not answer is asked again; one that refuses
// leaves the record unresolved.
func TestStoreFails(t *testing.T) {
	errDown := errors.New("down")
	failing := func(times int, err error) (func() error, *int) {
		n := 0
		return func() error {
			if n++; n <= times {
				return err
			}
			return nil
		}, &n
	}
	for _, tt := range []struct {
		name              string
		claims, completes int
		err               error
		says              string
		want              func(keystore.Record) bool
	}{
		{"now and then", 2, 2, errDown, "", func(rec keystore.Record) bool { return rec.State == keystore.Done }},
		{"at the claim", storeTries, 0, errDown, "take the record over", func(rec keystore.Record) bool { return rec.Unresolved() && rec.Token == 1 }},
		{"at the end", 0, storeTries, errDown, "nobody knows now whether it is settled", func(rec keystore.Record) bool { return rec.LeaseLeft > 0 }},
		{"for good", 0, 1, keystore.ErrTooLarge, "stays unresolved", func(rec keystore.Record) bool { return rec.Unresolved() && rec.Token == 2 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			claim, claims := failing(tt.claims, tt.err)
			complete, completes := failing(tt.completes, tt.err)
			rec, err := settleBetween(t, func(*world, keystore.Owner) storeBetween { return storeBetween{claim: claim, complete: complete} })
			switch {
			case (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says):
				t.Errorf("error %v, want %q", err, tt.says)
			case !tt.want(rec):
				t.Errorf("record %+v", rec)
			case *claims > storeTries || *completes > storeTries:
				t.Errorf("%d claims, %d completions", *claims, *completes)
			}
		})
	}
}

// TestBrokenNote: a record whose note can't be read may be freed, since that
// needs no note; nothing else is possible.
func TestBrokenNote(t *testing.T) {
	for name, note := range map[string]string{"no JSON": "\x00", "of another record": `{"v":1,"k":"other","s":"shop","i":"other"}`, "of the future": `{"v":2,"g":0,"k":"k","s":"shop","i":"o1"}`} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.unresolved()
			w.exec(`UPDATE idem_records SET meta = ? WHERE id = ?`, []byte(note), o1[:])
			id := hexOf(o1)
			if got := w.idem("show", id); got.code != exitFailed || !strings.Contains(got.out, "unresolved") || !strings.Contains(got.errOut, "its note") {
				t.Errorf("%+v", got)
			}
			if out := w.must("stale"); !strings.Contains(out, id[:12]) || !strings.Contains(out, "o2") {
				t.Errorf("stale: %s", out)
			}
			w.refuses("its note", "resolve", id, "-yes", "-rejected")
			w.refuses("its note", "resolve", id, "-yes", "-done-without-result")
			w.must("resolve", id, "-yes", "-not-executed")
			if rec := w.record(o1); rec.State != keystore.Free {
				t.Errorf("%+v", rec)
			}
		})
	}
}
