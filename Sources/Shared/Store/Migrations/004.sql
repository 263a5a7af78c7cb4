-- AdServices: one token for each install of an app, and what Apple said of it. Times are microseconds since 1970, those
-- of the queue's stamps where a job writes them.

-- The app is known by its bundle id, so that one disconnected and connected anew asks for no install twice. The subject
-- is an install ('install': its id, one of UUID shape in upper case) or a customer of the second protocol ('customer').
CREATE TABLE adservices_tokens (
    organization text COLLATE "C" NOT NULL,
    bundle_id text COLLATE "C" NOT NULL,
    subject_kind text COLLATE "C" NOT NULL CHECK (subject_kind IN ('install', 'customer')),
    subject text COLLATE "C" NOT NULL CHECK (octet_length(subject) BETWEEN 1 AND 255),
    -- As the call with the token spelled it; null where that is the subject itself.
    subject_as_sent text COLLATE "C",
    -- When the token was received: its age counts from here, and until the first ask the smallest one's token wins.
    stamp bigint NOT NULL CHECK (stamp >= 0 AND stamp < 9007199254740992),
    -- As the ingress sealed it; what ends erases it.
    sealed_token bytea CHECK (octet_length(sealed_token) <= 8192),
    -- Who is told of the outcome; null when only reads show it.
    callback text COLLATE "C",
    state text COLLATE "C" NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'resolved', 'test', 'organic', 'invalid', 'expired')),
    -- Asks that used up a rung of the ladder, and all asks.
    attempts integer NOT NULL DEFAULT 0,
    asks integer NOT NULL DEFAULT 0,
    -- When the next ask is due. A claim moves it to the end of its lease, so that whoever dies is followed by another.
    due_at bigint,
    -- What due_at was before the claim; null while nobody holds it.
    due_before bigint,
    -- Who holds it now: random for each claim.
    lease bytea CHECK (octet_length(lease) = 16),
    -- Apple's last HTTP status; 0 when there was no answer. Kept when it ends.
    last_status integer,
    last_asked_at bigint,
    ended_at bigint,
    -- What the call said beside the token, unproven.
    app_version text COLLATE "C",
    storefront text COLLATE "C",
    environment text COLLATE "C" NOT NULL CHECK (environment IN ('Production', 'Sandbox', 'Xcode')),
    attested boolean NOT NULL,
    unattested_reason text COLLATE "C",
    device text COLLATE "C",
    address_hash text COLLATE "C",
    -- Tokens that came later and changed nothing; those of them that came after one had ended invalid or expired.
    later_tokens integer NOT NULL DEFAULT 0,
    later_after_failure integer NOT NULL DEFAULT 0,
    -- The greatest stamp counted above, so that a repeated delivery counts once.
    later_at bigint NOT NULL DEFAULT -1,
    -- Apple's answer. Ids use all 64 bits.
    org_id bigint,
    campaign_id bigint,
    ad_group_id bigint,
    keyword_id bigint,
    ad_id bigint,
    creative_set_id bigint,
    conversion_type text COLLATE "C",
    claim_type text COLLATE "C",
    country_or_region text COLLATE "C",
    supply_placement text COLLATE "C",
    clicked_at bigint,
    impression_at bigint,
    -- As it came, so that what is not known yet can be read later.
    payload text CHECK (octet_length(payload) <= 4096),
    PRIMARY KEY (organization, bundle_id, subject_kind, subject),
    CHECK ((state = 'pending') = (due_at IS NOT NULL)),
    CHECK ((state = 'pending') = (sealed_token IS NOT NULL)),
    CHECK ((state = 'pending') = (ended_at IS NULL))
) WITH (fillfactor = 85);
-- What is due next, of all organizations: the sweep looks at nothing else.
CREATE INDEX adservices_tokens_due ON adservices_tokens (due_at) WHERE state = 'pending';
CREATE INDEX adservices_tokens_received ON adservices_tokens (organization, stamp DESC);

-- How the sweep stands, for all sweepers: one row.
CREATE TABLE adservices_sweep (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    -- By hand, until it is resumed.
    paused_at bigint,
    paused_by text,
    pause_reason text,
    -- Because Apple asked for it, or can't be reached; no ask goes out before.
    held_until bigint NOT NULL DEFAULT 0,
    hold_reason text
);
INSERT INTO adservices_sweep DEFAULT VALUES;
