-- What the peers write to.
CREATE TABLE customers (
    org text, app_user_id text, attributes jsonb NOT NULL, platform text, os_version text, device_model text,
    locale text, last_seen timestamptz NOT NULL, hits int NOT NULL, PRIMARY KEY (org, app_user_id)
);
