#include "COpenSSL.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

void copenssl_sha256(const uint8_t *bytes, uint64_t length, uint8_t out[32]) {
    // The one-shot EVP form fetches the algorithm anew each time (about 400 ns); SHA256() does not.
    SHA256(bytes, length, out);
}

void copenssl_hmac_sha256(
    const uint8_t *key, uint64_t key_length, const uint8_t *bytes, uint64_t length, uint8_t out[32]) {
    unsigned int size = 32;
    HMAC(EVP_sha256(), key, (int)key_length, bytes, length, out, &size);
}

int copenssl_random(uint8_t *out, uint64_t length) { return RAND_bytes(out, (int)length) == 1; }

int copenssl_equal(const uint8_t *a, const uint8_t *b, uint64_t length) { return CRYPTO_memcmp(a, b, length) == 0; }
