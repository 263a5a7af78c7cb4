-- The customer store: identify and attribute. Times are microseconds since 1970 where a stamp of the queue is meant,
-- milliseconds where Apple speaks. Ids are compared as bytes, hence COLLATE "C". Every row a job writes is a join of
-- its jobs: it ends the same in any order, with any repetition.

CREATE TABLE settings (
    key text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE organizations (
    id text COLLATE "C" PRIMARY KEY CHECK (id ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    name text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
    created_at bigint NOT NULL
);

CREATE TABLE apps (
    id text COLLATE "C" PRIMARY KEY CHECK (id ~ '^app_[0-9a-f]{24}$'),
    organization text COLLATE "C" NOT NULL REFERENCES organizations (id),
    store text COLLATE "C" NOT NULL CHECK (store IN ('app_store', 'play_store')),
    bundle_id text COLLATE "C" NOT NULL CHECK (bundle_id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$'),
    team_id text COLLATE "C" CHECK (team_id ~ '^[A-Z0-9]{10}$'),
    created_at bigint NOT NULL,
    UNIQUE NULLS NOT DISTINCT (organization, store, bundle_id, team_id)
);

-- The version of the app directory: one row, raised by every transaction that changes what the directory says, whoever
-- makes the change. Its row lock lets those transactions commit one after the other, so a version read together with
-- the apps names exactly those apps.
CREATE TABLE app_directory (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    version bigint NOT NULL
);
-- Microseconds of the clock, or one more than before: so a database that was made anew, or restored from a backup,
-- outranks what an older one published as soon as it changes anything.
INSERT INTO app_directory (version) VALUES (floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

CREATE FUNCTION raise_app_directory_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE app_directory
    SET version = greatest(version + 1, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    RETURN NULL;
END $$;
CREATE TRIGGER raise_app_directory_version AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON apps
    FOR EACH STATEMENT EXECUTE FUNCTION raise_app_directory_version();
CREATE TRIGGER raise_app_directory_version AFTER INSERT OR UPDATE OR DELETE ON organizations
    FOR EACH STATEMENT EXECUTE FUNCTION raise_app_directory_version();

-- Writes that named a bundle of no organization, or of several. They belong to nobody, so the row names none.
CREATE TABLE unresolved_bundles (
    bundle_id text COLLATE "C" PRIMARY KEY,
    dropped bigint NOT NULL,
    first_seen bigint NOT NULL,
    last_seen bigint NOT NULL
);

-- Attributes are {"key": [stamp, "JSON text of the value" or null for a deleted key]}: one row version a write, and the
-- value's text is kept as it was sent. Per key the greater (stamp, value bytes) wins; of the union the 256 keys with
-- the greatest (stamp, key bytes) are kept, a notice says when that cut something.
CREATE FUNCTION join_attributes(old jsonb, new jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT AS $$
DECLARE
    name text;
    theirs jsonb;
    ours jsonb;
    merged jsonb;
    lost text[] := '{}';
BEGIN
    FOR name, theirs IN SELECT key, value FROM jsonb_each(new) LOOP
        ours := old -> name;
        IF ours IS NULL OR (theirs -> 0) > (ours -> 0) THEN
            CONTINUE;
        ELSIF (theirs -> 0) = (ours -> 0)
            AND coalesce(theirs ->> 1, '') COLLATE "C" > coalesce(ours ->> 1, '') COLLATE "C" THEN
            CONTINUE;
        END IF;
        lost := lost || name;
    END LOOP;
    merged := old || (new - lost);
    -- An object of more than 256 such entries is larger than this; counting keys is dearer than a look at the size.
    IF pg_column_size(merged) > 4096 AND (SELECT count(*) > 256 FROM jsonb_object_keys(merged)) THEN
        RAISE NOTICE 'attributes cut';
        SELECT jsonb_object_agg(key, value) INTO merged FROM (
            SELECT key, value FROM jsonb_each(merged)
            ORDER BY (value ->> 0)::bigint DESC, key COLLATE "C" DESC LIMIT 256
        ) AS kept;
    END IF;
    RETURN merged;
END $$;

-- The id is derived from (organization, app_user_id), so it stands for both. The fill factor leaves room on the page,
-- so that an update touches no index.
CREATE TABLE customers (
    id uuid PRIMARY KEY,
    organization text COLLATE "C" NOT NULL,
    app_user_id text COLLATE "C" NOT NULL CHECK (octet_length(app_user_id) BETWEEN 1 AND 255),
    first_seen bigint NOT NULL CHECK (first_seen >= 0),
    last_seen bigint NOT NULL CHECK (last_seen < 9007199254740992),
    attested boolean NOT NULL,
    last_write_at bigint NOT NULL,
    last_write_attested boolean NOT NULL,
    last_write_reason text COLLATE "C",
    platform text COLLATE "C",
    platform_at bigint NOT NULL,
    os_version text COLLATE "C",
    os_version_at bigint NOT NULL,
    device_model text COLLATE "C",
    device_model_at bigint NOT NULL,
    locale text COLLATE "C",
    locale_at bigint NOT NULL,
    attributes jsonb NOT NULL
) WITH (fillfactor = 80);

-- So that the size of the value is that of its content: a small one holds few keys.
ALTER TABLE customers ALTER COLUMN attributes SET STORAGE EXTERNAL;

-- A lineage. Its key is the SHA-256 of the id, since a Play token may be larger than a btree row can be.
CREATE TABLE purchases (
    organization text COLLATE "C" NOT NULL,
    store text COLLATE "C" NOT NULL CHECK (store IN ('app_store', 'play_store')),
    lineage bytea NOT NULL CHECK (octet_length(lineage) = 32),
    original_transaction_id text COLLATE "C" NOT NULL,
    first_seen bigint NOT NULL CHECK (first_seen >= 0),
    last_seen bigint NOT NULL CHECK (last_seen < 9007199254740992),
    attested boolean NOT NULL,
    jws_verified boolean NOT NULL,
    -- As sent, unproven.
    raw_bundle_id text COLLATE "C",
    raw_bundle_id_at bigint NOT NULL,
    raw_product_id text COLLATE "C",
    raw_product_id_at bigint NOT NULL,
    PRIMARY KEY (organization, store, lineage)
) WITH (fillfactor = 80);

-- One row for each accepted attribute call: who said at that stamp that the purchase is whose, and with what proof.
CREATE TABLE purchase_owner_writes (
    organization text COLLATE "C" NOT NULL,
    store text COLLATE "C" NOT NULL,
    lineage bytea NOT NULL,
    stamp bigint NOT NULL CHECK (stamp >= 0 AND stamp < 9007199254740992),
    customer uuid NOT NULL,
    attested boolean NOT NULL,
    jws boolean NOT NULL,
    operator boolean NOT NULL,
    device text COLLATE "C",
    address_hash text COLLATE "C",
    PRIMARY KEY (organization, store, lineage, stamp, customer)
);
CREATE INDEX purchase_owner_writes_customer ON purchase_owner_writes (organization, customer);

-- Every change of owner in the order of (stamp, customer), the first link included: its from_customer is NULL. The proof
-- is the mover's. contested: the move carried none, while an earlier write of another customer had some.
CREATE VIEW purchase_moves AS
SELECT w.organization, w.store, w.lineage, w.stamp, w.from_customer, w.customer AS to_customer, w.attested, w.jws,
    w.operator, w.device, w.address_hash,
    NOT (w.attested OR w.jws OR w.operator) AND EXISTS (
        SELECT FROM purchase_owner_writes AS e
        WHERE e.organization = w.organization AND e.store = w.store AND e.lineage = w.lineage
            AND (e.stamp, e.customer) < (w.stamp, w.customer) AND e.customer <> w.customer
            AND (e.attested OR e.jws OR e.operator)
    ) AS contested
FROM (
    SELECT *, lag(customer) OVER (PARTITION BY organization, store, lineage ORDER BY stamp, customer) AS from_customer
    FROM purchase_owner_writes
) AS w
WHERE w.from_customer IS DISTINCT FROM w.customer;

-- What the store's signature vouches for; per transaction the receipt with the greatest (signed_at, payload_digest).
CREATE TABLE transactions (
    organization text COLLATE "C" NOT NULL,
    store text COLLATE "C" NOT NULL,
    transaction_key bytea NOT NULL CHECK (octet_length(transaction_key) = 32),
    transaction_id text COLLATE "C" NOT NULL,
    lineage bytea NOT NULL,
    signed_at bigint NOT NULL,
    payload_digest text COLLATE "C" NOT NULL,
    bundle_id text COLLATE "C" NOT NULL,
    product_id text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    purchased_at bigint NOT NULL,
    original_purchased_at bigint,
    expires_at bigint,
    type text COLLATE "C",
    ownership text COLLATE "C",
    revoked_at bigint,
    revocation_reason bigint,
    is_upgraded boolean,
    price bigint,
    currency text COLLATE "C",
    storefront text COLLATE "C",
    app_account_token text COLLATE "C",
    quantity bigint,
    PRIMARY KEY (organization, store, transaction_key)
);
CREATE INDEX transactions_lineage ON transactions (organization, store, lineage);

-- Who changed what by hand. An action on the whole installation names no organization.
CREATE TABLE audit_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization text COLLATE "C",
    at bigint NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    detail jsonb NOT NULL
);
CREATE INDEX audit_log_organization ON audit_log (organization, id);

-- Orders to the queue (queue.md §7), kept so that a wiped Redis gets them back.
CREATE TABLE lane_orders (
    scope text NOT NULL CHECK (scope IN ('lane', 'kind', 'organization')),
    target text NOT NULL,
    action text NOT NULL CHECK (action IN ('pause', 'drain')),
    owner text NOT NULL,
    reason text NOT NULL,
    until_at bigint,
    created_at bigint NOT NULL,
    PRIMARY KEY (scope, target, action)
);

-- A job is known by its partition and its stamp there.
CREATE TABLE dead_letters (
    partition bigint NOT NULL,
    stamp bigint NOT NULL,
    organization text COLLATE "C" NOT NULL,
    lane text NOT NULL,
    kind text NOT NULL,
    header bytea NOT NULL,
    payload bytea NOT NULL,
    reason text NOT NULL,
    error text NOT NULL CHECK (octet_length(error) <= 1024),
    died_at bigint NOT NULL,
    PRIMARY KEY (partition, stamp)
);
CREATE INDEX dead_letters_organization ON dead_letters (organization, died_at);
