#ifndef RATCHET_CLIBPQ_H
#define RATCHET_CLIBPQ_H
#endif
