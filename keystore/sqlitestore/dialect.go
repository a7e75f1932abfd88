package sqlitestore

import "github.com/idem-go/idem/internal/sqltable"

var dialect = sqltable.Dialect{
	Store:     "sqlitestore",
	Clock:     "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)",
	OneWriter: true,
	Unless:    " ON CONFLICT (id) DO NOTHING",
	Fault:     fault,
}

// fault tells what SQLite's result code means.
func fault(err error) sqltable.Fault {
	code, ok := sqltable.DriverCode(err, "Code")
	if !ok {
		return sqltable.Other
	}
	switch code & 0xff { // the rest says why
	case 5, 6, 15: // SQLITE_BUSY, SQLITE_LOCKED, SQLITE_PROTOCOL
		return sqltable.Again
	case 8: // SQLITE_READONLY
		return sqltable.ReadOnly
	case 11, 26: // SQLITE_CORRUPT, SQLITE_NOTADB
		return sqltable.Corrupt
	case 13: // SQLITE_FULL
		return sqltable.Full
	case 18: // SQLITE_TOOBIG
		return sqltable.TooLarge
	}
	return sqltable.Other
}
