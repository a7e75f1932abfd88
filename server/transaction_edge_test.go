package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// Nothing of the answer leaves before the commit, whatever the handler does.
func TestTransactionHoldsAnswer(t *testing.T) {
	for name, do := range map[string]func(w http.ResponseWriter){
		"flush": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "a")
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("Flush: %v", err)
			}
			_, _ = io.WriteString(w, "b")
		},
		"event stream": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "ab")
		},
		"hijack": func(w http.ResponseWriter) {
			if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("Hijack: %v", err)
			}
			_, _ = io.WriteString(w, "ab")
		},
		"copy": func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("ab")) },
		"just within the bound": func(w http.ResponseWriter) {
			_, _ = w.Write([]byte("ab"))
			_, _ = w.Write(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newTxStore(t)
			h := newServer(t, server.Config{Store: store, Effects: server.Transaction, MaxResponse: 2}).Handler(
				inTx(func(w http.ResponseWriter, _ *http.Request, _ int) { do(w) }))
			w := httptest.NewRecorder()
			store.commit = func(in *tx) error {
				if w.Body.Len() > 0 || w.Flushed || len(w.Header()) > 0 {
					t.Errorf("written before the commit: %v %q", w.Header(), w.Body)
				}
				return in.apply()
			}
			h.ServeHTTP(w, request("k", "{}"))
			wantFirst(t, w, 200, "ab")
			wantReplay(t, post(h, "k", "{}"), 200, "ab")
			store.wantEffects(t, "1")
		})
	}
}

func TestTransactionAnswerTooLarge(t *testing.T) {
	store, seen := newTxStore(t), &events{}
	c := inTx(func(w http.ResponseWriter, _ *http.Request, run int) {
		if run == 1 {
			if _, err := w.Write(make([]byte, 11)); !errors.Is(err, idem.ErrTooLarge) {
				t.Errorf("Write: %v", err)
			}
			if _, err := w.Write([]byte("x")); !errors.Is(err, idem.ErrTooLarge) {
				t.Errorf("the next Write: %v", err)
			}
		}
	})
	h := newServer(t, server.Config{Store: store, Effects: server.Transaction, MaxResponse: 10, Observer: seen}).Handler(c)
	want(t, post(h, "k", "{}"), 500, "answer-too-large")
	if name := seen.names(); name != idem.EventFailed {
		t.Errorf("event %s", name)
	}
	wantFirst(t, post(h, "k", "{}"), 200, "")
	store.wantEffects(t, "2")
}

// An answer that the store has no room for is not kept, but its effect is.
func TestTransactionTombstone(t *testing.T) {
	store := newTxStore(t)
	store.complete = func(p keystore.CompleteParams) error {
		if bytes.Contains(p.Result, []byte("secret")) {
			return keystore.ErrTooLarge
		}
		return nil
	}
	// The fate of the commit is found out for a tombstone too.
	store.commit = func(in *tx) error { return errors.Join(in.apply(), errDown) }
	h := newServer(t, server.Config{Store: store, Effects: server.Transaction}).Handler(inTx(status(201, "secret")))
	wantFirst(t, post(h, "k", "{}"), 201, "secret")
	want(t, post(h, "k", "{}"), 409, "response-not-retained")
	store.wantEffects(t, "1")
}

func TestTransactionMaxRun(t *testing.T) {
	for name, late := range map[string]int{"success": 201, "refusal": 404} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newTxStore(t)
				c := inTx(func(w http.ResponseWriter, r *http.Request, run int) {
					if run > 1 {
						answer(201)(w, r)
						return
					}
					base := store.context()
					<-base.Done() // the database rolls back by itself
					if time.Sleep(time.Second); !errors.Is(context.Cause(r.Context()), server.ErrMaxRun) {
						t.Error(context.Cause(r.Context()))
					}
					w.WriteHeader(late)
				})
				h := newServer(t, server.Config{Store: store, Effects: server.Transaction, MaxRun: time.Minute}).Handler(c)
				want(t, post(h, "k", "{}"), 503, "rolled-back")
				wantFirst(t, post(h, "k", "{}"), 201, "first")
				store.wantEffects(t, "2")
			})
		})
	}
}

// A commit may take longer than a short MaxRun leaves, and its client's
// patience.
func TestTransactionCommitIsNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTxStore(t)
		s := newServer(t, server.Config{Store: store, Effects: server.Transaction, MaxRun: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		store.commit = func(in *tx) error {
			cancel()
			time.Sleep(4 * time.Second)
			if err := store.context().Err(); err != nil {
				return err
			}
			return in.apply()
		}
		v, err := server.Run(ctx, s, idem.Intent{Scope: "q", ID: "1"}, func(ctx context.Context) (int, error) {
			effect(ctx, "1")
			return 7, nil
		})
		if v != 7 || err != nil {
			t.Error(v, err)
		}
		store.wantEffects(t, "1")
	})
}

func TestTransactionCommitHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTxStore(t)
		store.commit = func(*tx) error {
			<-store.context().Done()
			return errDown
		}
		h := newServer(t, server.Config{Store: store, Effects: server.Transaction}).Handler(inTx(status(201, "made")))
		want(t, post(h, "k", "{}"), 503, "rolled-back")
		store.wantEffects(t)
	})
}

func TestTransactionRunCancelled(t *testing.T) {
	store := newTxStore(t)
	s := newServer(t, server.Config{Store: store, Effects: server.Transaction})
	ctx, cancel := context.WithCancel(t.Context())
	v, err := server.Run(ctx, s, idem.Intent{Scope: "q", ID: "1"}, func(ctx context.Context) (int, error) {
		effect(ctx, "1")
		cancel()
		<-ctx.Done()
		return 7, nil
	})
	if v != 0 || !errors.Is(err, idem.ErrNotExecuted) || !errors.Is(err, context.Canceled) {
		t.Error(v, err)
	}
	store.wantEffects(t)
}

func TestTransactionShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTxStore(t)
		s := newServer(t, server.Config{Store: store, Effects: server.Transaction})
		finish := make(chan struct{})
		h := s.Handler(inTx(func(w http.ResponseWriter, r *http.Request, _ int) {
			<-r.Context().Done()
			<-finish
			w.WriteHeader(201)
		}), server.WithWait(time.Hour))
		// One runs. The other waits, and does not learn how that ends.
		codes := make(chan string, 2)
		for range 2 {
			go func() { codes <- code(post(h, "k", "{}")) }()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		began := time.Now()
		if got := <-codes; got != "in-flight" || time.Since(began) > 0 {
			t.Errorf("the one that waits got %s after %v", got, time.Since(began))
		}
		close(finish)
		if got := <-codes; got != "shutting-down" {
			t.Errorf("the one that ran got %s", got)
		}
		store.wantEffects(t)
	})
}

func TestTransactionStoreFails(t *testing.T) {
	for name, tt := range map[string]struct {
		begin func(try int) error
		code  string
		tries int
	}{
		"twice":          {func(try int) error { return map[bool]error{true: errDown}[try < 3] }, "", 3},
		"always":         {func(int) error { return errDown }, "store-unavailable", 3},
		"unreadable":     {func(int) error { return keystore.ErrCorrupt }, "record-unreadable", 1},
		"full":           {func(int) error { return keystore.ErrFull }, "store-unavailable", 3},
		"does not begin": {func(int) error { time.Sleep(10 * time.Second); return errDown }, "store-unavailable", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newTxStore(t)
				store.begin = func() error { return tt.begin(store.transactions()) }
				c := inTx(status(201, "made"))
				h := newServer(t, server.Config{Store: store, Effects: server.Transaction, FailOpen: true}).Handler(c)
				if w := post(h, "k", "{}"); code(w) != tt.code {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
				if n := store.transactions(); n != tt.tries {
					t.Errorf("%d tries", n)
				}
				if (c.runs() == 1) != (tt.code == "") {
					t.Errorf("ran %d times", c.runs())
				}
			})
		})
	}
}

func TestTransactionCompleteFails(t *testing.T) {
	store := newTxStore(t)
	store.complete = func(keystore.CompleteParams) error { return errDown }
	h := newServer(t, server.Config{Store: store, Effects: server.Transaction}).Handler(inTx(status(201, "made")))
	want(t, post(h, "k", "{}"), 503, "rolled-back")
	store.complete = nil
	wantFirst(t, post(h, "k", "{}"), 201, "made")
	store.wantEffects(t, "2")
}

// idle is a store whose transactions do nothing.
type idle struct{ keystore.Store }

func (idle) InTx(context.Context, func(context.Context, keystore.Store) error) error { return nil }

func TestTransactionThatDoesNothing(t *testing.T) {
	c := &counter{}
	h := newServer(t, server.Config{Store: idle{newStore(t)}, Effects: server.Transaction}).Handler(c)
	want(t, post(h, "k", "{}"), 503, "store-unavailable")
	c.want(t, 0)
}

// What another mode has left unresolved stays so.
func TestTransactionMeetsUnresolved(t *testing.T) {
	s := newServer(t, server.Config{Store: newTxStore(t), Effects: server.Transaction})
	c := inTx(status(201, "made"))
	begun := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := server.BeginEffect(r.Context()); err != nil {
			t.Error(err)
		}
		w.WriteHeader(500)
	}), server.WithEffects(server.Marked))
	want(t, post(begun, "k", "{}"), 500, "")
	want(t, post(s.Handler(c), "k", "{}"), 409, "recovery-required")
	c.want(t, 0)
}

// The handler of a request without a key has no transaction.
func TestTransactionOptional(t *testing.T) {
	store := newTxStore(t)
	h := newServer(t, server.Config{Store: store, Effects: server.Transaction, Optional: true}).Handler(&counter{})
	want(t, post(h, "", "{}"), 201, "")
	if store.transactions() != 0 {
		t.Error("it has a transaction")
	}
}

// A nested mount runs in the transaction of the outer one.
func TestTransactionNested(t *testing.T) {
	store := newTxStore(t)
	s := newServer(t, server.Config{Store: store, Effects: server.Transaction})
	h := s.Handler(s.Handler(inTx(status(201, "made"))))
	wantFirst(t, post(h, "k", "{}"), 201, "made")
	store.wantEffects(t, "1")
	if n := store.transactions(); n != 1 {
		t.Errorf("%d transactions", n)
	}
}

// Who has seen another owner at work must not say that nothing was executed.
func TestTransactionStoreFailsBehindAnother(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			store := newTxStore(t)
			finish := make(chan struct{})
			var down atomic.Bool
			store.begin = func() error { return map[bool]error{true: errDown}[down.Load()] }
			c := inTx(func(w http.ResponseWriter, _ *http.Request, _ int) {
				<-finish
				down.Store(true)
				w.WriteHeader(503)
			})
			var mounts []http.Handler
			for range replicas {
				mounts = append(mounts, newServer(t, server.Config{Store: store, Effects: server.Transaction}).Handler(c))
			}
			go post(mounts[0], "k", "{}")
			synctest.Wait()
			time.AfterFunc(time.Second, func() { close(finish) })
			want(t, post(mounts[replicas-1], "k", "{}"), 409, "in-flight")
			c.want(t, 1)
		})
	}
}
