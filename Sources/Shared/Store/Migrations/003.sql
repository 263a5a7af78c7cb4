-- Devices that App Attest vouches for. A key enrols once; its device token is known by its hash alone. Times are
-- microseconds since 1970, those of the queue's stamps where a job writes them.

CREATE TABLE devices (
    id text COLLATE "C" NOT NULL CHECK (id ~ '^dev_[0-9a-f]{24}$'),
    organization text COLLATE "C" NOT NULL REFERENCES organizations (id),
    app text COLLATE "C" NOT NULL,
    bundle_id text COLLATE "C" NOT NULL,
    key_id bytea NOT NULL CHECK (octet_length(key_id) = 32),
    public_key bytea NOT NULL CHECK (octet_length(public_key) = 65),
    environment text COLLATE "C" NOT NULL CHECK (environment IN ('production', 'development')),
    receipt bytea NOT NULL,
    bundle_version text COLLATE "C",
    validation_category text COLLATE "C",
    -- What tells an equal repeat of the enrolling call from another one.
    call_digest bytea NOT NULL CHECK (octet_length(call_digest) = 32),
    token_hash bytea NOT NULL CHECK (octet_length(token_hash) = 32),
    token_stamp bigint NOT NULL,
    enrolled_at bigint NOT NULL,
    last_seen_at bigint NOT NULL,
    revoked_at bigint,
    -- Whether Redis knows that it is revoked, so that no cache there outlives the order.
    revocation_published boolean NOT NULL DEFAULT false,
    PRIMARY KEY (organization, id)
);
-- By nature a key belongs to one device anywhere.
CREATE UNIQUE INDEX devices_key ON devices (key_id);
CREATE UNIQUE INDEX devices_token ON devices (token_hash);
CREATE INDEX devices_by_enrolment ON devices (organization, enrolled_at DESC, id);
CREATE INDEX devices_unpublished ON devices (revoked_at) WHERE revoked_at IS NOT NULL AND NOT revocation_published;

-- Whether keys of App Attest's development environment may enrol, as apps run from Xcode have them.
ALTER TABLE apps ADD COLUMN attest_development boolean NOT NULL DEFAULT false;
-- Attested writes a minute; null takes RATCHET_LIMIT_ATTESTED_PER_MINUTE.
ALTER TABLE organizations ADD COLUMN attested_per_minute integer CHECK (attested_per_minute >= 0);
