-- A pause of the sweep may end by itself, on this server's clock; microseconds since 1970, null until it is lifted.
ALTER TABLE adservices_sweep ADD COLUMN paused_until bigint;
-- When the lease of a claimed token ends; null while nobody holds it. A claim leaves due_at as it is, so it changes nothing
-- that is indexed: with room on the page it is an update in place, at a third of the cost.
ALTER TABLE adservices_tokens ADD COLUMN lease_end bigint;
ALTER TABLE adservices_tokens SET (fillfactor = 50);
-- A sweeper from before this would claim what another holds: its claims write due_before, and are refused. It may still
-- say what became of those that it has.
UPDATE adservices_tokens SET lease_end = due_at, due_at = due_before, due_before = NULL
    WHERE state = 'pending' AND due_before IS NOT NULL;
ALTER TABLE adservices_tokens ADD CONSTRAINT adservices_tokens_old_claim CHECK (due_before IS NULL) NOT VALID;
-- Dead letters that hold an AdServices token, by when it was received: it is erased once nobody can exchange it.
CREATE INDEX dead_letters_tokens ON dead_letters (stamp) WHERE kind = 'adservices' AND octet_length(payload) > 0;
