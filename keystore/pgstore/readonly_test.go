package pgstore

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore"
)

// A database that can't be written, as after a fail-over, takes no claim from
// its owner, whatever is tried.
func TestReadOnlyKeepsOwners(t *testing.T) {
	writable := newStore(t, newPool(t, serverURL))
	readOnly := openStore(t, newPool(t, serverURL, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	}), writable.cfg)
	p := params()
	o := claim(t, writable, p, keystore.Acquired).Owner
	r := rival(p)
	r.Takeover = true
	_, claimErr := readOnly.Claim(t.Context(), r)
	for op, err := range map[string]error{
		"claim":    claimErr,
		"renew":    readOnly.Renew(t.Context(), o, keystore.RenewParams{Lease: 1}),
		"complete": readOnly.Complete(t.Context(), o, keystore.CompleteParams{Retention: long}),
		"release":  readOnly.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Forget}),
	} {
		const readOnlyTransaction = "25006"
		if code(err) != readOnlyTransaction || keystore.Final(err) || !strings.HasPrefix(err.Error(), "pgstore: "+op+": ") {
			t.Errorf("%s in a read-only database: %v, want the server's error naming store and operation", op, err)
		}
	}
	claim(t, writable, r, keystore.InFlight)
	complete(t, writable, o, "result")
}
