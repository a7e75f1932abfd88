-- The records of idem, one row per intent. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS `idem_records` (
    id          BINARY(32) NOT NULL PRIMARY KEY,
    format      INT        NOT NULL, -- of this row; 1
    scope       BINARY(32) NOT NULL,
    fingerprint BINARY(32) NOT NULL,
    revision    BIGINT     NOT NULL, -- rises with every write
    state       INT        NOT NULL, -- 1 free, 2 running, 3 done
    released    INT        NOT NULL, -- how it was freed: 1 forget, 2 reject
    begun       INT        NOT NULL, -- 0 or 1
    nonce       BINARY(16) NOT NULL, -- of the latest owner, as is the token
    token       BIGINT     NOT NULL,
    generation  BIGINT     NOT NULL,
    since_us    BIGINT     NOT NULL, -- first claim of this generation
    until_us    BIGINT     NOT NULL, -- end of the lease (running, 0 if abandoned) or of the retention (done)
    keep_us     BIGINT     NOT NULL, -- a duration
    expires_us  BIGINT     NULL,     -- when it may be purged; NULL while it runs and has begun
    meta        MEDIUMBLOB NULL,
    result      LONGBLOB   NULL,
    KEY `idem_records_expires` (expires_us, id),
    KEY `idem_records_scope` (scope, id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS `idem_records_schema` (
    one     INT NOT NULL PRIMARY KEY,
    version INT NOT NULL
) ENGINE = InnoDB;

INSERT INTO `idem_records_schema` (one, version) VALUES (1, 1) ON DUPLICATE KEY UPDATE one = one;
