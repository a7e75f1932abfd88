package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// replayOf carries the intent out, and returns what another process replays.
func replayOf[T any](t *testing.T, cfg idem.Config, value T) (T, error) {
	t.Helper()
	if cfg.Store == nil {
		cfg.Store = newStore(t)
	}
	res, err := idem.Do(t.Context(), newClient(t, cfg), intent, func(context.Context, idem.Key) (T, error) { return value, nil })
	wantSource(t, res, err, idem.SourceExecuted)
	if !reflect.DeepEqual(res.Value, value) {
		t.Fatalf("the caller got %v, want %v", res.Value, value)
	}
	if rec := record(t, cfg.Store); rec.State != keystore.Done {
		t.Fatalf("record %v", rec.State)
	}
	res, err = idem.Do(t.Context(), newClient(t, cfg), intent, never[T](t))
	if res.Outcome != idem.OutcomeExecuted {
		t.Fatalf("outcome %v: %v", res.Outcome, err)
	}
	return res.Value, err
}

func wantReplay[T any](t *testing.T, cfg idem.Config, value T) {
	t.Helper()
	if got, err := replayOf(t, cfg, value); err != nil || !reflect.DeepEqual(got, value) {
		t.Errorf("replay of %v: %v, %v", value, got, err)
	}
}

// money has a marshaller for pointers only.
type money struct{ cents int }

func (m *money) MarshalJSON() ([]byte, error)   { return json.Marshal(m.cents) }
func (m *money) UnmarshalJSON(b []byte) error   { return json.Unmarshal(b, &m.cents) }
func (unstorable) MarshalJSON() ([]byte, error) { return nil, errBoom }
func (*unstorable) UnmarshalJSON([]byte) error  { return nil }

type unstorable struct{ N int }

// oneWay is stored and can't be read.
type oneWay struct{ N int }

func (oneWay) MarshalJSON() ([]byte, error) { return []byte("1"), nil }
func (*oneWay) UnmarshalJSON([]byte) error  { return errBoom }

func TestReplayedResults(t *testing.T) {
	wantReplay(t, idem.Config{}, receipt{"ch_1"})
	wantReplay(t, idem.Config{}, &receipt{"ch_1"})
	wantReplay(t, idem.Config{}, "a text, \ufffd included")
	wantReplay(t, idem.Config{}, 9007199254740993)
	wantReplay(t, idem.Config{}, struct{}{})
	wantReplay(t, idem.Config{}, []byte{0, 255})
	wantReplay(t, idem.Config{}, map[string][]int{"a": {1}})
	wantReplay(t, idem.Config{}, time.Date(2000, 1, 2, 3, 4, 5, 6, time.UTC))
	wantReplay[*receipt](t, idem.Config{}, nil)
	wantReplay(t, idem.Config{}, money{7})
	wantReplay(t, idem.Config{}, []money{{7}, {8}})
}

func TestEncodeDecode(t *testing.T) {
	cfg := idem.Config{
		Encode: func(v any) ([]byte, error) { return []byte(v.(hidden).token), nil },
		Decode: func(b []byte, v any) error { v.(*hidden).token = string(b); return nil },
	}
	wantReplay(t, cfg, hidden{token: "t"})
}

// TestNotRetained: executed, and the caller has the result; what can't be kept
// is a tombstone, and never a second execution.
func TestNotRetained(t *testing.T) {
	lost := func(t *testing.T, err, is error, text string) {
		t.Helper()
		e := wantOutcome(t, err, idem.OutcomeExecuted, is)
		if !strings.Contains(err.Error(), text) || e.Key == "" || errors.Is(err, idem.ErrOutcomeUnknown) {
			t.Errorf("%q, want it to tell of %q", err, text)
		}
	}
	_, err := replayOf(t, idem.Config{MaxResult: 10}, "0123456789")
	lost(t, err, idem.ErrResultNotRetained, "12 bytes, the bound is 10")
	_, err = replayOf(t, idem.Config{}, unstorable{1})
	lost(t, err, idem.ErrResultNotRetained, "boom")
	_, err = replayOf(t, idem.Config{}, "\xff")
	lost(t, err, idem.ErrResultNotRetained, "UTF-8")

	fine := func([]byte, any) error { return nil }
	_, err = replayOf(t, idem.Config{Encode: func(any) ([]byte, error) { return nil, errBoom }, Decode: fine}, 1)
	lost(t, err, idem.ErrResultNotRetained, "boom")
	_, err = replayOf(t, idem.Config{Encode: func(any) ([]byte, error) { panic("encoder") }, Decode: fine}, 1)
	lost(t, err, idem.ErrResultNotRetained, "encoder")

	// The store's own limit.
	store := &hookStore{Store: newStore(t)}
	full := true
	store.hook = func(method string, call func() error) error {
		if method == "complete" && full {
			full = false
			return keystore.ErrTooLarge
		}
		return call()
	}
	_, err = replayOf(t, idem.Config{Store: store}, 1)
	lost(t, err, idem.ErrResultNotRetained, "limit")

	// Kept, and not readable.
	_, err = replayOf(t, idem.Config{}, oneWay{1})
	lost(t, err, idem.ErrResultLost, "boom")
	encode := func(any) ([]byte, error) { return nil, nil }
	_, err = replayOf(t, idem.Config{Encode: encode, Decode: func([]byte, any) error { return errBoom }}, 1)
	lost(t, err, idem.ErrResultLost, "boom")
	_, err = replayOf(t, idem.Config{Encode: encode, Decode: func([]byte, any) error { panic("decoder") }}, 1)
	lost(t, err, idem.ErrResultLost, "decoder")
}

// TestDamagedResult: a done record with an unreadable answer is executed, and
// not executed again.
func TestDamagedResult(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"none":      func([]byte) []byte { return nil },
		"zeros":     func(b []byte) []byte { return make([]byte, len(b)) },
		"cut short": func(b []byte) []byte { return b[:len(b)-1] },
		"one bit":   func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"newer":     func(b []byte) []byte { b[0]++; return b },
	} {
		t.Run(name, func(t *testing.T) {
			mem := newStore(t)
			res, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: mem}), intent, succeed)
			wantSource(t, res, err, idem.SourceExecuted)
			store := &hookStore{Store: mem, onClaim: func(cl *keystore.Claim) { cl.Record.Result = damage(cl.Record.Result) }}
			for range 2 {
				_, err = idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, never[int64](t))
				wantOutcome(t, err, idem.OutcomeExecuted, idem.ErrResultLost)
			}
		})
	}
}
