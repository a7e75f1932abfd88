package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/keystore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pageOf reads a page of metrics: series to value.
func pageOf(t *testing.T, page []byte) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndex(line, " ")
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatal(err)
		}
		all[line[:at]] = v
	}
	return all
}

// sum adds the series of one name whose labels hold all of these.
func sum(page map[string]float64, name string, labels ...string) (total int) {
next:
	for series, v := range page {
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue next
			}
		}
		total += int(v)
	}
	return total
}

// The page agrees with what was counted elsewhere, number for number: in the
// ledger, on the network, by the provider's listener, by the callers.
func TestMetricsAgree(t *testing.T) {
	const calls = 1000
	for _, seed := range []uint64{1, uint64(time.Now().UnixNano())} {
		t.Logf("seed %d", seed)
		sig, err := newSignals()
		if err != nil {
			t.Fatal(err)
		}
		defer sig.shutdown(context.Background())
		books, err := trade(t.Context(), sig, calls, seed)
		if err != nil {
			t.Fatal(err)
		}
		text, err := sig.page()
		if err != nil {
			t.Fatal(err)
		}
		page := pageOf(t, text)
		unresolved, err := books.store.Records(t.Context(), keystore.Query{Unresolved: true, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		const ops, client, server = "idem_operations_total", `half="client"`, `half="server"`
		charges := books.ledger.Total()
		for what, n := range map[string][2]int{
			"calls":                     {sum(page, ops, client), calls},
			"durations of calls":        {sum(page, "idem_operation_duration_seconds_count", client), calls},
			"charges":                   {sum(page, ops, server, `event="executed"`), charges},
			"claims granted":            {sum(page, "idem_store_duration_seconds_count", `operation="claim"`, `status="acquired"`), charges},
			"effects begun":             {sum(page, "idem_store_duration_seconds_count", `operation="renew"`), charges},
			"completions":               {sum(page, "idem_store_duration_seconds_count", `operation="complete"`), charges},
			"requests at the provider":  {sum(page, ops, server), books.requests},
			"replays of the provider":   {sum(page, ops, server, `event="replayed"`) + sum(page, ops, server, `event="in-flight"`), books.requests - charges},
			"attempts":                  {sum(page, "idem_attempts_total", client), books.attempts},
			"attempts but for the last": {sum(page, "idem_retries_total", client), books.attempts - sum(page, ops, client, `source="executed"`) - withAttempts(t, sig)},
			"unresolved records":        {sum(page, "idem_unresolved"), len(unresolved)},
			"running":                   {sum(page, "idem_operation_active"), 0},
			"lost events":               {sum(page, "idem_events_lost_total"), 0},
			"log lines":                 {len(sig.logs.lines), calls + books.requests},
		} {
			if n[0] != n[1] {
				t.Errorf("%s: the page says %d, it were %d", what, n[0], n[1])
			}
		}
		for told, n := range books.told {
			outcome, source, _ := strings.Cut(told, " ")
			if got := sum(page, ops, client, `outcome="`+outcome+`"`, `source="`+source+`"`); got != n {
				t.Errorf("%s: the page says %d, callers were told it %d times", told, got, n)
			}
		}
		for _, told := range []string{"executed executed", "executed joined", "executed replayed", "rejected none"} {
			if books.told[told] == 0 {
				t.Errorf("nobody was told %s: the run proves nothing about it", told)
			}
		}
	}
}

// withAttempts counts the calls that made attempts, but were no executions of
// their own, by the log.
func withAttempts(t *testing.T, sig *signals) (n int) {
	t.Helper()
	for _, line := range sig.logs.lines {
		var entry struct {
			Idem struct {
				Half, Source string
				Attempts     int
			}
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Idem.Half == "client" && entry.Idem.Attempts > 0 && entry.Idem.Source != "executed" {
			n++
		}
	}
	return n
}

// The command shows a page, log lines of both halves, and a trace.
func TestShow(t *testing.T) {
	var out bytes.Buffer
	if err := show(t.Context(), &out, 300, 1, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`idem_operations_total{event="executed",half="server"`, `"half":"client"`, `"half":"server"`, "idem client", "        idem server"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %s in\n%s", want, &out)
		}
	}
	if err := show(t.Context(), io.Discard, 1, 1, "no address"); err == nil {
		t.Error("a bad -listen is no error")
	}
}

// The dashboard and the alerts ask for metrics that there are.
func TestFilesNameMetrics(t *testing.T) {
	sig, err := newSignals()
	if err != nil {
		t.Fatal(err)
	}
	defer sig.shutdown(context.Background())
	if _, err := trade(t.Context(), sig, 500, 1); err != nil {
		t.Fatal(err)
	}
	text, err := sig.page()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"idem_events_lost_total": true} // only where an observer blocks
	for series := range pageOf(t, text) {
		name, _, _ := strings.Cut(series, "{")
		known[name] = true
	}
	for _, file := range []string{"dashboard.json", "alerts.yml"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`idem_[a-z_]+`).FindAllString(string(content), -1)
		if len(names) < 8 {
			t.Errorf("%s names %d metrics", file, len(names))
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s asks for %s, which is not on the page", file, name)
			}
		}
	}
	content, _ := os.ReadFile("dashboard.json")
	if !json.Valid(content) {
		t.Error("dashboard.json is no JSON")
	}
}
