-- A pause of the sweep may end by itself, on this server's clock; microseconds since 1970, null until it is lifted.
ALTER TABLE adservices_sweep ADD COLUMN paused_until bigint;
-- Dead letters that hold an AdServices token, by when it was received: it is erased once nobody can exchange it.
CREATE INDEX dead_letters_tokens ON dead_letters (stamp) WHERE kind = 'adservices' AND octet_length(payload) > 0;
