package mysqlstore

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/internal/lincheck"
	"github.com/idem-go/idem/internal/servertest"
)

// The server is killed and comes back in the midst of load. What it had
// answered stays true: no record gets a second winner. Without a binary log
// that would hold for the owners of records only: others see a commit a moment
// before it is on the disk.
func TestServerKilled(t *testing.T) {
	const workers, kills, callsBetween = 8, 2, 300
	t.Parallel()
	server := servertest.MariaDB(t, servertest.MariaDBOptions{
		Durable: true,
		Args:    []string{"--log-bin", "--sync-binlog=1"},
	})
	s := newStore(t, open(t, newDatabase(t, server.DSN(""))+"?interpolateParams=true"), Config{})

	var history lincheck.History
	ids := lincheck.IDs(kills * callsBetween / 20)
	// up holds the channel that is closed when the server is back.
	var up atomic.Pointer[chan struct{}]
	up.Store(new(chan struct{}))
	var succeeded atomic.Int64
	enough, stop := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			w := lincheck.NewWorker(&history, i, s, ids)
			for {
				if w.Call(t.Context()) != nil {
					// One call in the dark is enough.
					select {
					case <-*up.Load():
					case <-stop:
						return
					}
				} else if succeeded.Add(1)%callsBetween == 0 {
					select {
					case enough <- struct{}{}:
					case <-stop:
						return
					}
				}
			}
		})
	}
	for range kills {
		<-enough
		back := make(chan struct{})
		up.Store(&back)
		server.Kill()
		if err := server.Restart(); err != nil {
			t.Error(err)
			break
		}
		close(back)
	}
	if !t.Failed() {
		<-enough
	}
	close(stop)
	wg.Wait()
	history.Check(t)
	if n := history.Len(); n < (kills+1)*callsBetween {
		t.Errorf("the history has %d calls only", n)
	}
}
