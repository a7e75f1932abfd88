package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pingEvery is how long a subscription may be silent before it is asked
	// for a sign of life, and then before it counts as lost.
	pingEvery = 10 * time.Second
	// A lost subscription is tried again after a pause that doubles.
	minPause = 50 * time.Millisecond
	maxPause = 5 * time.Second
)

// ErrListening: Listen runs already.
var ErrListening = errors.New("redisstore: Listen runs already")

// Listen makes Watch hear of the changes that other processes make. It runs
// until ctx is done, and returns its error then; run it in a goroutine of its
// own, once per process. It holds one connection, and when that is lost it
// subscribes again, with growing pauses, for as long as it takes: meanwhile,
// and without Listen, waiters poll. See Config.OnListen for what it meets. A
// second Listen beside the first returns ErrListening.
//
// Every process hears of all changes under the prefix, 32 bytes each.
func (s *Store) Listen(ctx context.Context) error {
	if !s.listening.CompareAndSwap(false, true) {
		return ErrListening
	}
	defer s.listening.Store(false)
	pause := minPause
	for ctx.Err() == nil {
		subscribed, err := s.listen(ctx)
		if ctx.Err() != nil {
			break
		}
		s.onListen(fmt.Errorf("redisstore: listen: %w", err))
		if subscribed {
			pause = minPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		pause = min(2*pause, maxPause)
	}
	return ctx.Err()
}

// listen subscribes and wakes waiters until the subscription is lost. It tells
// whether it had one.
func (s *Store) listen(ctx context.Context) (subscribed bool, err error) {
	sub := s.client.Subscribe(ctx, s.channel())
	// Reading does not heed the context.
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = sub.Close()
	})
	defer func() {
		if stop() {
			_ = sub.Close()
		} else {
			<-closed
		}
	}()

	asked := false // for a sign of life
	for {
		msg, err := sub.ReceiveTimeout(ctx, s.pingEvery)
		if isTimeout(err) && !asked {
			asked = true
			err = sub.Ping(ctx)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return subscribed, err
		}
		asked = false
		switch msg := msg.(type) {
		case *redis.Subscription:
			// What was published before is lost, so everybody looks again.
			subscribed = true
			s.watches.wakeAll()
			s.onListen(nil)
		case *redis.Message:
			var id [32]byte
			if copy(id[:], msg.Payload) == len(id) {
				s.watches.wake(id)
			}
		}
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
