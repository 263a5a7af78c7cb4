#include "COpenSSL.h"

#include "certificate_context.h"

#include <string.h>

#include <openssl/err.h>
#include <openssl/evp.h>

/// The order n of P-256 (SEC 2, 2.4.2), big-endian.
static const uint8_t order[32] = {
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
};

/// Whether a number lies in 1...n-1. Zero passes for every message in a verifier that forgets this (CVE-2022-21449);
/// OpenSSL looks too, but the rule is not left to it.
static int in_range(const uint8_t number[32]) {
    static const uint8_t zero[32];
    return memcmp(number, zero, 32) != 0 && memcmp(number, order, 32) < 0;
}

/// One DER INTEGER of at most 35 bytes; returns its size.
static size_t encode(const uint8_t number[32], uint8_t *out) {
    size_t skip = 0;
    while (skip < 31 && number[skip] == 0) skip++;
    size_t pad = number[skip] >> 7, size = 32 - skip;
    out[0] = 0x02;
    out[1] = (uint8_t)(size + pad);
    out[2] = 0;
    memcpy(out + 2 + pad, number + skip, size);
    return 2 + pad + size;
}

int copenssl_es256_verify(
    const copenssl_p256_key *key, const uint8_t digest[32], const uint8_t signature[64]) {
    if (!in_range(signature) || !in_range(signature + 32)) return 0;
    uint8_t der[72];
    size_t size = encode(signature, der + 2);
    size += encode(signature + 32, der + 2 + size);
    der[0] = 0x30;
    der[1] = (uint8_t)size;
    // Verifying the digest directly spares the fetch and copy of a digest context for each message.
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(certificate_context(), (EVP_PKEY *)key, NULL);
    int good = context != NULL && EVP_PKEY_verify_init(context) == 1
        && EVP_PKEY_verify(context, der, size + 2, digest, 32) == 1;
    EVP_PKEY_CTX_free(context);
    if (!good) ERR_clear_error();
    return good;
}
