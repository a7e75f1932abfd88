package otelobs_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/observe/otelobs"
)

func (s signals) want(t *testing.T, name string, want map[string]float64) {
	t.Helper()
	if got := s.metric(t, name); !maps.Equal(got, want) {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
}

type late struct{ error }

func (late) Timeout() bool { return true }

// The attributes are in the order of their names: event half outcome source.
func TestMetrics(t *testing.T) {
	s := newSignals(t)
	for _, e := range []idem.Event{
		{Name: idem.EventExecuted, Half: "client", Outcome: idem.OutcomeExecuted, Source: idem.SourceExecuted, WireSends: 6, Duration: time.Second, Attempts: []idem.Attempt{
			{Status: 503, Outcome: idem.OutcomeUnknown}, {Status: 429, Outcome: idem.OutcomeNotExecuted}, {Status: 409, Outcome: idem.OutcomeInFlight},
			{Outcome: idem.OutcomeUnknown, Err: late{errors.New("late")}}, {Outcome: idem.OutcomeUnknown, Err: errors.New("reset")}, {Status: 408},
			{Status: 201, Outcome: idem.OutcomeExecuted},
		}},
		{Name: idem.EventJoined, Half: "client", Outcome: idem.OutcomeExecuted, Source: idem.SourceJoined, WireSends: 6},
		{Name: idem.EventReplayed, Half: "server", Outcome: idem.OutcomeExecuted, Source: idem.SourceReplayed, Age: time.Hour, Waited: time.Second, Lost: 3},
		{Name: idem.EventReplayed, Half: "server", Outcome: idem.OutcomeExecuted, Source: idem.SourceReplayed},
	} {
		s.Observe(t.Context(), e)
	}
	s.want(t, "idem.operations", map[string]float64{
		"executed client executed executed": 1, "joined client executed joined": 1, "replayed server executed replayed": 2,
	})
	s.want(t, "idem.operation.duration", map[string]float64{"executed client": 1, "joined client": 1, "replayed server": 2})
	s.want(t, "idem.attempts", map[string]float64{"client executed": 1, "client unknown": 4, "client not-executed": 1, "client in-flight": 1})
	s.want(t, "idem.retries", map[string]float64{
		"client server-error": 1, "client rate-limited": 1, "client in-flight": 1, "client timeout": 1, "client no-reply": 1, "client other-status": 1,
	})
	s.want(t, "idem.wire.sends", map[string]float64{"client": 6})
	s.want(t, "idem.wait.duration", map[string]float64{"server": 1})
	s.want(t, "idem.replay.age", map[string]float64{"server": 1})
	s.want(t, "idem.events.lost", map[string]float64{"server": 3})
}

// Only these names of errors are attributes.
func TestErrorTypes(t *testing.T) {
	for want, err := range map[string]error{
		"payload_mismatch": idem.ErrPayloadMismatch, "key_expired": idem.ErrKeyExpired, "retry_budget": idem.ErrRetryBudget,
		"retry_after": idem.ErrRetryAfterTooLong, "lease_lost": idem.ErrLeaseLost, "result_not_retained": idem.ErrResultNotRetained,
		"result_lost": idem.ErrResultLost, "store": idem.ErrStore, "shutdown": idem.ErrShutdown, "timeout": late{errors.New("late")},
		"_OTHER": errors.New("whatever"),
	} {
		s := newSignals(t)
		s.Observe(t.Context(), idem.Event{Name: idem.EventUnresolved, Half: "client", Err: errors.Join(errors.New("outer"), err)})
		if got := value(s.spans("idem client")[0], "error.type"); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// The server half does not count a client's fault as an error.
func TestErrorStatus(t *testing.T) {
	for _, tt := range []struct {
		half, event string
		failed      bool
	}{
		{"client", idem.EventMismatch, true}, {"server", idem.EventMismatch, false}, {"server", idem.EventRefused, false},
		{"server", idem.EventInFlight, false}, {"server", idem.EventUnresolved, true}, {"server", idem.EventStoreError, true},
		{"server", idem.EventFenced, true}, {"server", idem.EventFailed, true}, {"client", idem.EventRecovered, false},
	} {
		s := newSignals(t)
		s.Observe(t.Context(), idem.Event{Name: tt.event, Half: tt.half, Err: errors.New("x")})
		if span := s.spans("idem " + tt.half)[0]; (value(span, "error.type") != "") != tt.failed {
			t.Errorf("%s at the %s half: error.type %q", tt.event, tt.half, value(span, "error.type"))
		}
	}
}

// strange methods must not make new values.
func TestMethodsAreBounded(t *testing.T) {
	s := newSignals(t)
	for method, want := range map[string][2]string{"PURGE-xyz": {"HTTP", "_OTHER"}, "": {"GET", "GET"}, "POST": {"POST", "POST"}} {
		r, _ := http.NewRequest("GET", "https://shop.example/", nil)
		r.Method = method
		ctx := s.StartAttempt(t.Context(), idem.Attempt{Number: 1}, r)
		s.EndAttempt(ctx, idem.Attempt{Number: 1})
		ended := s.recorder.Ended()
		span := ended[len(ended)-1]
		if span.Name() != want[0] || value(span, "http.request.method") != want[1] || value(span, "server.port") != "443" {
			t.Errorf("%q: span %s of %s at port %s", method, span.Name(), value(span, "http.request.method"), value(span, "server.port"))
		}
	}
}

// faulty fails every call by err, and has the optional interfaces that its
// embedder gives it.
type faulty struct {
	keystore.Store
	err error
}

func (f faulty) Claim(context.Context, keystore.ClaimParams) (keystore.Claim, error) {
	return keystore.Claim{}, f.err
}

func TestStore(t *testing.T) {
	s := newSignals(t)
	store, err := s.Store(newStore(t))
	if err != nil {
		t.Fatal(err)
	}
	p := keystore.ClaimParams{ID: [32]byte{1}, Nonce: [16]byte{1}, Lease: time.Minute, Keep: time.Minute}
	c, err := store.Claim(t.Context(), p)
	if err != nil || c.Status != keystore.Acquired {
		t.Fatal(c.Status, err)
	}
	_ = store.Renew(t.Context(), c.Owner, keystore.RenewParams{Lease: time.Minute})
	_ = store.Complete(t.Context(), c.Owner, keystore.CompleteParams{Result: []byte("x"), Retention: time.Minute})
	p.Nonce[0] = 2
	if c, _ := store.Claim(t.Context(), p); c.Status != keystore.Completed || string(c.Record.Result) != "x" {
		t.Errorf("the replay is %v", c)
	}
	_ = store.Release(t.Context(), c.Owner, keystore.ReleaseParams{How: keystore.Forget})
	if recs, err := store.Records(t.Context(), keystore.Query{}); len(recs) != 1 || err != nil {
		t.Error(recs, err)
	}
	_, _ = store.Purge(t.Context(), 10)
	s.want(t, "idem.store.duration", map[string]float64{
		"claim acquired": 1, "claim completed": 1, "renew": 1, "complete": 1, "fenced release": 1, "records": 1, "purge": 1,
	})
	if _, err := s.Store(nil); !errors.Is(err, idem.ErrConfig) {
		t.Errorf("a nil store: %v", err)
	}
}

func TestStoreErrors(t *testing.T) {
	for want, err := range map[string]error{
		"fenced claim": keystore.ErrFenced, "full claim": keystore.ErrFull, "too_large claim": keystore.ErrTooLarge,
		"corrupt claim": keystore.ErrCorrupt, "format claim": keystore.ErrFormat, "invalid claim": keystore.ErrInvalid,
		"timeout claim": context.DeadlineExceeded, "canceled claim": context.Canceled, "_OTHER claim": errors.New("down"),
	} {
		s := newSignals(t)
		store, _ := s.Store(faulty{err: err})
		if _, got := store.Claim(t.Context(), keystore.ClaimParams{}); !errors.Is(got, err) {
			t.Errorf("the error %v became %v", err, got)
		}
		s.want(t, "idem.store.duration", map[string]float64{want: 1})
	}
}

type waits struct{}

func (waits) Watch([32]byte) (<-chan struct{}, func()) { return nil, func() {} }

type transacts struct{ err error }

func (tx transacts) InTx(ctx context.Context, fn func(context.Context, keystore.Store) error) error {
	if err := fn(ctx, faulty{err: keystore.ErrFull}); err != nil {
		return err
	}
	return tx.err
}

// What a store can do, it can do when it is timed, and no more.
func TestStoreInterfaces(t *testing.T) {
	plain := faulty{}
	for name, tt := range map[string]struct {
		store           keystore.Store
		waits, transact bool
	}{
		"plain": {plain, false, false},
		"waiter": {struct {
			faulty
			waits
		}{}, true, false},
		"tx": {struct {
			faulty
			transacts
		}{}, false, true},
		"both": {struct {
			faulty
			waits
			transacts
		}{}, true, true},
	} {
		store, err := newSignals(t).Store(tt.store)
		_, w := store.(keystore.Waiter)
		_, tx := store.(keystore.Transactor)
		if err != nil || w != tt.waits || tx != tt.transact {
			t.Errorf("%s: waiter %t, transactor %t, %v", name, w, tx, err)
		}
	}
}

func TestTransactions(t *testing.T) {
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		commit, own error
		want        string
	}{
		"committed":   {nil, nil, "transaction"},
		"rolled back": {nil, boom, "transaction rolled-back"},
		"failed":      {keystore.ErrFull, nil, "full transaction"},
	} {
		s := newSignals(t)
		store, _ := s.Store(struct {
			faulty
			transacts
		}{transacts: transacts{tt.commit}})
		err := store.(keystore.Transactor).InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
			_, _ = in.Claim(ctx, keystore.ClaimParams{})
			return tt.own
		})
		if want := errors.Join(tt.commit, tt.own); (err == nil) != (want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		s.want(t, "idem.store.duration", map[string]float64{tt.want: 1, "full claim": 1})
	}
}

// unresolvedStore has records of which nobody knows the outcome.
type unresolvedStore struct {
	keystore.Store
	ages []time.Duration
	err  error
}

func (u *unresolvedStore) Records(_ context.Context, q keystore.Query) ([]keystore.Record, error) {
	if u.err != nil || !q.Unresolved {
		return nil, u.err
	}
	var page []keystore.Record
	for i := int(q.After[0])<<8 + int(q.After[1]); i < len(u.ages) && len(page) < 100; i++ {
		page = append(page, keystore.Record{ID: [32]byte{byte((i + 1) >> 8), byte(i + 1)}, Age: u.ages[i]})
	}
	return page, nil
}

func TestWatchUnresolved(t *testing.T) {
	s := newSignals(t)
	store := &unresolvedStore{}
	stop, err := s.WatchUnresolved(store)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		n      int
		oldest time.Duration
		want   float64
	}{{0, 0, 0}, {1, time.Minute, 1}, {250, time.Hour, 250}, {12_000, time.Hour, 10_000}} {
		store.ages = make([]time.Duration, tt.n)
		if tt.n > 0 {
			store.ages[tt.n/2] = tt.oldest
		}
		s.want(t, "idem.unresolved", map[string]float64{"": tt.want})
		s.want(t, "idem.unresolved.oldest", map[string]float64{"": tt.oldest.Seconds()})
	}
	stop()
	s.want(t, "idem.unresolved", map[string]float64{})
	if _, err := s.WatchUnresolved(nil); !errors.Is(err, idem.ErrConfig) {
		t.Errorf("a nil store: %v", err)
	}
}

