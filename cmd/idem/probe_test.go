package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/server"
)

const chargeBody = `{"reference":"o1","amount":100,"currency":"EUR"}`

// fakes answer as provider's fixtures say, and as the sources of the contracts.
func fakes() map[string]struct {
	*fakeEndpoint
	args []string
} {
	type fake = struct {
		*fakeEndpoint
		args []string
	}
	charge := numbered(200, `{"id":"ch_%d","object":"charge"}`)
	return map[string]fake{
		"stripe": {&fakeEndpoint{
			header: "Idempotency-Key", marker: "Idempotent-Replayed", answer: charge,
			tooLong:  fakeReply{400, `{"error":{"type":"invalid_request_error"}}`},
			mismatch: fakeReply{400, `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters they were first used with."}}`},
			inFlight: fakeReply{409, `{"error":{"code":"idempotency_key_in_use","type":"idempotency_error"}}`},
		}, nil},
		"paypal": {&fakeEndpoint{
			header: "PayPal-Request-Id", answer: numbered(201, `{"id":"5O%d","status":"CREATED"}`),
			repeat:   fakeReply{200, `{ANSWER,"update_time":"later"}`},
			tooLong:  fakeReply{400, `{"name":"INVALID_REQUEST"}`},
			inFlight: fakeReply{409, `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`},
		}, []string{"-key-header", "paypal-request-id"}},
		"square": {&fakeEndpoint{
			field: "idempotency_key", answer: numbered(200, `{"payment":{"id":"p%d"}}`),
			missing:  fakeReply{400, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"MISSING_REQUIRED_PARAMETER"}]}`},
			tooLong:  fakeReply{400, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"VALUE_TOO_LONG"}]}`},
			mismatch: fakeReply{400, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED"}]}`},
		}, []string{"-key-field", "idempotency_key"}},
		"adyen": {&fakeEndpoint{
			header: "Idempotency-Key", answer: numbered(200, `{"pspReference":"88%d","resultCode":"Authorised"}`),
			inFlight: fakeReply{422, `{"status":422,"errorCode":"704","message":"request already processed or in progress","errorType":"validation"}`},
		}, nil},
		"draft": {&fakeEndpoint{
			header: "Idempotency-Key", quotes: true, onlyQuoted: true, answer: numbered(201, `{"id":%d}`),
			missing:  fakeReply{400, `{"title":"Idempotency-Key is missing"}`},
			mismatch: fakeReply{422, `{"title":"Idempotency-Key is already used"}`},
			inFlight: fakeReply{409, `{"title":"A request is outstanding for this Idempotency-Key"}`},
		}, nil},
		"moderntreasury": {&fakeEndpoint{
			header: "Idempotency-Key", answer: numbered(201, `{"id":"po-%d"}`), inFlight: fakeReply{409, `{}`},
		}, nil},
		"gocardless": {&fakeEndpoint{
			header: "Idempotency-Key", answer: numbered(201, `{"payments":{"id":"PM%d"}}`),
			repeat: fakeReply{409, `{"error":{"type":"invalid_state","code":409,"errors":[{"reason":"idempotent_creation_conflict"}]}}`},
		}, nil},
		// It looks keys up, but does not claim them, and cuts them off.
		"racy": {&fakeEndpoint{header: "Idempotency-Key", racy: true, most: 255, answer: charge}, nil},
	}
}

// TestProbeFakes: what is printed of each fake is what it does.
func TestProbeFakes(t *testing.T) {
	for name, f := range fakes() {
		t.Run(name, func(t *testing.T) {
			f.records = map[string]*fakeRecord{}
			got := probeAt(t, f, f.hold, append(f.args, "-body", chargeBody)...)
			if got.code != exitOK || f.asked > maxProbes {
				t.Errorf("exit %d, %d requests: %s", got.code, f.asked, got.errOut)
			}
			golden(t, "probe_"+name+".txt", got.out)
		})
	}
}

// TestProbeJSON: the same as JSON, and nothing else on standard output.
func TestProbeJSON(t *testing.T) {
	f := fakes()["stripe"]
	f.records = map[string]*fakeRecord{}
	got := probeAt(t, f, f.hold, "-body", chargeBody, "-json")
	golden(t, "probe_stripe.json", got.out)
	if got.report.Requests != f.asked || got.report.AtMost != maxProbes || !got.report.Complete {
		t.Errorf("%d requests: %+v", f.asked, got.report)
	}
	if !strings.HasPrefix(got.errOut, "at most 15 requests: POST http://endpoint/charges\n 1: a first request\n") ||
		!strings.Contains(got.errOut, "5: another body under the first key, with another amount\n") {
		t.Errorf("standard error: %s", got.errOut)
	}
}

