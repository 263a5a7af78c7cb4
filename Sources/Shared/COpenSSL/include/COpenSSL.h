// The part of OpenSSL 3 that Ratchet calls, behind plain C types. No OpenSSL or system header is included here.
#ifndef RATCHET_COPENSSL_H
#define RATCHET_COPENSSL_H

#include <stdint.h>

/// SHA-256 of `length` bytes into 32 bytes.
void copenssl_sha256(const uint8_t *bytes, uint64_t length, uint8_t out[32]);
/// SHA-1 into 20 bytes: for names that others derive with it (Redis scripts), never for security.
void copenssl_sha1(const uint8_t *bytes, uint64_t length, uint8_t out[20]);
/// HMAC-SHA-256 into 32 bytes.
void copenssl_hmac_sha256(
    const uint8_t *key, uint64_t key_length, const uint8_t *bytes, uint64_t length, uint8_t out[32]);
/// Fills `out` with `length` random bytes; 1 on success, 0 when the generator has no entropy.
int copenssl_random(uint8_t *out, uint64_t length);
/// 1 when both ranges hold the same bytes; the time taken tells nothing of where they differ.
int copenssl_equal(const uint8_t *a, const uint8_t *b, uint64_t length);

#endif
