package main

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/idem-go/idem"
)

const newUUID = "uuid.NewString"

// keys compare what makes a key.
func keys() []group {
	random := contender{name: newUUID, open: key(uuid.NewString)}
	idemKey := func(checks ...check) contender {
		return contender{name: "idem.NewKey", open: key(func() string { return string(idem.NewKey()) }), checks: checks}
	}
	derived := contender{
		name: "idem.DeriveKey", open: key(func() string { return string(idem.DeriveKey("shop/charge", "order-17")) }),
		checks: []check{ratio(newUUID)},
	}
	return []group{
		{name: "keys", contenders: []contender{random, idemKey(ratio(newUUID)), derived}},
		{name: "keys, 64 goroutines", callers: crowd, contenders: []contender{random, idemKey(ratio(newUUID).within(1.2)), derived}},
	}
}

func key(make func() string) func(*stage) (func(int) error, error) {
	return func(*stage) (func(int) error, error) {
		return func(int) error {
			if k := make(); len(k) != 36 {
				return fmt.Errorf("a key is %q", k)
			}
			return nil
		}, nil
	}
}
