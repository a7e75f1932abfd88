package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/sony/gobreaker/v2"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// payments are made at the first provider, and at the second one if the first
// has definitely not taken them.
type payments struct {
	client        *idem.Client
	first, second *gate
	validated     int
}

// gate is a provider behind a circuit breaker.
type gate struct {
	url     string
	http    *http.Client
	breaker *gobreaker.CircuitBreaker[idemtest.Charge]
}

// pay is one intent. All that guards or replaces a call stands inside of it: a
// caller who joins, or gets the stored result, starts none of it.
func (p *payments) pay(ctx context.Context, c idemtest.Charge) (idem.Result[idemtest.Charge], error) {
	return idem.Do(ctx, p.client, idem.Intent{ID: c.Reference, Payload: c}, func(ctx context.Context, key idem.Key) (idemtest.Charge, error) {
		p.validated++
		if c.Amount <= 0 {
			return idemtest.Charge{}, idem.Rejected(fmt.Errorf("the amount is %d", c.Amount))
		}
		done, err := p.at(ctx, p.first, key.Child("first"), c)
		if errors.Is(err, idem.ErrNotExecuted) || errors.Is(err, idem.ErrRejected) {
			done, err = p.at(ctx, p.second, key.Child("second"), c)
		}
		// After an unknown outcome the second provider is not asked: the first
		// may have charged. That sticks to the step's record, also when its
		// breaker is open the next time, or its process is another one.
		return done, err
	})
}

// at is the step at one provider, under a key of its own.
func (p *payments) at(ctx context.Context, g *gate, key idem.Key, c idemtest.Charge) (idemtest.Charge, error) {
	res, err := idem.Do(ctx, p.client, idem.Intent{Scope: "acme/pay/steps", Key: key, Payload: c}, func(ctx context.Context, _ idem.Key) (idemtest.Charge, error) {
		done, err := g.breaker.Execute(func() (idemtest.Charge, error) { return g.send(ctx, c) })
		if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
			err = idem.NotExecuted(err) // by this attempt
		}
		return done, err
	})
	return res.Value, err
}

func (g *gate) send(ctx context.Context, c idemtest.Charge) (done idemtest.Charge, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return done, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return done, err
	}
	resp, err := g.http.Do(req)
	if err != nil {
		return done, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return done, &idem.ResponseError{StatusCode: resp.StatusCode}
	}
	return done, json.NewDecoder(resp.Body).Decode(&done)
}
