CREATE TABLE "idem_records" (
	id          bytea       PRIMARY KEY, -- a digest of 32 bytes, as are scope and fingerprint
	format      smallint    NOT NULL,    -- of the row; an unknown one is never touched
	scope       bytea       NOT NULL,
	fingerprint bytea       NOT NULL,
	state       smallint    NOT NULL,    -- 1 free, 2 running, 3 done
	released    smallint    NOT NULL DEFAULT 0, -- a free row: 1 forgotten, 2 rejected
	begun       boolean     NOT NULL,
	nonce       bytea       NOT NULL,    -- nonce and token: of the latest owner, settled or not
	token       bigint      NOT NULL,
	generation  bigint      NOT NULL,
	since       timestamptz NOT NULL,    -- first claim of this generation
	lease_until timestamptz NOT NULL,
	keep        interval    NOT NULL,    -- how long it is kept unclaimed
	expires     timestamptz,             -- a free or done row; null while it runs
	meta        bytea       NOT NULL,
	result      bytea                    -- a done row
) WITH (fillfactor = 70); -- room on the page: renewing a lease touches no index

CREATE INDEX "idem_records_scope" ON "idem_records" (scope, id);
CREATE INDEX "idem_records_running" ON "idem_records" (id) WHERE state = 2;
CREATE INDEX "idem_records_expires" ON "idem_records" (expires) WHERE expires IS NOT NULL;

COMMENT ON TABLE "idem_records" IS 'idem schema 1';
