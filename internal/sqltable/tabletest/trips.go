package tabletest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem/keystore"
)

// counter is a driver.Connector that writes down what is sent.
type counter struct {
	driver driver.Driver
	dsn    string

	mu         sync.Mutex
	statements []string
	// lose makes the answers to writes get lost.
	lose bool
}

func (c *counter) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	return countedConn{conn, c}, err
}

func (c *counter) Driver() driver.Driver { return c.driver }

func (c *counter) sent(statement string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statements = append(c.statements, statement)
}

var errLost = errors.New("connection lost")

func (c *counter) loses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lose
}

// losing makes the call and loses the answers to its writes.
func (c *counter) losing(call func()) {
	set := func(lose bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lose = lose
	}
	set(true)
	defer set(false)
	call()
}

// trips returns what the call sends.
func (c *counter) trips(call func()) []string {
	c.mu.Lock()
	c.statements = nil
	c.mu.Unlock()
	call()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statements
}

// countedConn passes on what a connection must be able to do for the tests.
type countedConn struct {
	driver.Conn
	c *counter
}

func (c countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.c.sent(query)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c countedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.c.sent(query)
	res, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	if c.c.loses() && err == nil {
		return nil, errLost
	}
	return res, err
}

func (c countedConn) Prepare(query string) (driver.Stmt, error) {
	c.c.sent("PREPARE " + query)
	return c.Conn.Prepare(query)
}

func (c countedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.c.sent("BEGIN")
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c countedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// counted returns a store in a new database and what writes its calls down.
func (b Backend) counted(t testing.TB) (Store, *counter) {
	dsn := b.NewDSN(t)
	c := &counter{driver: b.connect(t, dsn).Driver(), dsn: dsn}
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	return b.store(t, db), c
}

// roundTrips counts the statements of each call, none of which needs a
// transaction of its own.
func roundTrips(t *testing.T, b Backend) {
	s, c := b.counted(t)
	p, late := params(), params()
	p.Begun = false
	var o, lost keystore.Owner
	status := func(p keystore.ClaimParams, want keystore.Status) func() {
		return func() { o = claim(t, s, p, want).Owner }
	}
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for _, step := range []struct {
		name string
		want string // a letter per statement: r reads, w writes
		call func()
	}{
		{"claim", "rw", status(p, keystore.Acquired)},
		{"renew", "w", func() { must(s.Renew(t.Context(), o, keystore.RenewParams{Lease: long})) }},
		{"begin", "w", func() {
			must(s.Renew(t.Context(), o, keystore.RenewParams{Lease: long, Begun: true, Meta: []byte("new")}))
		}},
		{"claim in flight", "r", func() { claim(t, s, rival(p), keystore.InFlight) }},
		{"abandon", "w", func() {
			lost = o
			must(s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Abandon}))
		}},
		{"claim unresolved", "r", status(rival(p), keystore.Unresolved)},
		{"take-over", "rw", func() {
			r := rival(p)
			r.Takeover = true
			status(r, keystore.Acquired)()
		}},
		{"fenced", "wr", func() {
			b.wantError(t, "renew", s.Renew(t.Context(), lost, keystore.RenewParams{Lease: long}), keystore.ErrFenced)
		}},
		{"complete", "w", func() { complete(t, s, o) }},
		{"complete again", "wr", func() { complete(t, s, o) }},
		{"replay", "r", func() { claim(t, s, rival(p), keystore.Completed) }},
		{"replay of another fingerprint", "r", func() {
			r := rival(p)
			r.Fingerprint[0]++
			claim(t, s, r, keystore.Mismatch)
		}},
		{"claim after a forget", "wrw", func() {
			o := claim(t, s, late, keystore.Acquired).Owner
			c.trips(func() {})
			must(s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Forget}))
			claim(t, s, rival(late), keystore.Acquired)
		}},
		{"records", "r", func() {
			_, err := s.Records(t.Context(), keystore.Query{Unresolved: true})
			must(err)
		}},
	} {
		var got strings.Builder
		sent := c.trips(step.call)
		for _, statement := range sent {
			kind := "w"
			if strings.HasPrefix(statement, "SELECT") {
				kind = "r"
			}
			got.WriteString(kind)
		}
		if got.String() != step.want {
			t.Errorf("%s sends %s, want %s:\n%s", step.name, got.String(), step.want, strings.Join(sent, "\n"))
		}
	}
}