// docs/operations.md and the package's documentation name every metric.
func TestDocumentsNameMetrics(t *testing.T) {
	source := map[string]string{}
	for _, name := range []string{"../../docs/operations.md", "otelobs.go", "metrics.go", "unresolved.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source[name] = string(b)
	}
	names := regexp.MustCompile(`"(idem\.[a-z.]+)", (metric|")`).FindAllStringSubmatch(source["metrics.go"]+source["unresolved.go"], -1)
	if len(names) < 12 {
		t.Fatalf("%d metrics; the pattern no longer fits", len(names))
	}
	for _, n := range names {
		if !strings.Contains(source["../../docs/operations.md"], "| `"+n[1]+"` | ") || !strings.Contains(source["otelobs.go"], "//\t"+n[1]+" ") {
			t.Errorf("%s is not in docs/operations.md or in the package's documentation", n[1])
		}
	}
}

// The gauges are of all stores that are watched; one that fails hides nothing.
func TestWatchSeveral(t *testing.T) {
	s := newSignals(t)
	a, b := &unresolvedStore{ages: []time.Duration{time.Minute}}, &unresolvedStore{ages: []time.Duration{time.Hour, 0}}
	for _, store := range []keystore.Store{a, b} {
		if _, err := s.WatchUnresolved(store); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, "idem.unresolved", map[string]float64{"": 3})
	s.want(t, "idem.unresolved.oldest", map[string]float64{"": 3600})
	for _, broken := range []keystore.Store{&unresolvedStore{err: keystore.ErrCorrupt}, panicky{}} {
		s := newSignals(t)
		if _, err := s.WatchUnresolved(broken); err != nil {
			t.Fatal(err)
		}
		var rm metricdata.ResourceMetrics
		if err := s.reader.Collect(t.Context(), &rm); err == nil {
			t.Error("nobody is told")
		}
	}
}

