package main

import (
	"fmt"

	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
)

// purge removes what no rule needs any more.
func purge(c *call) func() error {
	var batch, most int
	c.flags.IntVar(&batch, "batch", 1000, "remove at most `N` records in one call to the store")
	c.flags.IntVar(&most, "max", 0, "remove at most `N` records in all; 0 is all of them")
	c.flags.BoolVar(&c.yes, "yes", false, "don't ask")
	c.flags.BoolVar(&c.json, "json", false, "write JSON")
	return func() error {
		switch err := c.noOperands(); {
		case err != nil:
			return err
		case batch < 1:
			return badUsage("-batch is %d; it must be at least 1", batch)
		case most < 0:
			return badUsage("-max is %d; use 0 for no bound, or a positive number", most)
		}
		return c.withStore(func(s *storeurl.Opened) error {
			if err := c.ask("purge settled records after their retention from " + redact(c.storeURL, c.storeURL)); err != nil {
				return err
			}
			n, err := purgeAll(c, s.Store, batch, most)
			if err != nil {
				return c.inStore(fmt.Sprintf("purge, after %d records", n), err)
			}
			if c.json {
				return writeJSON(c.out, map[string]int{"purged": n})
			}
			_, err = fmt.Fprintf(c.out, "purged %d records\n", n)
			return err
		})
	}
}

func purgeAll(c *call, s keystore.Store, batch, most int) (removed int, err error) {
	for {
		limit := batch
		if most > 0 {
			limit = min(batch, most-removed)
		}
		if limit == 0 {
			return removed, nil
		}
		n, err := s.Purge(c.ctx, limit)
		removed += n
		if err != nil || n < limit {
			return removed, err
		}
	}
}
