package memstore

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/keystore"
)

func TestNewRefuses(t *testing.T) {
	for field, cfg := range map[string]Config{
		"Config.MaxRecords": {MaxRecords: -1},
		"Config.MaxBytes":   {MaxBytes: -1},
		"Config.MaxResult":  {MaxResult: -1},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("New(%+v) = %v, want an error that names %s", cfg, err, field)
		}
	}
}

// Each state that is still needed fills the store, and none gives way.
func TestMaxRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Config{MaxRecords: 5})
		alive, unresolved, done, free, rejected := id(0x00), id(0x40), id(0x80), id(0xc0), id(0xff)
		for _, i := range [][32]byte{alive, unresolved, done, free, rejected} {
			claim(t, s, i)
		}
		release(t, s, unresolved, keystore.Abandon)
		complete(t, s, done, nil, time.Minute)
		release(t, s, free, keystore.Forget)
		release(t, s, rejected, keystore.Reject)

		if _, err := s.Claim(t.Context(), params(id(1))); !errors.Is(err, keystore.ErrFull) {
			t.Fatalf("Claim in a full store: %v, want ErrFull", err)
		}
		claim(t, s, free) // needs no new record
		for _, i := range [][32]byte{alive, unresolved, done, free, rejected} {
			if recs, err := s.Records(t.Context(), keystore.Query{ID: &i}); err != nil || len(recs) != 1 {
				t.Fatalf("a full store dropped record %x: %v", i[0], err)
			}
		}

		// When the retention is over, the Done record gives way to one of another
		// shard, and nothing else does.
		time.Sleep(time.Minute)
		claim(t, s, id(1))
		if _, err := s.Claim(t.Context(), params(id(2))); !errors.Is(err, keystore.ErrFull) {
			t.Fatalf("Claim in a store that is full again: %v, want ErrFull", err)
		}
		if got := s.records.Load(); got != 5 {
			t.Fatalf("the store counts %d records, want 5", got)
		}
	})
}

func TestMaxBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 10_000
		s := newStore(t, Config{MaxBytes: bound})
		for i := range byte(4) {
			claim(t, s, id(i))
		}
		complete(t, s, id(0), make([]byte, bound-100), time.Minute)

		big := keystore.CompleteParams{Result: make([]byte, alwaysFits+1), Retention: time.Hour}
		if err := s.Complete(t.Context(), owner(s, id(1)), big); !errors.Is(err, keystore.ErrTooLarge) {
			t.Fatalf("Complete over MaxBytes: %v, want ErrTooLarge", err)
		}
		renewal := keystore.RenewParams{Lease: time.Hour, Meta: big.Result}
		if err := s.Renew(t.Context(), owner(s, id(1)), renewal); !errors.Is(err, keystore.ErrTooLarge) {
			t.Fatalf("Renew over MaxBytes: %v, want ErrTooLarge", err)
		}
		fresh := params(id(9))
		fresh.Meta = make([]byte, 200)
		if _, err := s.Claim(t.Context(), fresh); !errors.Is(err, keystore.ErrFull) {
			t.Fatalf("Claim over MaxBytes: %v, want ErrFull", err)
		}

		// What runs can be settled in spite of the bound.
		complete(t, s, id(1), make([]byte, alwaysFits), time.Hour)

		// And when room can be made, it is.
		time.Sleep(time.Minute)
		complete(t, s, id(2), make([]byte, bound/2), time.Minute)
		if got, want := s.bytes.Load(), int64(alwaysFits+bound/2); got != want {
			t.Fatalf("the store counts %d bytes, want %d", got, want)
		}
		time.Sleep(2 * time.Hour)
		purgeAll(t, s)
		if records, bytes := s.records.Load(), s.bytes.Load(); records != 1 || bytes != 0 {
			t.Fatalf("%d records of %d bytes remain, want the unresolved one alone", records, bytes)
		}
	})
}

func TestMaxResult(t *testing.T) {
	s := newStore(t, Config{MaxResult: 10})
	claim(t, s, id(1))
	over := keystore.CompleteParams{Result: make([]byte, 11), Retention: time.Hour}
	if err := s.Complete(t.Context(), owner(s, id(1)), over); !errors.Is(err, keystore.ErrTooLarge) {
		t.Fatalf("Complete over MaxResult: %v, want ErrTooLarge", err)
	}
	complete(t, s, id(1), make([]byte, 10), time.Hour) // the record was unchanged
}
