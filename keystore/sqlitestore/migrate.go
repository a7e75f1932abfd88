package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/idem-go/idem/internal/sqltable"
)

// version is the newest schema that this version knows.
const version = 1

// synchronousFull is the level from which a commit is on the disk.
const synchronousFull = 2

// Migrate creates the tables where they are missing and checks the database: a
// newer schema, connections that don't share one database, or that may lose a
// commit (see Config.Volatile), are refused with ErrSchema. It switches a file
// to write-ahead logging. It is safe to call at every start, by several
// processes at once; where nothing is missing it writes nothing.
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
		if fault(err) != sqltable.Again || sqltable.Pause(ctx, n) != nil {
			return dialect.Failed(ctx, "migrate", err)
		}
	}
}

func (s *Store) migrate(ctx context.Context, cfg Config) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()

	var file string // empty for a database in memory
	if err := conn.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file); err != nil {
		return err
	}
	if file != "" {
		if err := logAhead(ctx, conn); err != nil {
			return err
		}
	}
	switch found, err := s.schemaVersion(ctx, conn); {
	case err != nil:
		return err
	case found > version:
		return fmt.Errorf("%w: table %s has version %d, this version of idem knows %d; update idem", ErrSchema, s.name, found, version)
	case found < version:
		for _, statement := range strings.SplitAfter(Schema(cfg), ";\n") {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
	}
	if file != "" {
		return checkSynchronous(ctx, conn, cfg)
	}
	return s.checkShared(ctx)
}

// logAhead makes the file use write-ahead logging, which it does from then on
// whoever opens it. Without it, reads would wait for writers, and a commit
// could fail for a reader.
func logAhead(ctx context.Context, conn *sql.Conn) error {
	var mode string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil || mode == "wal" {
		return err
	}
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode = wal").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%w: journal_mode is %s and can't be changed to wal; is the file on a network file system?", ErrSchema, mode)
	}
	return nil
}

// schemaVersion returns 0 where there is no schema, or not all of it.
func (s *Store) schemaVersion(ctx context.Context, conn *sql.Conn) (found int, err error) {
	err = conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", s.name+"_schema").Scan(&found)
	if err != nil || found == 0 {
		return 0, err
	}
	err = conn.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM `"+s.name+"_schema`").Scan(&found)
	return found, err
}

// checkSynchronous looks at one connection. That the others are alike is for
// the data source name to see to.
func checkSynchronous(ctx context.Context, conn *sql.Conn, cfg Config) error {
	var level int
	if err := conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level); err != nil {
		return err
	}
	if level < synchronousFull && !cfg.Volatile {
		return fmt.Errorf("%w: PRAGMA synchronous is %d: a power failure could undo a claim whose effect has happened; "+
			"set synchronous to FULL in the data source name, where every connection gets it, or accept the risk with Config.Volatile", ErrSchema, level)
	}
	return nil
}

// checkShared looks whether a second connection, if the pool may have one,
// sees what the first has made.
func (s *Store) checkShared(ctx context.Context) error {
	if s.db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	conn, err := s.db.Conn(ctx) // while the caller holds the first
	if err != nil {
		return err
	}
	defer conn.Close()
	found, err := s.schemaVersion(ctx, conn)
	if err == nil && found == 0 {
		err = fmt.Errorf("%w: the database is in memory and every connection of the pool has another one; "+
			"use a file, a shared cache, or db.SetMaxOpenConns(1)", ErrSchema)
	}
	return err
}
