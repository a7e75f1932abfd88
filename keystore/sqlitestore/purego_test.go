//go:build !race

package sqlitestore

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

// TestContractPureGo runs the suite on the driver that is SQLite translated to
// Go, which the race detector slows down too much.
func TestContractPureGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	keystoretest.Run(t, func(t *testing.T) keystore.Store {
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxIdleConns(8)
		t.Cleanup(func() { db.Close() })
		return newStore(t, db, Config{})
	})
}
