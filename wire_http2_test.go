package idem_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/idem-go/idem"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// wireH2 speaks HTTP/2 by hand, without TLS.
type wireH2 struct {
	URL string

	mu    sync.Mutex
	steps []wireH2Step
	keys  [][]string
	body  []string
}

// wireH2Step answers one whole request, and tells whether the connection stays
// open.
type wireH2Step func(f *http2.Framer, stream uint32) (open bool)

func wireServeH2(t *testing.T, steps ...wireH2Step) *wireH2 {
	t.Helper()
	s := &wireH2{steps: steps}
	s.URL = "http://" + wireListen(t, s.serve) + "/charges"
	return s
}

// wireBaseH2 is a transport that speaks HTTP/2 from the first byte.
func wireBaseH2(t *testing.T) *http.Transport {
	base := wireBase(t)
	base.Protocols = new(http.Protocols)
	base.Protocols.SetUnencryptedHTTP2(true)
	return base
}

func (s *wireH2) serve(c net.Conn) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if f.WriteSettings() != nil {
		return
	}
	keys, bodies := map[uint32][]string{}, map[uint32][]byte{}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		ended := false
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() && f.WriteSettingsAck() != nil {
				return
			}
		case *http2.MetaHeadersFrame:
			for _, h := range frame.Fields {
				if h.Name == "idempotency-key" {
					keys[id] = append(keys[id], h.Value)
				}
			}
			ended = frame.StreamEnded()
		case *http2.DataFrame:
			bodies[id] = append(bodies[id], frame.Data()...)
			ended = frame.StreamEnded()
		}
		if !ended {
			continue
		}
		s.mu.Lock()
		s.keys, s.body = append(s.keys, keys[id]), append(s.body, string(bodies[id]))
		step := s.steps[min(len(s.keys), len(s.steps))-1]
		s.mu.Unlock()
		if !step(f, id) {
			return
		}
	}
}

func (s *wireH2) requests() (keys [][]string, bodies []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(keys, s.keys...), append(bodies, s.body...)
}

func wireH2Reply(status, body string) wireH2Step {
	return func(f *http2.Framer, id uint32) bool {
		var b bytes.Buffer
		_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: status})
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.Bytes(), EndHeaders: true}) == nil &&
			f.WriteData(id, true, []byte(body)) == nil
	}
}

// wireH2Cut sends a head and a part of the body, and then does what follows.
func wireH2Cut(then wireH2Step) wireH2Step {
	return func(f *http2.Framer, id uint32) bool {
		var b bytes.Buffer
		_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.Bytes(), EndHeaders: true}) == nil &&
			f.WriteData(id, false, []byte("char")) == nil && then(f, id)
	}
}

func wireRST(code http2.ErrCode) wireH2Step {
	return func(f *http2.Framer, id uint32) bool { return f.WriteRSTStream(id, code) == nil }
}

// wireGoAway tells the peer which stream was the last to be processed: this
// one, or the one before.
func wireGoAway(this bool, code http2.ErrCode) wireH2Step {
	return func(f *http2.Framer, id uint32) bool {
		if !this {
			id -= 2
		}
		_ = f.WriteGoAway(id, code, nil)
		return false
	}
}

func wireH2Close(*http2.Framer, uint32) bool { return false }

// wireStreamError receives an HTTP/2 stream error of net/http.
type wireStreamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e wireStreamError) Error() string { return "stream error" }

