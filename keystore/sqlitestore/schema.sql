-- The records of idem, one row per intent. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS `idem_records` (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    format      INTEGER NOT NULL,           -- of this row; 1
    scope       BLOB    NOT NULL CHECK (length(scope) = 32),
    fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 32),
    revision    INTEGER NOT NULL,           -- rises with every write
    state       INTEGER NOT NULL CHECK (state IN (1, 2, 3)), -- free, running, done
    released    INTEGER NOT NULL CHECK (released IN (0, 1, 2)), -- how it was freed: 1 forget, 2 reject
    begun       INTEGER NOT NULL CHECK (begun IN (0, 1)),
    nonce       BLOB    NOT NULL CHECK (length(nonce) = 16), -- of the latest owner, as is the token
    token       INTEGER NOT NULL CHECK (token > 0),
    generation  INTEGER NOT NULL,
    since_us    INTEGER NOT NULL,           -- first claim of this generation
    until_us    INTEGER NOT NULL,           -- end of the lease (running, 0 if abandoned) or of the retention (done)
    keep_us     INTEGER NOT NULL,           -- a duration
    expires_us  INTEGER,                    -- when it may be purged; NULL while it runs and has begun
    meta        BLOB,
    result      BLOB
) STRICT;

CREATE INDEX IF NOT EXISTS `idem_records_expires` ON `idem_records` (expires_us, id);

CREATE INDEX IF NOT EXISTS `idem_records_scope` ON `idem_records` (scope, id);

CREATE TABLE IF NOT EXISTS `idem_records_schema` (
    one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
) STRICT;

INSERT INTO `idem_records_schema` (one, version) VALUES (1, 1) ON CONFLICT (one) DO NOTHING;
