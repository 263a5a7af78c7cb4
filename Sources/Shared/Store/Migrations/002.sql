-- A job may die more than once, and an entry without a readable header has no stamp: a letter is known by its entry in
-- Redis as well, and by a short number for people.
ALTER TABLE dead_letters
    ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY,
    ADD COLUMN entry text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN state text NOT NULL DEFAULT 'dead' CHECK (state IN ('dead', 'retried', 'purged')),
    ADD COLUMN changed_at bigint,
    DROP CONSTRAINT dead_letters_pkey,
    ADD PRIMARY KEY (id),
    ADD CONSTRAINT dead_letters_entry UNIQUE (partition, stamp, lane, entry);
CREATE INDEX dead_letters_waiting ON dead_letters (id) WHERE state = 'dead';
CREATE INDEX dead_letters_age ON dead_letters (died_at);
