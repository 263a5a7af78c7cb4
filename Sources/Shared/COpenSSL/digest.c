#include "COpenSSL.h"

#define OPENSSL_SUPPRESS_DEPRECATED

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

void copenssl_sha256(const uint8_t *bytes, uint64_t length, uint8_t out[32]) {
    // OpenSSL 3's SHA256() fetches the algorithm anew each time, as the one-shot EVP form does: 3,500 instructions beside
    // the 200 that a block takes. The functions below are deprecated, and do nothing but hash.
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, bytes, length);
    SHA256_Final(out, &context);
}

void copenssl_hmac_sha256(
    const uint8_t *key, uint64_t key_length, const uint8_t *bytes, uint64_t length, uint8_t out[32]) {
    unsigned int size = 32;
    HMAC(EVP_sha256(), key, (int)key_length, bytes, length, out, &size);
}

int copenssl_random(uint8_t *out, uint64_t length) { return RAND_bytes(out, (int)length) == 1; }

int copenssl_equal(const uint8_t *a, const uint8_t *b, uint64_t length) { return CRYPTO_memcmp(a, b, length) == 0; }
