package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
)

// memory is the store that needs no set-up.
const memory = "memory:"

// scopeOf is the scope of the payments. In a store that is still there after
// the run, the next run must not find its orders paid.
func scopeOf(store string) string {
	if store == memory {
		return "acme/charge"
	}
	return "acme/charge/" + rand.Text()[:8]
}

// lease is how long a server that stalls keeps its claim: as long as a store
// takes for a few calls, even on a busy machine.
func (s *stage) lease() time.Duration {
	if s.options.store == memory {
		return 40 * time.Millisecond
	}
	return 500 * time.Millisecond
}

// store opens a store of its own for one process: behind a URL, a table or
// prefix per process, which the next run uses again.
func (s *stage) store() (keystore.Store, error) {
	s.stores++
	store, err := openStore(s.options.store, s.stores)
	if err != nil {
		return nil, err
	}
	s.atEnd(store.Close)
	return store.Store, nil
}

func openStore(url string, n int) (*storeurl.Opened, error) {
	if url != memory {
		sep := "?"
		if strings.Contains(url, "?") {
			sep = "&"
		}
		url += fmt.Sprintf("%sidem=idem_quickstart_%d", sep, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	store, err := storeurl.Open(context.Background(), url)
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		_ = store.Close()
		return nil, fmt.Errorf("%s: %w", store.Kind, err)
	}
	return store, nil
}

// reach tells why a store can't be used, before a scene needs it.
func reach(url string) error {
	store, err := openStore(url, 1)
	if err != nil {
		return err
	}
	return store.Close()
}
