package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestUsage: what is wrong with a call whatever the store holds is told with
// exit code 2, and nothing is opened.
func TestUsage(t *testing.T) {
	const id = "0123456789abcdef"
	store := "-store=sqlite:" + filepath.Join(t.TempDir(), "none.db")
	for _, tt := range []struct{ args, says string }{
		{"", "idem stale"},
		{"frobnicate", `unknown command "frobnicate"`},
		{"stale", "no store is named"},
		{"stale -store=oracle:x", `unknown scheme "oracle"`},
		{"stale -frob " + store, "not defined: -frob"},
		{"stale extra " + store, `"extra" is no flag`},
		{"stale -half both " + store, "use client or server"},
		{"stale -older soon " + store, "-older"},
		{"show " + store, "no record is named"},
		{"show 0123456 " + store, "give 8 to 64 hex digits"},
		{"show 0123456x " + store, "give 8 to 64 hex digits"},
		{"show " + id + " " + id + " " + store, "2 records are named"},
		{"show " + id + " -scope s -id i " + store, "not by both"},
		{"show -scope s -id i " + store, "use client or server"},
		{"show -half client -id i " + store, "-scope is missing"},
		{"show -half server -key k " + store, "-scope is missing"},
		{"show -half client -scope s -id i -key k " + store, "one of -id and -key"},
		{"resolve " + id + " " + store, "0 verdicts"},
		{"resolve " + id + " -rejected -not-executed " + store, "2 verdicts"},
		{"resolve -not-executed " + store, "no record is named"},
		{"resolve " + id + " -not-executed -retention=-1s " + store, "-retention"},
		{"resolve " + id + " -not-executed -status 201 " + store, "-status goes with"},
		{"resolve " + id + " -done - " + store, "set -yes"},
		{"purge -batch 0 " + store, "at least 1"},
		{"purge -max -1 " + store, "-max is -1"},
		{"stats extra " + store, "no other arguments"},
		{"migrate extra " + store, "no other arguments"},
		{"purge extra " + store, "no other arguments"},
	} {
		got := idemWith(t, strings.NewReader(""), strings.Fields(tt.args)...)
		if got.code != exitUsage || !strings.Contains(got.errOut, tt.says) || got.out != "" {
			t.Errorf("idem %s: %+v, want exit 2 and %q", tt.args, got, tt.says)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Setenv(storeEnv, "postgres://u:secret@h/db")
	for _, args := range []string{"help", "-h", "help stale", "stale -h", "help resolve", "help show", "purge --help", "help migrate", "stats -help"} {
		got := idemWith(t, nil, strings.Fields(args)...)
		if got.code != exitOK || !strings.Contains(got.out, "-store") || got.errOut != "" || strings.Contains(got.out, "secret") {
			t.Errorf("idem %s: %+v", args, got)
		}
	}
}

// TestStoreFromEnvironment: the URL may stand in IDEM_STORE, and a flag outranks
// it.
func TestStoreFromEnvironment(t *testing.T) {
	w := newWorld(t)
	t.Setenv(storeEnv, w.url)
	if got := idemWith(t, nil, "stale"); got.code != exitOK {
		t.Errorf("%+v", got)
	}
	if got := idemWith(t, nil, "stale", "-store=oracle:x"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}

// TestNoPassword: no output has the password of the URL, however it is wrong.
func TestNoPassword(t *testing.T) {
	for _, u := range []string{
		"postgres://u:s3cret@127.0.0.1:1/db?sslmode=disable&connect_timeout=1", "postgres://u:s3cret@h:port/db",
		"postgres://127.0.0.1:1/db?sslmode=disable&user=u&password=s3cret", "postgres:postgres://u:s3cret@127.0.0.1:1/db",
		"redis://:s3cret@127.0.0.1:1/0", "redis://:s3cret@h:port/0", "redis://:s3c/ret@127.0.0.1:1/0",
		"mysql://u:s3cret@127.0.0.1:1/db", "mysql:u:s3cret@tcp(127.0.0.1:1)/db", "mysql:u:s3c@ret@tcp(127.0.0.1:1)/db", "mysql://u:s3cret@h:port/db",
		"u:s3cret@host",
	} {
		for _, args := range []string{"stale", "show 0123456789", "resolve 0123456789 -not-executed -yes", "purge", "migrate", "stats"} {
			got := idemWith(t, strings.NewReader("n\n"), append(strings.Fields(args), "-store", u)...)
			if got.code == exitOK || strings.Contains(got.out+got.errOut, "s3c") {
				t.Errorf("idem %s on %s: %+v", args, u, got)
			}
		}
	}
}

// TestMisspeltPath: only migrate makes a file of SQLite.
func TestMisspeltPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "typo.db")
	for _, args := range []string{"stale", "show 0123456789", "resolve 0123456789 -not-executed -yes", "purge -yes", "stats"} {
		got := idemWith(t, nil, append(strings.Fields(args), "-store", "sqlite:"+path+"?_pragma=foreign_keys(1)")...)
		if got.code != exitFailed || !strings.Contains(got.errOut, path) || !strings.Contains(got.errOut, "check the URL") {
			t.Errorf("idem %s: %+v", args, got)
		}
	}
	if found, _ := filepath.Glob(path + "*"); len(found) > 0 {
		t.Errorf("it made %s", found)
	}
}

// TestInterrupted: a command ends with its context, also while it waits for an
// answer.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	w.unresolved()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	in, typed := io.Pipe()
	defer typed.Close()
	code := make(chan int)
	go func() {
		code <- runUntil(ctx, []string{"purge", "-store", w.url}, in, io.Discard, writerFunc(func(p []byte) {
			if strings.Contains(string(p), "[y/N]") {
				close(asked)
			}
		}))
	}()
	<-asked
	cancel()
	if got := <-code; got != exitFailed {
		t.Errorf("exit %d", got)
	}
	for _, args := range []string{"stale", "stats", "purge -yes", "show 0123456789"} {
		var errOut strings.Builder
		got := runUntil(ctx, append(strings.Fields(args), "-store", w.url), nil, io.Discard, &errOut)
		if got != exitFailed || !strings.Contains(errOut.String(), "interrupted") {
			t.Errorf("idem %s: exit %d, %s", args, got, errOut.String())
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }
