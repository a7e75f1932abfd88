package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore/mysqlstore"
	"github.com/idem-go/idem/keystore/pgstore"
	"github.com/idem-go/idem/keystore/sqlitestore"
)

// migrate creates or checks the store's tables.
func migrate(c *call) func() error {
	var only bool
	c.flags.BoolVar(&only, "print", false, "print the statements instead, for a migration tool of your own")
	return func() error {
		if err := c.noOperands(); err != nil {
			return err
		}
		return c.withStore(func(s *storeurl.Opened) error {
			if only {
				return c.printSchema(s.Kind)
			}
			if err := s.Migrate(c.ctx); err != nil {
				return c.inStore("migrate", err)
			}
			says := "its tables are in place"
			if schema(s.Kind, "") == "" {
				says = "it needs no tables"
			}
			_, err := fmt.Fprintf(c.out, "store %s: %s\n", redact(c.storeURL, c.storeURL), says)
			return err
		})
	}
}

func (c *call) printSchema(kind string) error {
	ddl := schema(kind, tableOf(c.storeURL))
	if ddl == "" {
		return fmt.Errorf("a %s store has no schema to print", kind)
	}
	_, err := io.WriteString(c.out, strings.TrimRight(ddl, "\n")+"\n")
	return err
}

// schema is what creates a store's tables, empty where it has none. The table's
// name was checked when the store was opened.
func schema(kind, table string) string {
	switch kind {
	case "sqlite":
		return sqlitestore.Schema(sqlitestore.Config{Table: table})
	case "postgres":
		return pgstore.Schema(pgstore.Config{Table: table})
	case "mysql":
		return mysqlstore.Schema(mysqlstore.Config{Table: table})
	}
	return ""
}

// tableOf is the name in ?idem=NAME, which storeurl has found valid.
func tableOf(storeURL string) (table string) {
	_, query, _ := strings.Cut(storeURL, "?")
	for _, p := range strings.Split(query, "&") {
		if v, ok := strings.CutPrefix(p, "idem="); ok {
			table, _ = url.QueryUnescape(v)
		}
	}
	return table
}
