package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

var aging = regexp.MustCompile(`("\w*(?:age|running|unresolved)_seconds": \d\d)\d+\.?\d*`)

// stable takes out of JSON what of an age changes during a test.
func stable(text string) string { return aging.ReplaceAllString(text, "${1}…") }

// TestStale: the unresolved records of both halves, the oldest first.
func TestStale(t *testing.T) {
	w := newWorld(t)
	if got := w.must("stale"); got != "no unresolved records\n" {
		t.Errorf("nothing: %s", got)
	}
	if got := w.must("stale", "-json"); got != "[]\n" {
		t.Errorf("nothing: %s", got)
	}
	w.unresolved()
	_, _, _ = w.do(idem.Config{}, idem.Intent{Scope: "shop", ID: "done"}, nil)
	golden(t, "stale.txt", w.must("stale"))
	golden(t, "stale.json", stable(w.must("stale", "-json")))
}

func TestStaleSelects(t *testing.T) {
	w := newWorld(t)
	w.unresolved()
	for _, tt := range []struct {
		args string
		ids  []string
	}{
		{"", []string{"o1", "o2", "o3", ""}},
		{"-older 150m", []string{"o1", "o2"}},
		{"-older 9h", nil},
		{"-half client", []string{"o1", "o2"}},
		{"-half server", []string{"o3", ""}},
		{"-scope shop", []string{"o1", "o2"}},
		{"-scope jobs", []string{"o3"}},
		{"-scope jobs -half client", nil},
		{"-scope nobody", nil},
	} {
		var ids []string
		for _, r := range decode[[]recordJSON](t, w.must("stale", append(strings.Fields(tt.args), "-json")...)) {
			ids = append(ids, r.ID)
		}
		if fmt.Sprint(ids) != fmt.Sprint(tt.ids) {
			t.Errorf("idem stale %s: %q, want %q", tt.args, ids, tt.ids)
		}
	}
}

// TestShow: everything but the key and, unless asked for, the stored answer.
func TestShow(t *testing.T) {
	w := newWorld(t)
	w.unresolved()
	id := hexOf(keystore.RecordID(keystore.Server, "single-tenant", "key", "o4"))
	golden(t, "show.txt", w.must("show", id))
	golden(t, "show.json", stable(w.must("show", id, "-json")))

	w.must("resolve", id, "-yes", "-done", w.file("HTTP/1.1 201 Created\r\nLocation: /charges/7\r\nContent-Length: 14\r\n\r\n{\"charge\":\"7\"}"))
	for _, args := range [][]string{{id}, {id, "-json"}} {
		out := w.must("show", args...)
		if strings.Contains(out, "charge\":") || strings.Contains(out, "/charges/7") {
			t.Errorf("the answer is shown without -result: %s", out)
		}
	}
	golden(t, "show_done.txt", w.must("show", id, "-result"))
	golden(t, "show_done.json", stable(w.must("show", id, "-result", "-json")))
}

