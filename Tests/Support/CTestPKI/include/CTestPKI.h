// Makes keys, certificates and signatures for tests, right ones and wrong ones. No part of the product.
#ifndef RATCHET_CTESTPKI_H
#define RATCHET_CTESTPKI_H

#include <stdint.h>

/// A private key; immutable, freed by ctestpki_key_free.
typedef struct ctestpki_key ctestpki_key;
/// `kind` as OpenSSL names it: the curves prime256v1 and secp384r1, RSA (of 2,048 bits), ED25519. `explicit_curve` spells
/// a curve's parameters out in certificates.
ctestpki_key *ctestpki_key_create(const char *kind, int explicit_curve);
void ctestpki_key_free(ctestpki_key *key);

/// Everything that stands in a certificate. Pointers are borrowed for the call.
typedef struct ctestpki_certificate {
    const char *subject;
    const char *issuer;
    const ctestpki_key *key;
    const ctestpki_key *issuer_key;
    /// sha256, sha384, sha1.
    const char *digest;
    /// Seconds since 1970.
    int64_t not_before, not_after;
    int64_t serial;
    /// OpenSSL's configuration syntax, such as "critical,CA:TRUE,pathlen:0"; NULL leaves the extension out.
    const char *basic_constraints;
    const char *key_usage;
    /// Dotted identifiers with a NULL value, one a line; a leading '!' makes one critical, '=' and hexadecimal DER behind
    /// it give it another value.
    const char *markers;
    /// 1 adds the identifiers of subject and authority keys.
    int key_identifiers;
} ctestpki_certificate;

/// The DER of a certificate; its size, or -1.
int64_t ctestpki_certificate_der(const ctestpki_certificate *certificate, uint8_t *out, uint64_t capacity);
/// ECDSA with SHA-256 as r and s, 32 bytes each (P-256 keys); 1 when made.
int ctestpki_sign(const ctestpki_key *key, const uint8_t *message, uint64_t length, uint8_t out[64]);
/// The point of a P-256 key, uncompressed; 1 when made.
int ctestpki_key_point(const ctestpki_key *key, uint8_t out[65]);

#endif