// TestProbeServerHalf probes the handler of the quickstart, and counts in its
// ledger what was taken for one operation. Duplicates are refused, or wait.
func TestProbeServerHalf(t *testing.T) {
	for name, cfg := range map[string]idemtest.ProviderConfig{"nowait": {Wait: server.NoWait}, "wait": {}} {
		t.Run(name, func(t *testing.T) {
			var held atomic.Bool
			var came atomic.Int32
			others := make(chan struct{})
			count := func() {
				if held.Load() && came.Add(1) == atOnce-1 {
					close(others)
				}
			}
			cfg.BeforeEffect = func(context.Context, idemtest.Charge) {
				if held.Load() {
					if name == "wait" {
						count() // four have come, this one among them
					}
					<-others
				}
			}
			p, err := idemtest.NewProvider(cfg)
			if err != nil {
				t.Fatal(err)
			}
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if name == "wait" {
					count()
				}
				p.ServeHTTP(w, r)
				if name == "nowait" {
					count()
				}
			})
			got := probeAt(t, h, func() { held.Store(true) }, "-body", chargeBody)
			golden(t, "probe_server_"+name+".txt", got.out)
			// First, another key, another body, and those at once.
			if n := p.Ledger().Count("o1"); n != 4 || got.code != exitOK {
				t.Errorf("%d charges, exit %d, %s", n, got.code, got.errOut)
			}
			if err := p.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestProbeWithoutKeys: a handler that knows no keys does every request.
func TestProbeWithoutKeys(t *testing.T) {
	f := &fakeEndpoint{header: "none", answer: numbered(201, `{"id":%d}`)}
	got := probeAt(t, f, nil, "-body", chargeBody)
	golden(t, "probe_without.txt", got.out)
	if f.done != f.asked || got.code != exitOK {
		t.Errorf("%d of %d, exit %d", f.done, f.asked, got.code)
	}
}

// TestProbeCannotTell: answers that do not tell two operations apart prove
// nothing, whatever the endpoint does, and neither do those that differ in what
// names nothing.
func TestProbeCannotTell(t *testing.T) {
	for name, tt := range map[string]struct {
		header string
		answer func(int) fakeReply
		repeat fakeReply
		want   probeVerdict
		seen   string
	}{
		"honoured, all alike":   {"Idempotency-Key", alikeEach, fakeReply{}, cannotTell, "another key gets it too"},
		"ignored, all alike":    {"none", alikeEach, fakeReply{}, cannotTell, "another key gets it too"},
		"ignored, a counter":    {"none", numbered(200, `{"served":%d}`), fakeReply{}, cannotTell, "served, which names nothing"},
		"ignored, request ids":  {"none", numbered(200, `{"request_id":"r%d"}`), fakeReply{}, cannotTell, "request_id, which names nothing"},
		"ignored, plain text":   {"none", numbered(200, `done %d`), fakeReply{}, cannotTell, "its text, which names nothing"},
		"ignored, ids in lists": {"none", numbered(200, `{"lines":[{"lineId":"l%d"}]}`), fakeReply{}, doesNot, "lines.0.lineId is another"},
		"honoured, plain text":  {"Idempotency-Key", numbered(200, `done %d`), fakeReply{}, honours, "its text"},
		"limited":               {"Idempotency-Key", numbered(200, `{"id":%d}`), fakeReply{429, ``}, cannotTell, "429"},
		"failing":               {"Idempotency-Key", numbered(200, `{"id":%d}`), fakeReply{503, ``}, cannotTell, "503"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeEndpoint{header: tt.header, answer: tt.answer, repeat: tt.repeat, records: map[string]*fakeRecord{}}
			got := probeAt(t, f, nil, "-body", chargeBody, "-json")
			if pt := got.point(t, "repeat"); pt.Verdict != tt.want || !strings.Contains(pt.Seen, tt.seen) || got.report.Honours != tt.want {
				t.Errorf("%+v", got.report)
			}
		})
	}
}

func alikeEach(int) fakeReply { return fakeReply{200, `{"ok":true}`} }

// TestProbeEcho: an endpoint that only echoes the key does not honour it.
func TestProbeEcho(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write(w, fakeReply{200, `{"id":"` + strings.Trim(r.Header.Get("Idempotency-Key"), `"`) + `"}`})
	})
	got := probeAt(t, h, nil, "-body", chargeBody, "-json")
	if got.report.Honours != cannotTell {
		t.Errorf("%+v", got.report)
	}
}

// TestProbeOtherBodyRefused: a 422 that a fresh key gets too is none for the key.
func TestProbeOtherBodyRefused(t *testing.T) {
	f := &fakeEndpoint{header: "Idempotency-Key", answer: numbered(201, `{"id":%d}`), records: map[string]*fakeRecord{}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != int64(len(chargeBody)) {
			write(w, fakeReply{422, `{"code":"bad_amount"}`})
			return
		}
		f.ServeHTTP(w, r)
	})
	got := probeAt(t, h, nil, "-body", chargeBody, "-other-body", `{"amount":-1}`, "-json")
	if pt := got.point(t, "mismatch"); pt.Verdict != cannotTell || !strings.Contains(pt.Seen, "bad_amount") {
		t.Errorf("%+v", pt)
	}
}

// TestShipped: no contract of package provider is left out.
func TestShipped(t *testing.T) {
	names := map[string]bool{}
	for _, c := range shipped() {
		names[c.name] = true
	}
	files, err := filepath.Glob("../../provider/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				for _, s := range g.Specs {
					if name := "provider." + s.(*ast.ValueSpec).Names[0].Name; !names[name] {
						t.Errorf("%s is missing", name)
					}
					found++
				}
			}
		}
	}
	if found != len(names)-1 { // and idem.IETF
		t.Errorf("%d contracts in package provider, %d here", found, len(names)-1)
	}
}