// TestShowFinds: a record by its ID, by the beginning of it, and by its names.
func TestShowFinds(t *testing.T) {
	w := newWorld(t)
	w.unresolved()
	_, _, _ = w.send(idem.Config{}, idem.Intent{Key: "raw-key"}, 500)
	id := hexOf(keystore.RecordID(keystore.Client, "shop", "id", "o1"))
	for args, want := range map[string]string{
		id:                                id,
		id[:8]:                            id,
		strings.ToUpper(id[:63]):          id,
		"-half client -scope shop -id o1": id,
		"-half server -scope single-tenant -key o4": hexOf(keystore.RecordID(keystore.Server, "single-tenant", "key", "o4")),
		"-half client -key raw-key":                 hexOf(keystore.RecordID(keystore.Client, "", "key", "raw-key")),
	} {
		out := w.must("show", append(strings.Fields(args), "-json")...)
		if got := decode[recordJSON](t, out); got.Record != want {
			t.Errorf("idem show %s: %s", args, out)
		}
		if strings.Contains(out, "raw-key") {
			t.Errorf("idem show %s shows the key: %s", args, out)
		}
	}
	w.refuses("no such record", "show", "00000000")
	w.refuses("no such record", "show", "ffffffff")
	w.refuses("no such record", "show", "-half", "client", "-scope", "shop", "-id", "none")

	// Two records that begin alike, and with the lowest digits.
	for _, last := range []byte{1, 2} {
		_, err := w.store.Claim(t.Context(), keystore.ClaimParams{ID: [32]byte{31: last}, Nonce: [16]byte{1}, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.refuses("give more digits", "show", "00000000")
	w.refuses("of neither half", "show", strings.Repeat("0", 63)+"1")
}

// TestStats: every record counts where the next call finds it.
func TestStats(t *testing.T) {
	w := newWorld(t)
	w.unresolved()
	_, _, _ = w.do(idem.Config{}, idem.Intent{Scope: "shop", ID: "done"}, nil)
	_, _, _ = w.do(idem.Config{}, idem.Intent{Scope: "shop", ID: "free"}, idem.NotExecuted(errLost))
	for id, begun := range map[string]bool{"running": true, "dead": false} {
		cl := w.claim(id, begun)
		if !begun {
			if err := w.store.Release(t.Context(), cl.Owner, keystore.ReleaseParams{How: keystore.Abandon}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.exec(`UPDATE idem_records SET since_us = since_us - 7200000000 WHERE id = ?`, recordOf("running"))
	golden(t, "stats.txt", w.must("stats"))
	golden(t, "stats.json", stable(w.must("stats", "-json")))

	w.exec(`UPDATE idem_records SET until_us = 1 WHERE state = 3`) // the retention is over
	w.exec(`UPDATE idem_records SET meta = x'00' WHERE id = ?`, recordOf("dead"))
	all := decode[[]counts](t, w.must("stats", "-json"))
	if len(all) != 3 || all[0].Done != 0 || all[2].Half != noHalf || all[2].Free != 1 {
		t.Errorf("%+v", all)
	}
}

func recordOf(id string) []byte {
	sum := keystore.RecordID(keystore.Client, "shop", "id", id)
	return sum[:]
}

// claim claims a record as the client half would.
func (w *world) claim(id string, begun bool) keystore.Claim {
	w.t.Helper()
	note := clientNote{Version: 1, Key: idem.DeriveKey("intent", "shop", id), Scope: "shop", ID: id}
	note.Wire = string(note.Key)
	cl, err := w.store.Claim(w.t.Context(), keystore.ClaimParams{
		ID: [32]byte(recordOf(id)), Scope: keystore.ScopeDigest(keystore.Client, "shop"), Nonce: [16]byte{1},
		Lease: time.Hour, Begun: begun, Meta: note.encode(),
	})
	if err != nil || cl.Status != keystore.Acquired {
		w.t.Fatal(cl.Status, err)
	}
	return cl
}

// TestHostileNames: what clients have put into names and paths can't command a
// terminal, nor break a table.
func TestHostileNames(t *testing.T) {
	w := newWorld(t)
	_, _, _ = w.do(idem.Config{}, idem.Intent{Scope: "a\tb\n", ID: "\x1b[2Jo1\u202e"}, idem.Unknown(errLost))
	id := hexOf(keystore.RecordID(keystore.Client, "a\tb\n", "id", "\x1b[2Jo1\u202e"))
	for _, out := range []string{w.must("stale"), w.must("show", id), w.must("resolve", id, "-not-executed", "-yes")} {
		if strings.ContainsAny(out, "\x1b\u202e\t") || !strings.Contains(out, `"\x1b[2Jo1\u202e"`) {
			t.Errorf("%q", out)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 59*time.Second + 999*time.Millisecond: "59s", time.Minute: "1m0s", 3*time.Hour - 1: "2h59m", 24 * time.Hour: "1d0h", 1000*time.Hour + 1: "41d16h",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%v) = %s, want %s", d, got, want)
		}
	}
}

// TestBrokenResult: an answer that can't be read is told, with exit code 1, and
// what can be read is shown.
func TestBrokenResult(t *testing.T) {
	w := newWorld(t)
	_, _, _ = w.do(idem.Config{}, order, nil)
	bad := stored.Encode(stored.Answer{Kind: stored.Value, Body: []byte(`{}`)})
	bad[len(bad)-1]++
	w.exec(`UPDATE idem_records SET result = ?`, bad)
	got := w.idem("show", "-half", "client", "-scope", "shop", "-id", "o1")
	if got.code != exitFailed || !strings.Contains(got.errOut, "checksum") || !strings.Contains(got.out, "o1") {
		t.Errorf("%+v", got)
	}
}
