package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idem/internal/sqltable"
)

// version is the newest schema that this version knows.
const version = 1

// Migrate creates the tables where they are missing, and checks what it finds:
// a newer schema, tables of another engine than InnoDB, or a server whose
// settings break the contract are refused with ErrSchema. It is safe to call
// at every start, by several processes at once; where nothing is missing it
// writes nothing.
func Migrate(ctx context.Context, db *sql.DB, cfg Config) error {
	s, err := New(db, cfg)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		err := s.migrate(ctx, cfg)
		if err == nil {
			return nil
		}
		again := fault(err) == sqltable.Again || fault(err) == sqltable.Locked
		if !again || sqltable.Pause(ctx, n) != nil {
			return dialect.Failed(ctx, "migrate", err)
		}
	}
}

func (s *Store) migrate(ctx context.Context, cfg Config) error {
	switch found, err := s.schemaVersion(ctx); {
	case err != nil:
		return err
	case found > version:
		return fmt.Errorf("%w: table %s has version %d, this version of idem knows %d; update idem", ErrSchema, s.name, found, version)
	case found < version:
		for _, statement := range strings.Split(strings.TrimSpace(Schema(cfg)), ";\n") {
			if _, err := s.db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
	}
	return s.check(ctx)
}

// schemaVersion returns 0 where there is no schema, or not all of it.
func (s *Store) schemaVersion(ctx context.Context) (found int, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT version FROM `"+s.name+"_schema` WHERE one = 1").Scan(&found)
	if errors.Is(err, sql.ErrNoRows) || fault(err) == sqltable.NoTable {
		return 0, nil
	}
	return found, err
}

// check refuses what would break the contract silently, or long after.
func (s *Store) check(ctx context.Context) error {
	var engine string
	var packet int64
	var rollsBack, commits bool
	err := s.db.QueryRowContext(ctx, `SELECT engine, @@max_allowed_packet, @@innodb_rollback_on_timeout, @@autocommit
		FROM information_schema.tables WHERE table_schema = database() AND table_name = ?`, s.name).
		Scan(&engine, &packet, &rollsBack, &commits)
	// A statement may hold every byte of the result escaped.
	room := 2*int64(s.maxResult) + 1<<17
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: there is no table %s", ErrSchema, s.name)
	case err != nil:
		return err
	case !strings.EqualFold(engine, "InnoDB"):
		return fmt.Errorf("%w: table %s has the engine %s, which has no transactions; make it InnoDB", ErrSchema, s.name, engine)
	case packet < room:
		return fmt.Errorf("%w: the server's max_allowed_packet is %d; raise it to %d, or lower Config.MaxResult, which is %d",
			ErrSchema, packet, room, s.maxResult)
	case rollsBack:
		return fmt.Errorf("%w: the server's innodb_rollback_on_timeout is ON; turn it OFF, or a claim that finds its record held would roll back the caller's transaction", ErrSchema)
	case !commits:
		return fmt.Errorf("%w: the connection's autocommit is 0; leave it 1, or nothing that the store writes would be committed", ErrSchema)
	}
	return nil
}
