package main

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idem-go/idem/internal/servertest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servertest.RedisTests(m)) }

// quickstart runs the program and returns its exit status and output.
func quickstart(args ...string) (int, string) {
	var out strings.Builder
	status := run(args, &out)
	return status, out.String()
}

func TestEveryScene(t *testing.T) {
	status, out := quickstart()
	if status != 0 || strings.Contains(out, "WRONG") || strings.Contains(out, "error") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	for i, sc := range scenes {
		if !strings.Contains(out, fmt.Sprintf("%d. %s\n", i+1, sc.name)) {
			t.Errorf("the scene %s was not played", sc.name)
		}
	}
	for line := range strings.Lines(out) {
		if len(line) > 100 || strings.TrimRight(line, " \n")+"\n" != line {
			t.Errorf("too long, or ends with blanks: %q", line)
		}
	}
}

// The scenes come out the same on every store, and again on one that was used
// before.
func TestStores(t *testing.T) {
	postgres, redis, mariadb := servertest.Postgres(t), servertest.Redis(t, servertest.RedisOptions{}), servertest.MariaDB(t, servertest.MariaDBOptions{})
	db, err := sql.Open("mysql", mariadb.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE shop"); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{
		"sqlite:" + filepath.Join(t.TempDir(), "quickstart.db"),
		postgres.URL,
		"redis://" + redis.Addr,
		"mysql://root@" + mariadb.Addr + "/shop",
	} {
		kind, _, _ := strings.Cut(url, ":")
		t.Run(kind, func(t *testing.T) {
			for range 2 {
				if status, out := quickstart("-store=" + url); status != 0 || strings.Contains(out, "error") {
					t.Errorf("exit status %d:\n%s", status, out)
				}
			}
			if status, out := quickstart("-store="+url, "-scene=stalled", "-break=fence"); status != 1 {
				t.Errorf("without its fence: exit status %d:\n%s", status, out)
			}
		})
	}
}

// Each protection that is taken out shows in the scenes that depend on it.
func TestEveryBreak(t *testing.T) {
	for _, tc := range []struct {
		broken string
		scenes []string
	}{
		{"claims", []string{"lost-reply", "concurrent", "changed"}},
		{"key", []string{"lost-reply", "concurrent", "stalled"}},
		{"fence", []string{"stalled"}},
		{"fingerprint", []string{"changed"}},
	} {
		for _, name := range tc.scenes {
			t.Run(tc.broken+"/"+name, func(t *testing.T) {
				status, out := quickstart("-break="+tc.broken, "-scene="+name)
				if status != 1 || !strings.HasSuffix(out, "WRONG: "+name+"\n") || !strings.HasPrefix(out, "broken on purpose") {
					t.Errorf("exit status %d:\n%s", status, out)
				}
			})
		}
	}
}

func TestLostReplyUnderRandomFaults(t *testing.T) {
	for seed := range 30 {
		for _, attempts := range []int{1, 3} {
			status, out := quickstart("-scene=2", fmt.Sprint("-seed=", seed), fmt.Sprint("-attempts=", attempts))
			if status != 0 {
				t.Errorf("seed %d, %d attempts: exit status %d:\n%s", seed, attempts, status, out)
			}
		}
	}
}

func TestOneAttemptIsEnough(t *testing.T) {
	if status, out := quickstart("-attempts=1"); status != 0 {
		t.Errorf("exit status %d:\n%s", status, out)
	}
}

func TestFlags(t *testing.T) {
	for _, url := range []string{"nosuch", "sqlite:", "sqlite:/no/such/folder/idem.db", "postgres://127.0.0.1:1/none", "redis://127.0.0.1:1"} {
		if status, out := quickstart("-store=" + url); status != 2 || !strings.Contains(out, "-store: ") {
			t.Errorf("%s: exit status %d: %s", url, status, out)
		}
	}
	for _, arg := range []string{"-scene=8", "-scene=nosuch", "-break=nosuch", "-attempts=0", "-nosuch", "scene"} {
		if status, out := quickstart(arg); status != 2 || !strings.Contains(out, strings.TrimLeft(arg, "-")[:5]) {
			t.Errorf("%s: exit status %d: %s", arg, status, out)
		}
	}
}
