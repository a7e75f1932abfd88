//go:build !race

package mysqlstore

import (
	"testing"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

// TestContractAsRecommended runs the suite once more, on the text protocol.
func TestContractAsRecommended(t *testing.T) {
	t.Parallel()
	dsn := newDSN(t)
	keystoretest.Run(t, func(t *testing.T) keystore.Store { return newStore(t, open(t, dsn), Config{}) })
}
