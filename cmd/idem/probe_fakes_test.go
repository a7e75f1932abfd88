package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// fakeReply is what a fake answers.
type fakeReply struct {
	status int
	body   string
}

// fakeEndpoint is an endpoint that takes keys as one provider does. Its zero
// fields are what it does not do.
type fakeEndpoint struct {
	field, header string // that carries the key
	quotes        bool   // it reads "abc" and abc as one key
	onlyQuoted    bool   // it refuses abc
	most          int    // characters that it looks at; it cuts off the rest
	missing       fakeReply
	tooLong       fakeReply // with more than 255
	mismatch      fakeReply
	inFlight      fakeReply // without, duplicates wait
	repeat        fakeReply // instead of the first answer
	marker        string    // header of a replay
	answer        func(n int) fakeReply
	racy          bool // it looks up, and claims later

	mu      sync.Mutex
	asked   int // requests
	done    int // operations
	held    bool
	arrived int           // of those that came at once
	all     chan struct{} // closed when all have arrived
	records map[string]*fakeRecord
}

type fakeRecord struct {
	body   []byte
	answer fakeReply
	ended  chan struct{}
}

// hold makes the next operation last until all that come at once are there.
func (f *fakeEndpoint) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held, f.all = true, make(chan struct{})
}

// arrive counts those that come at once, when it is settled what becomes of them.
func (f *fakeEndpoint) arrive() {
	if f.held {
		if f.arrived++; f.arrived == atOnce {
			close(f.all)
		}
	}
}

func (f *fakeEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	key, refusal := f.keyOf(r, body)
	f.mu.Lock()
	f.asked++
	rec := f.records[key]
	switch {
	case refusal.status != 0:
		f.mu.Unlock()
		write(w, refusal)
	case rec != nil:
		f.mu.Unlock()
		f.repeated(w, rec, body)
	case key == "":
		f.done++
		n := f.done
		f.mu.Unlock()
		write(w, f.answer(n))
	default:
		rec = &fakeRecord{body: body, ended: make(chan struct{})}
		if !f.racy {
			f.records[key] = rec
		}
		held := f.all
		f.arrive()
		f.mu.Unlock()
		if held != nil {
			<-held
		}
		f.mu.Lock()
		f.done++
		rec.answer = f.answer(f.done)
		f.records[key] = rec
		f.mu.Unlock()
		close(rec.ended)
		write(w, rec.answer)
	}
}

func (f *fakeEndpoint) repeated(w http.ResponseWriter, rec *fakeRecord, body []byte) {
	if f.mismatch.status != 0 && !bytes.Equal(rec.body, body) {
		write(w, f.mismatch)
		return
	}
	ended := f.inFlight.status == 0 // or waited for
	select {
	case <-rec.ended:
		ended = true
	default:
	}
	f.mu.Lock()
	f.arrive()
	f.mu.Unlock()
	if !ended {
		write(w, f.inFlight)
		return
	}
	<-rec.ended
	if f.marker != "" {
		w.Header().Set(f.marker, "true")
	}
	if f.repeat.status != 0 {
		write(w, fakeReply{f.repeat.status, strings.ReplaceAll(f.repeat.body, "ANSWER", strings.Trim(rec.answer.body, "{}"))})
		return
	}
	write(w, rec.answer)
}

// keyOf returns the key, or a refusal.
func (f *fakeEndpoint) keyOf(r *http.Request, body []byte) (string, fakeReply) {
	key := r.Header.Get(f.header)
	if f.field != "" {
		var object map[string]any
		_ = json.Unmarshal(body, &object)
		key, _ = object[f.field].(string)
	}
	if quoted := len(key) > 2 && key[0] == '"'; f.onlyQuoted && !quoted {
		return "", f.missing
	} else if quoted && f.quotes {
		key = key[1 : len(key)-1]
	}
	switch {
	case key == "":
		return "", f.missing
	case f.tooLong.status != 0 && len(key) > 255:
		return "", f.tooLong
	case f.most > 0 && len(key) > f.most:
		key = key[:f.most]
	}
	return key, fakeReply{}
}

func write(w http.ResponseWriter, r fakeReply) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_, _ = io.WriteString(w, r.body)
}

// numbered answers with another id each time.
func numbered(status int, format string) func(int) fakeReply {
	return func(n int) fakeReply { return fakeReply{status, fmt.Sprintf(format, n)} }
}

// probed is one run against an endpoint.
type probed struct {
	answered
	url    string
	report probeReport
}

const consent = "-" + consentFlag

// probeAt probes the handler, and has it hold what comes at once.
func probeAt(t *testing.T, h http.Handler, hold func(), args ...string) probed {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	var out bytes.Buffer
	var errOut strings.Builder
	args = append([]string{"probe", srv.URL + "/charges", consent}, args...)
	code := run(args, nil, &out, writerFunc(func(b []byte) {
		if strings.Contains(string(b), "at once") && hold != nil {
			hold()
		}
		errOut.Write(b)
	}))
	p := probed{answered{code, strings.ReplaceAll(out.String(), srv.URL, "http://endpoint"), strings.ReplaceAll(errOut.String(), srv.URL, "http://endpoint")}, srv.URL, probeReport{}}
	if len(args) > 3 && args[len(args)-1] == "-json" {
		p.report = decode[probeReport](t, p.out)
	}
	return p
}

// point is a point of the report.
func (p *probed) point(t *testing.T, name string) probePoint {
	t.Helper()
	for _, pt := range p.report.Points {
		if pt.Name == name {
			return pt
		}
	}
	t.Fatalf("no point %q in %+v", name, p)
	return probePoint{}
}
