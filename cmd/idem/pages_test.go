package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

// fill makes n records, and returns their IDs in order.
func (w *world) fill(n int) (ids [][32]byte) {
	w.t.Helper()
	for i := range n {
		cl := w.claim(fmt.Sprint("n", i), true)
		if err := w.store.Release(w.t.Context(), cl.Owner, keystore.ReleaseParams{How: keystore.Abandon}); err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, cl.Owner.ID)
	}
	slices.SortFunc(ids, func(a, b [32]byte) int { return strings.Compare(string(a[:]), string(b[:])) })
	return ids
}

// TestUnreadable: records that can't be read hide no others, wherever they are
// among them, and are named.
func TestUnreadable(t *testing.T) {
	const n = 2*pageSize + 30
	w := newWorld(t)
	ids := w.fill(n)
	bad := []int{0, 1, 2, 57, 99, 100, 101, 180, n - 1}
	for _, i := range bad {
		w.exec(`UPDATE idem_records SET format = 9 WHERE id = ?`, ids[i][:])
	}
	var seen, named [][32]byte
	unreadable, err := pages(t.Context(), w.store, keystore.Query{}, func(rec keystore.Record) bool {
		seen = append(seen, rec.ID)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range unreadable {
		named = append(named, u.id)
		if !errors.Is(u, keystore.ErrFormat) {
			t.Error(u)
		}
	}
	var readable, broken [][32]byte
	for i, id := range ids {
		if slices.Contains(bad, i) {
			broken = append(broken, id)
		} else {
			readable = append(readable, id)
		}
	}
	if !slices.Equal(seen, readable) || !slices.Equal(named, broken) {
		t.Errorf("%d records seen, want %d; %d named, want %d", len(seen), len(readable), len(named), len(broken))
	}

	for _, args := range []string{"stale -json", "stale -json -scope shop", "stats -json"} {
		args := strings.Fields(args)
		got := w.idem(args[0], args[1:]...)
		if got.code != exitFailed || strings.Count(got.errOut, "can't be read") != len(bad) || !strings.Contains(got.errOut, hexOf(ids[57])) {
			t.Errorf("%q: exit %d, %s", args, got.code, got.errOut)
		}
		if args[0] == "stale" {
			if list := decode[[]recordJSON](t, got.out); len(list) != len(readable) {
				t.Errorf("%q: %d records", args, len(list))
			}
		} else if all := decode[[]counts](t, got.out); all[0].Unresolved != len(readable) {
			t.Errorf("%q: %+v", args, all)
		}
	}
	for _, id := range []string{hexOf(ids[57]), hexOf(ids[57])[:20]} {
		w.refuses("format 9", "show", id)
		w.refuses("format 9", "resolve", id, "-yes", "-not-executed")
	}
	w.must("show", hexOf(ids[56])[:20])
	w.must("show", hexOf(ids[58])[:20])
}

// mute is a store that does not say which of its records can't be read.
type mute struct {
	keystore.Store
	names [32]byte // one that can be read
}

func (s mute) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	recs, err := s.Store.Records(ctx, q)
	if err != nil {
		err = fmt.Errorf("%w: not %x", keystore.ErrCorrupt, s.names)
	}
	return recs, err
}

// TestUnnamed: where the store does not tell which record it is, the ones
// before it are still listed, and it is said that there may be more.
func TestUnnamed(t *testing.T) {
	w := newWorld(t)
	ids := w.fill(20)
	w.exec(`UPDATE idem_records SET format = 9 WHERE id = ?`, ids[7][:])
	var seen [][32]byte
	_, err := pages(t.Context(), mute{w.store, ids[9]}, keystore.Query{}, func(rec keystore.Record) bool {
		seen = append(seen, rec.ID)
		return true
	})
	if !errors.Is(err, keystore.ErrCorrupt) || !strings.Contains(err.Error(), "behind "+hexOf(ids[6])) || !slices.Equal(seen, ids[:7]) {
		t.Errorf("%d records, %v", len(seen), err)
	}
}

// counting is a store that counts, and purges only so many at once.
type counting struct {
	keystore.Store
	left   int
	limits []int
	fails  error
}

func (s *counting) Purge(_ context.Context, limit int) (int, error) {
	s.limits = append(s.limits, limit)
	n := min(limit, s.left)
	s.left -= n
	if s.left == 0 && s.fails != nil {
		return n, s.fails
	}
	return n, nil
}

// TestPurgeBatches: one call to the store is never asked for more than a batch,
// and all of them for no more than -max.
func TestPurgeBatches(t *testing.T) {
	for _, tt := range []struct {
		there, batch, most, removed int
		limits                      []int
	}{
		{0, 10, 0, 0, []int{10}},
		{25, 10, 0, 25, []int{10, 10, 10}},
		{20, 10, 0, 20, []int{10, 10, 10}},
		{25, 10, 15, 15, []int{10, 5}},
		{25, 10, 20, 20, []int{10, 10}},
		{5, 10, 20, 5, []int{10}},
	} {
		s := &counting{left: tt.there}
		n, err := purgeAll(&call{ctx: t.Context()}, s, tt.batch, tt.most)
		if n != tt.removed || err != nil || !slices.Equal(s.limits, tt.limits) {
			t.Errorf("%+v: removed %d by %v, %v", tt, n, s.limits, err)
		}
	}
	errDown := errors.New("down")
	if n, err := purgeAll(&call{ctx: t.Context()}, &counting{left: 15, fails: errDown}, 10, 0); n != 15 || !errors.Is(err, errDown) {
		t.Errorf("removed %d, %v", n, err)
	}
}

// TestPurge: what is unresolved, running or still replayed stays.
func TestPurge(t *testing.T) {
	w := newWorld(t)
	w.fill(3)
	w.claim("running", true)
	for i := range 25 {
		cl := w.claim(fmt.Sprint("done", i), true)
		if err := w.store.Complete(t.Context(), cl.Owner, keystore.CompleteParams{Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if out := w.must("purge", "-yes"); out != "purged 0 records\n" {
		t.Error(out)
	}
	w.exec(`UPDATE idem_records SET until_us = 1, expires_us = 1 WHERE state = 3`)
	if got := w.idem("purge"); got.code != exitFailed || !strings.Contains(got.errOut, "[y/N]") || !strings.Contains(got.errOut, "not confirmed") {
		t.Errorf("%+v", got)
	}
	if out := w.must("purge", "-yes", "-max", "7", "-batch", "3"); out != "purged 7 records\n" {
		t.Error(out)
	}
	if got := idemWith(t, strings.NewReader("y\n"), "purge", "-batch", "5", "-json", "-store", w.url); got.code != exitOK || decode[map[string]int](t, got.out)["purged"] != 18 {
		t.Errorf("%+v", got)
	}
	recs, err := w.store.Records(t.Context(), keystore.Query{})
	if err != nil || len(recs) != 4 {
		t.Errorf("%d records left, %v", len(recs), err)
	}
}

// TestMigrate: it may be repeated, and prints the statements that it would use.
func TestMigrate(t *testing.T) {
	w := newWorld(t)
	if out := w.must("migrate"); !strings.Contains(out, "in place") {
		t.Error(out)
	}
	for url, says := range map[string]string{
		w.url:                "`idem_records`",
		w.url + "?idem=mine": "`mine`",
		"postgres://127.0.0.1:1/db?idem=mine&sslmode=disable": "mine",
		"mysql://u@127.0.0.1:1/db?idem=mine":                  "`mine`",
	} {
		if got := idemWith(t, nil, "migrate", "-print", "-store", url); got.code != exitOK || !strings.Contains(got.out, says) || !strings.Contains(got.out, "CREATE") {
			t.Errorf("%s: %+v", url, got)
		}
	}
	if got := idemWith(t, nil, "migrate", "-print", "-store", "redis://127.0.0.1:1/0"); got.code != exitFailed || !strings.Contains(got.errOut, "no schema") {
		t.Errorf("%+v", got)
	}
	if got := idemWith(t, nil, "migrate", "-store", "memory:"); got.code != exitOK || !strings.Contains(got.out, "needs no tables") {
		t.Errorf("%+v", got)
	}
	// What was printed is what is needed.
	fresh := "sqlite:" + t.TempDir() + "/fresh.db"
	worldAt(t, fresh).exec(`DROP TABLE idem_records`)
	if got := idemWith(t, nil, "stats", "-store", fresh); got.code != exitFailed || !strings.Contains(got.errOut, "idem migrate creates") {
		t.Errorf("%+v", got)
	}
}
