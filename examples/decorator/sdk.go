package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/idem-go/idem/idemtest"
)

// SDK stands for a payment provider's own client. It knows nothing of idem, and
// sends the key that it is given.
type SDK struct {
	URL  string
	HTTP *http.Client
}

// SDKError is a refusal by the provider.
type SDKError struct{ Status int }

func (e *SDKError) Error() string { return fmt.Sprintf("sdk: the provider answered %d", e.Status) }

// Charge charges the card and returns the charge's ID.
func (s *SDK) Charge(ctx context.Context, key, reference, card string) (string, error) {
	body := strings.NewReader(fmt.Sprintf(`{"reference": %q, "card": %q, "amount": 1200, "currency": "EUR"}`, reference, card))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/charges", body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return "", &SDKError{resp.StatusCode}
	}
	var c idemtest.Charge
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
		return "", err
	}
	return c.ID, nil
}

// loseFirstReply lets the provider do its work, and loses its first reply.
func loseFirstReply() idemtest.Plan {
	var requests atomic.Int64
	return func(string, int) idemtest.Fault {
		if requests.Add(1) == 1 {
			return idemtest.LoseReply
		}
		return idemtest.Pass
	}
}
