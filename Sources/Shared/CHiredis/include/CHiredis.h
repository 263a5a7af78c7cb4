// Narrow shim over hiredis; filled by the Redis connector.
#ifndef RATCHET_CHIREDIS_H
#define RATCHET_CHIREDIS_H
#endif
