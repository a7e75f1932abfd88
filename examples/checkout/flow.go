//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// order is what a customer wants.
type order struct {
	ID    string
	Cents int
}

// ending is how a checkout ended. That the card was declined is a result of the
// flow, not a failure of it: it is recorded, and a restart comes to the same.
type ending struct {
	Order   string
	Refused string
}

// shop carries checkouts out: three steps at three services, and one that takes
// the first one back.
type shop struct {
	client   *idem.Client
	http     *http.Client
	services string // their URL
	at       func(point string)
}

func newShop(store keystore.Store, services string, base http.RoundTripper, at func(string)) (*shop, error) {
	client, err := idem.New(idem.Config{
		Store: store, Scope: "checkout",
		// A process that was killed keeps its claims for so long.
		Lease: 300 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return &shop{client, &http.Client{Transport: client.Transport(base)}, services, at}, nil
}

// checkout is one intent, named by the order. Run it again after a crash, with
// the same order: it goes on where it was.
func (s *shop) checkout(ctx context.Context, o order) (idem.Result[ending], error) {
	return idem.Do(ctx, s.client, idem.Intent{ID: o.ID, Payload: o}, func(ctx context.Context, key idem.Key) (ending, error) {
		if err := s.step(ctx, key, "reserve", o); err != nil {
			return ending{}, err
		}
		switch err := s.step(ctx, key, "charge", o); {
		case errors.Is(err, idem.ErrRejected):
			// Definitely not charged. What was done before is taken back, by a
			// step of its own, which must happen once as well.
			return ending{Refused: "the card was declined"}, s.step(ctx, key, "release", o)
		case err != nil:
			// Perhaps charged: nothing may be taken back yet.
			return ending{}, err
		}
		return ending{Order: o.ID}, s.step(ctx, key, "order", o)
	})
}

// step is an intent of its own, named by a child of the flow's key. One that is
// done is answered from its record when the flow runs again; one of which nobody
// knows is sent again under its key.
func (s *shop) step(ctx context.Context, flow idem.Key, name string, o order) error {
	s.at(name + ":before")
	in := idem.Intent{Scope: "checkout/steps", Key: flow.Child(name), Payload: o}
	_, err := idem.Do(ctx, s.client, in, func(ctx context.Context, _ idem.Key) (string, error) {
		body, err := json.Marshal(o)
		if err != nil {
			return "", err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.services+"/"+name, bytes.NewReader(body))
		if err != nil {
			return "", err
		}
		resp, err := s.http.Do(req) // puts the step's key on it
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		s.at(name + ":lost") // its reply has not been looked at
		if resp.StatusCode >= 300 {
			return "", &idem.ResponseError{StatusCode: resp.StatusCode}
		}
		return resp.Status, nil
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	s.at(name + ":after")
	return err
}
