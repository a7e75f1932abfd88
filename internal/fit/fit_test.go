package fit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	"go.uber.org/goleak"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newServer(t *testing.T) *server.Server {
	t.Helper()
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Config{Store: store, Effects: server.Marked, Scope: server.SingleTenant})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// shop is the application behind each router: it knows the path's parameter by
// the router's own means, and the key by the context.
type shop struct{ orders atomic.Int64 }

func (s *shop) take(r *http.Request, id string) (int, string) {
	if err := server.BeginEffect(r.Context()); err != nil {
		return http.StatusServiceUnavailable, err.Error()
	}
	key, _ := idem.KeyFrom(r.Context())
	return http.StatusCreated, fmt.Sprintf("order %d of %s under %s", s.orders.Add(1), id, key)
}

// routers mount the shop behind the key layer.
var routers = map[string]func(*server.Server, *shop) http.Handler{
	"net/http": func(srv *server.Server, s *shop) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /shops/{id}/orders", srv.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, text := s.take(r, r.PathValue("id"))
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		})))
		return mux
	},
	"net/http around the mux": func(srv *server.Server, s *shop) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /shops/{id}/orders", func(w http.ResponseWriter, r *http.Request) {
			status, text := s.take(r, r.PathValue("id"))
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		})
		return srv.Handler(mux)
	},
	"chi": func(srv *server.Server, s *shop) http.Handler {
		r := chi.NewRouter()
		r.Use(middleware.Recoverer, middleware.Compress(5))
		r.Route("/shops/{id}", func(r chi.Router) {
			r.With(func(next http.Handler) http.Handler { return srv.Handler(next) }).Post("/orders", func(w http.ResponseWriter, r *http.Request) {
				status, text := s.take(r, chi.URLParam(r, "id"))
				w.WriteHeader(status)
				fmt.Fprint(w, text)
			})
		})
		return r
	},
	"echo": func(srv *server.Server, s *shop) http.Handler {
		e := echo.New()
		e.POST("/shops/:id/orders", func(c echo.Context) error {
			status, text := s.take(c.Request(), c.Param("id"))
			return c.String(status, text)
		}, echo.WrapMiddleware(func(next http.Handler) http.Handler { return srv.Handler(next) }))
		return e
	},
}

func post(h http.Handler, path, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Under every router: the parameters of the path arrive, a retry is replayed,
// another payload and another path are refused, and a failure is as the router
// makes it.
func TestRouters(t *testing.T) {
	for name, mount := range routers {
		t.Run(name, func(t *testing.T) {
			s := &shop{}
			h := mount(newServer(t), s)
			first, second := post(h, "/shops/7/orders", "k1", `{"a":1}`), post(h, "/shops/7/orders", "k1", `{"a":1}`)
			const want = "order 1 of 7 under k1"
			if first.Code != 201 || first.Body.String() != want || first.Header().Get("Idempotent-Replayed") != "false" {
				t.Errorf("first: %d %q %v", first.Code, first.Body, first.Header())
			}
			if second.Code != 201 || second.Body.String() != want || second.Header().Get("Idempotent-Replayed") != "true" {
				t.Errorf("retry: %d %q %v", second.Code, second.Body, second.Header())
			}
			if first.Header().Get("Content-Type") != second.Header().Get("Content-Type") {
				t.Errorf("content types %q and %q", first.Header().Get("Content-Type"), second.Header().Get("Content-Type"))
			}
			if w := post(h, "/shops/7/orders", "k1", `{"a":2}`); w.Code != 422 {
				t.Errorf("another payload: %d", w.Code)
			}
			if w := post(h, "/shops/8/orders", "k1", `{"a":1}`); w.Code != 422 {
				t.Errorf("another path: %d", w.Code)
			}
			if w := post(h, "/shops/8/orders", "k2", `{"a":1}`); w.Code != 201 || w.Body.String() != "order 2 of 8 under k2" {
				t.Errorf("another order: %d %q", w.Code, w.Body)
			}
			if n := s.orders.Load(); n != 2 {
				t.Errorf("%d orders", n)
			}
		})
	}
}

// An error that a handler returns, echo answers only after all middleware: the
// key layer would see a handler that wrote nothing, which is a success. So the
// error has to be answered within.
func TestEchoError(t *testing.T) {
	srv := newServer(t)
	protect := echo.WrapMiddleware(func(next http.Handler) http.Handler { return srv.Handler(next) })
	within := func(next echo.HandlerFunc) echo.HandlerFunc {
		return protect(func(c echo.Context) error {
			if err := next(c); err != nil {
				c.Error(err)
			}
			return nil
		})
	}
	e := echo.New()
	runs := 0
	e.POST("/orders", func(c echo.Context) error {
		if runs++; runs == 1 {
			return echo.NewHTTPError(http.StatusServiceUnavailable, "try again")
		}
		return echo.NewHTTPError(http.StatusPaymentRequired, "declined")
	}, within)
	for i, want := range []int{503, 402, 402} {
		if w := post(e, "/orders", "k", `{}`); w.Code != want || (i == 2) != (w.Header().Get("Idempotent-Replayed") == "true") {
			t.Errorf("request %d: %d %q %v", i+1, w.Code, w.Body, w.Header())
		}
	}
	if runs != 2 {
		t.Errorf("ran %d times", runs)
	}
}
