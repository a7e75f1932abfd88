package mysqlstore

import (
	"time"

	"github.com/idem-go/idem/internal/sqltable"
)

var dialect = sqltable.Dialect{
	Store: "mysqlstore",
	// Neither the session's time zone nor its summer time reaches it.
	Clock: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
	// Executed by MariaDB, a comment to MySQL, which has nothing like it.
	Try:        "/*M!100300 SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ ",
	Patience:   5 * time.Second,
	Lock:       " FOR UPDATE NOWAIT",
	SkipLocked: " FOR UPDATE SKIP LOCKED",
	Fault:      fault,
}

// fault tells what the server's error number means.
func fault(err error) sqltable.Fault {
	number, ok := sqltable.DriverCode(err, "Number")
	if !ok {
		return sqltable.Other
	}
	switch number {
	case 1213, 1020: // ER_LOCK_DEADLOCK, ER_CHECKREAD
		return sqltable.Again
	case 1205, 3572: // ER_LOCK_WAIT_TIMEOUT, ER_LOCK_NOWAIT
		return sqltable.Locked
	case 1062: // ER_DUP_ENTRY
		return sqltable.Duplicate
	case 1021, 1114: // ER_DISK_FULL, ER_RECORD_FILE_FULL
		return sqltable.Full
	case 1153: // ER_NET_PACKET_TOO_LARGE
		return sqltable.TooLarge
	case 1290, 1792, 1836: // ER_OPTION_PREVENTS_STATEMENT, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, ER_READ_ONLY_MODE
		return sqltable.ReadOnly
	case 1034, 1194, 1712: // ER_NOT_KEYFILE, ER_CRASHED_ON_USAGE, ER_INDEX_CORRUPT
		return sqltable.Corrupt
	case 1146: // ER_NO_SUCH_TABLE
		return sqltable.NoTable
	}
	return sqltable.Other
}
