package server

import (
	"fmt"

	"github.com/idem-go/idem"
)

// Check tells whether the server remembers a key for as long as the client may
// send it (idem.Client.RetryHorizon), where both are configured in one place.
// Its error is idem.ErrConfig: a retry could be taken for a new operation. It
// knows of Config.Retention, not of routes with one of their own.
func (s *Server) Check(client *idem.Client) error {
	if client == nil {
		return badConfig("Check", "was given a nil client")
	}
	if keep, horizon := s.route.retention, client.RetryHorizon(); keep < horizon {
		return badConfig("Retention", fmt.Sprintf("is %v, and the client may send a key for %v after its first send; make it longer, or the client's Contract.Retention shorter", keep, horizon))
	}
	return nil
}
