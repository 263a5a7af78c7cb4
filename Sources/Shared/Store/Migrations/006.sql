-- Device tokens that live no more: of revoked devices, and replaced ones, which an equal repeat of the enrolling call ended.
-- Redis and the ingress processes are told of each until whatever they remember of it must have ended.
CREATE TABLE ended_tokens (
    token_hash bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
    organization text COLLATE "C" NOT NULL,
    device text COLLATE "C" NOT NULL,
    -- Microseconds since 1970.
    ended_at bigint NOT NULL,
    published boolean NOT NULL DEFAULT false
);
CREATE INDEX ended_tokens_unpublished ON ended_tokens (ended_at) WHERE NOT published;
CREATE INDEX ended_tokens_ended ON ended_tokens (ended_at);
-- devices.revocation_published is read no more.
INSERT INTO ended_tokens (token_hash, organization, device, ended_at)
SELECT token_hash, organization, id, revoked_at FROM devices WHERE revoked_at IS NOT NULL;