func TestWireHTTP2(t *testing.T) {
	warm := wireH2Reply("200", "")
	for _, row := range []struct {
		name   string
		step   wireH2Step
		atOnce bool // net/http wanted to send again by itself
		code   http2.ErrCode
	}{
		{name: "B017 REFUSED_STREAM", step: wireRST(http2.ErrCodeRefusedStream), atOnce: true},
		{name: "PROTOCOL_ERROR", step: wireRST(http2.ErrCodeProtocol), atOnce: true},
		{name: "B006 B018 GOAWAY before this stream", step: wireGoAway(false, http2.ErrCodeNo), atOnce: true},
		{name: "B018 GOAWAY after this stream, connection lost", step: wireGoAway(true, http2.ErrCodeNo)},
		{name: "GOAWAY with an error", step: wireGoAway(true, http2.ErrCodeEnhanceYourCalm)},
		{name: "CANCEL", step: wireRST(http2.ErrCodeCancel), code: http2.ErrCodeCancel},
		{name: "INTERNAL_ERROR", step: wireRST(http2.ErrCodeInternal), code: http2.ErrCodeInternal},
		{name: "ENHANCE_YOUR_CALM", step: wireRST(http2.ErrCodeEnhanceYourCalm), code: http2.ErrCodeEnhanceYourCalm},
		{name: "connection lost", step: wireH2Close},
		{name: "B031 body ends in RST_STREAM", step: wireH2Cut(wireRST(http2.ErrCodeInternal)), code: http2.ErrCodeInternal},
		{name: "B031 body ends with the connection", step: wireH2Cut(wireH2Close)},
	} {
		t.Run(row.name, func(t *testing.T) {
			srv := wireServeH2(t, warm, row.step, wireH2Reply("201", "charged"))
			w := wireClient(t, idem.Config{}, wireBaseH2(t))
			w.do(t, wirePost(t, srv.URL))
			res := w.do(t, wirePost(t, srv.URL))
			if res.outcome() != idem.OutcomeExecuted || res.body != "charged" || res.attempts() != 2 {
				t.Fatalf("%v after %d attempts, want executed after 2: %v", res.outcome(), res.attempts(), res.err)
			}
			keys, bodies := srv.requests()
			if r := idem.ReportOf(res.resp); r.WireSends != 2 || len(keys) != 3 {
				t.Fatalf("%d sends and %d requests, want 2 and 3", r.WireSends, len(keys))
			}
			if a, b := keys[1], keys[2]; len(a) != 1 || len(b) != 1 || a[0] != b[0] || a[0] == keys[0][0] {
				t.Errorf("keys %q, then %q; want one key, not that of the call before, %q", a, b, keys[0])
			}
			if bodies[1] != wireBody || bodies[2] != wireBody {
				t.Errorf("bodies %q, then %q", bodies[1], bodies[2])
			}
			a := res.event.Attempts
			if a[0].Outcome != idem.OutcomeUnknown || (a[1].Wait == 0) != row.atOnce {
				t.Errorf("first attempt %v, wait %v; want unknown, repeated at once: %v", a[0].Outcome, a[1].Wait, row.atOnce)
			}
			var stream wireStreamError
			if row.code != 0 && (!errors.As(a[0].Err, &stream) || stream.Code != uint32(row.code)) {
				t.Errorf("error %v has the code %d, want %d", a[0].Err, stream.Code, row.code)
			}
		})
		t.Run(row.name+"/for ever", func(t *testing.T) {
			srv := wireServeH2(t, warm, row.step)
			w := wireClient(t, idem.Config{}, wireBaseH2(t))
			w.do(t, wirePost(t, srv.URL))
			res := w.do(t, wirePost(t, srv.URL))
			keys, _ := srv.requests()
			if res.outcome() != idem.OutcomeUnknown || res.attempts() != wireTries || len(keys) != wireTries+1 {
				t.Errorf("%v after %d attempts and %d requests, want unknown after %d", res.outcome(), res.attempts(), len(keys)-1, wireTries)
			}
		})
		t.Run(row.name+"/without key", func(t *testing.T) {
			srv := wireServeH2(t, warm, row.step)
			w := wireClient(t, idem.Config{Contract: idem.Keyless}, wireBaseH2(t))
			w.do(t, wirePost(t, srv.URL))
			res := w.do(t, wirePost(t, srv.URL))
			keys, _ := srv.requests()
			if res.outcome() != idem.OutcomeUnknown || res.attempts() != 1 || len(keys) != 2 {
				t.Errorf("%v after %d attempts and %d requests, want unknown after 1", res.outcome(), res.attempts(), len(keys)-1)
			}
		})
	}
}

func TestWireHTTP2OverTLS(t *testing.T) {
	var keys, bodies []string
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
		if len(keys) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	res := wireClient(t, idem.Config{}, srv.Client().Transport).do(t, wirePost(t, srv.URL))
	if res.body != "HTTP/2.0" || res.attempts() != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] != keys[2] {
		t.Errorf("%q after %d attempts with the keys %q: %v", res.body, res.attempts(), keys, res.err)
	}
	for _, b := range bodies {
		if b != wireBody {
			t.Errorf("body %q", b)
		}
	}
}
