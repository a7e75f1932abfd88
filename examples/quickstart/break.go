package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// breaks are the protections that -break takes out. It does so from outside,
// by what it puts around the store or on the wire: the library has no switch
// for it.
var breaks = map[string]string{
	"claims":      "the server's store grants every claim",
	"key":         "every attempt gets a fresh key on its way",
	"fence":       "the server's store lets an owner go on whom another one has replaced",
	"fingerprint": "both stores take all payloads for the same",
}

func breakServerStore(broken string, store keystore.Store) keystore.Store {
	switch broken {
	case "claims":
		return grantAll{store}
	case "fence":
		return unfenced{store}
	case "fingerprint":
		return sameFingerprint{store}
	}
	return store
}

func breakClientStore(broken string, store keystore.Store) keystore.Store {
	if broken == "fingerprint" {
		return sameFingerprint{store}
	}
	return store
}

func breakWire(broken string, base http.RoundTripper) http.RoundTripper {
	if broken == "key" {
		return freshKeys{base}
	}
	return base
}

// grantAll grants every claim. The store knows nothing of the owners that it
// adds, so what they write goes nowhere.
type grantAll struct{ keystore.Store }

func (g grantAll) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	c, err := g.Store.Claim(ctx, p)
	if err == nil && c.Status != keystore.Acquired {
		c.Status, c.Owner = keystore.Acquired, keystore.Owner{}
	}
	return c, err
}

func (g grantAll) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	if o == (keystore.Owner{}) {
		return nil
	}
	return g.Store.Renew(ctx, o, p)
}

func (g grantAll) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	if o == (keystore.Owner{}) {
		return nil
	}
	return g.Store.Complete(ctx, o, p)
}

func (g grantAll) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	if o == (keystore.Owner{}) {
		return nil
	}
	return g.Store.Release(ctx, o, p)
}

// unfenced lets an owner go on that was replaced.
type unfenced struct{ keystore.Store }

func (u unfenced) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	return ignoreFence(u.Store.Renew(ctx, o, p))
}

func (u unfenced) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	return ignoreFence(u.Store.Complete(ctx, o, p))
}

func ignoreFence(err error) error {
	if errors.Is(err, keystore.ErrFenced) {
		return nil
	}
	return err
}

// sameFingerprint gives every claim the same fingerprint.
type sameFingerprint struct{ keystore.Store }

func (f sameFingerprint) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	p.Fingerprint = [32]byte{}
	return f.Store.Claim(ctx, p)
}

// freshKeys gives every attempt a key of its own.
type freshKeys struct{ http.RoundTripper }

func (f freshKeys) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Idempotency-Key", string(idem.NewKey()))
	return f.RoundTripper.RoundTrip(req)
}

// stalling is the store of a process that stalls: until resume is closed, its
// renewals hang. An announced effect is not a mere renewal.
type stalling struct {
	keystore.Store
	resume chan struct{}
}

func (s stalling) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	if !p.Begun {
		select {
		case <-s.resume:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Store.Renew(ctx, o, p)
}
