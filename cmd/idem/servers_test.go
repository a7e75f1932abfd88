package main

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

// TestServers walks through the commands on each database, and has one record
// there that can't be read.
func TestServers(t *testing.T) {
	for name, backend := range map[string]func(*testing.T) (url string, spoil func(*world, [32]byte)){
		"postgres": postgres, "redis": redisServer, "mariadb": mariadb,
	} {
		t.Run(name, func(t *testing.T) {
			url, spoil := backend(t)
			walk(t, worldAt(t, url), spoil)
		})
	}
}

func postgres(t *testing.T) (string, func(*world, [32]byte)) {
	return servertest.Postgres(t).URL + "&idem=tool", func(w *world, id [32]byte) {
		if _, err := w.Postgres.Exec(t.Context(), `UPDATE tool SET format = 9 WHERE id = $1`, id[:]); err != nil {
			t.Fatal(err)
		}
	}
}

func redisServer(t *testing.T) (string, func(*world, [32]byte)) {
	return "redis://" + servertest.Redis(t, servertest.RedisOptions{}).Addr + "/0?idem=tool:", func(w *world, id [32]byte) {
		if err := w.Redis.Set(t.Context(), "tool:{"+hexOf(id)+"}", "spoilt", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func mariadb(t *testing.T) (string, func(*world, [32]byte)) {
	s := servertest.MariaDB(t, servertest.MariaDBOptions{})
	db, err := sql.Open("mysql", s.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `CREATE DATABASE tool`); err != nil {
		t.Fatal(err)
	}
	return "mysql:" + s.DSN("tool") + "?idem=tool", func(w *world, id [32]byte) {
		w.exec("UPDATE tool SET format = 9 WHERE id = ?", id[:])
	}
}

func walk(t *testing.T, w *world, spoil func(*world, [32]byte)) {
	w.must("migrate")
	_, _, _ = w.do(idem.Config{}, order, idem.Unknown(errLost))
	_, _, _ = w.send(idem.Config{}, idem.Intent{Scope: "shop", ID: "o2"}, 500)
	_, _ = w.run(idem.Intent{Scope: "jobs", ID: "o3"}, errLost)
	_, _ = w.serve("o4", "POST", 500)
	if out := w.must("stale"); strings.Count(out, "\n") != 5 {
		t.Errorf("stale: %s", out)
	}
	if out := w.must("stale", "-scope", "shop", "-json"); len(decode[[]recordJSON](t, out)) != 2 {
		t.Errorf("stale: %s", out)
	}
	spoilt := keystore.RecordID(keystore.Server, "jobs", "id", "o3")
	spoil(w, spoilt)
	for _, command := range []string{"stale", "stats"} {
		got := w.idem(command, "-json")
		if got.code != exitFailed || !strings.Contains(got.errOut, hexOf(spoilt)) {
			t.Errorf("%s: %+v", command, got)
		}
		if command == "stale" && len(decode[[]recordJSON](t, got.out)) != 3 {
			t.Errorf("stale: %s", got.out)
		}
	}
	w.refuses("can't be read", "show", hexOf(spoilt)[:12])

	w.must("resolve", append(atDo, "-done", w.file(`{"Charge":"ch_7"}`))...)
	if res, _, err := w.do(idem.Config{}, order, nil); err != nil || res.Value.Charge != "ch_7" {
		t.Errorf("%+v, %v", res, err)
	}
	w.must("resolve", append(atTransport, "-rejected")...)
	o2 := keystore.RecordID(keystore.Client, "shop", "id", "o2")
	if v := viewOf(w.record(o2)); v.broken != nil || v.rec.Generation != 1 || v.key != idem.DeriveKey("intent", "shop", "o2", "1") {
		t.Errorf("%+v", v)
	}
	w.must("resolve", append(atHandler, "-done", w.file(rawReply))...)
	if rec, called := w.serve("o4", "POST", 500); called || rec.Code != 201 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if out := w.must("show", hexOf(o2)[:8]); !strings.Contains(out, "free: released") {
		t.Errorf("show: %s", out)
	}
	cl := w.claim("running", true)
	if got := w.idem("resolve", hexOf(cl.Owner.ID), "-yes", "-not-executed"); got.code != exitFailed || !strings.Contains(got.errOut, "lease stands") {
		t.Errorf("resolve: %+v", got)
	}
	if err := w.store.Complete(t.Context(), cl.Owner, keystore.CompleteParams{Retention: time.Hour}); err != nil {
		t.Error(err)
	}
	if out := w.must("purge", "-yes"); out != "purged 0 records\n" {
		t.Errorf("purge: %s", out)
	}
}