type panicky struct{ keystore.Store }

func (panicky) Records(context.Context, keystore.Query) ([]keystore.Record, error) { panic("store") }

// Two servers with one store have one store.
func TestStoreTwice(t *testing.T) {
	s, store := newSignals(t), newStore(t)
	a, _ := s.Store(store)
	b, _ := s.Store(store)
	other, _ := s.Store(newStore(t))
	if a != b || a == other {
		t.Error("the same store is another one, or another one the same")
	}
}

// A tracer beside it that fails ends no span of anybody else's.
func TestFaultyNeighbour(t *testing.T) {
	s := newSignals(t)
	client, err := idem.New(idem.Config{Scope: "s", Observer: observe.All(s.Observer, faultyTracer{})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, app := s.tracers.Tracer("app").Start(t.Context(), "app")
	if _, err := idem.Do(ctx, client, idem.Intent{ID: "1"}, func(context.Context, idem.Key) (int, error) { return 1, nil }); err != nil {
		t.Fatal(err)
	}
	if !app.IsRecording() {
		t.Error("the application's span was ended")
	}
	app.End()
	if started, ended := len(s.recorder.Started()), len(s.recorder.Ended()); started != 3 || ended != 3 {
		t.Errorf("%d spans were begun, %d ended, want 3", started, ended)
	}
	s.want(t, "idem.operation.active", map[string]float64{"client": 0})
}

type faultyTracer struct{}

func (faultyTracer) Start(context.Context, idem.Event, *http.Request) (context.Context, string) {
	panic("tracer")
}
func (faultyTracer) StartAttempt(context.Context, idem.Attempt, *http.Request) context.Context {
	return nil
}
func (faultyTracer) EndAttempt(context.Context, idem.Attempt) { panic("tracer") }
func (faultyTracer) Observe(context.Context, idem.Event)      { panic("tracer") }

// The global providers do nothing until they are set, and harm nothing.
func TestDefaults(t *testing.T) {
	o, err := otelobs.New(otelobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := idem.New(idem.Config{Scope: "s", Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := idem.Do(t.Context(), client, idem.Intent{ID: "1"}, func(context.Context, idem.Key) (int, error) { return 1, nil }); err != nil || res.Value != 1 {
		t.Error(res, err)
	}
}
