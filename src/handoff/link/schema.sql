-- What a brain knows about its nodes. Times are milliseconds since 1970 UTC.

CREATE TABLE node (
    name TEXT PRIMARY KEY,
    public_key BLOB,                      -- ed25519, 32 bytes; or
    token_sha256 TEXT,                    -- of a permanent token
    token_sealed BLOB,                    -- the token itself, for sealed sessions of Go nodes
    require TEXT NOT NULL DEFAULT '',     -- '', 'e2e' or 'e2e2'
    tags TEXT NOT NULL DEFAULT '[]',      -- JSON list
    origin TEXT NOT NULL,                 -- pair, token, import
    created_ms INTEGER NOT NULL,
    revoked_ms INTEGER,
    CHECK ((public_key IS NULL) <> (token_sha256 IS NULL))
) STRICT, WITHOUT ROWID;

-- apart from the credential, so that what is written often can't damage it
CREATE TABLE seen (
    name TEXT PRIMARY KEY REFERENCES node (name) ON UPDATE CASCADE ON DELETE CASCADE,
    last_ms INTEGER NOT NULL,
    facts TEXT NOT NULL DEFAULT '{}'      -- JSON object: what the node said about itself
) STRICT, WITHOUT ROWID;

CREATE TABLE code (
    id TEXT PRIMARY KEY,
    stored BLOB NOT NULL,                 -- derived from the secret
    name TEXT NOT NULL,                   -- '' if the node chooses
    replaces INTEGER NOT NULL,            -- whether a node of that name may be replaced
    expires_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL             -- that are left
) STRICT, WITHOUT ROWID;
