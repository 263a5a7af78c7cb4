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

/// AES-256-GCM (NIST SP 800-38D). `out` takes `length` bytes; `context` is bound to the text and not kept. 1 on success,
/// 0 when memory ran out or a range is over 2 GiB.
int copenssl_aes256gcm_seal(
    const uint8_t key[32], const uint8_t nonce[12], const uint8_t *context, uint64_t context_length,
    const uint8_t *text, uint64_t length, uint8_t *out, uint8_t tag[16]);
/// The other way; 0 also when the tag is not of this key, nonce, context and text: `out` is worthless then.
int copenssl_aes256gcm_open(
    const uint8_t key[32], const uint8_t nonce[12], const uint8_t *context, uint64_t context_length,
    const uint8_t *text, uint64_t length, const uint8_t tag[16], uint8_t *out);

/// One parsed X.509 certificate. Made by copenssl_certificate_parse, owned by the caller, immutable: any number of
/// threads may read one at once.
typedef struct copenssl_certificate copenssl_certificate;
/// A certificate from exactly `length` bytes of DER; NULL for anything else: BER, trailing bytes, another structure.
copenssl_certificate *copenssl_certificate_parse(const uint8_t *der, uint64_t length);
void copenssl_certificate_free(copenssl_certificate *certificate);
/// The validity window in seconds since 1970, both ends inside; 0 when a date is not in the form RFC 5280 4.1.2.5 asks.
int copenssl_certificate_window(const copenssl_certificate *certificate, int64_t *not_before, int64_t *not_after);
/// The subject as RFC 2253 text, zero-terminated and cut to `capacity`.
void copenssl_certificate_subject(const copenssl_certificate *certificate, char *out, uint64_t capacity);
/// 1 when the certificate calls itself a certificate authority in any way (basic constraints, key usage or age).
int copenssl_certificate_is_authority(const copenssl_certificate *certificate);
/// 1 when it is an authority by basic constraints, may sign certificates, and is signed by its own key.
int copenssl_certificate_is_root(const copenssl_certificate *certificate);
/// 1 when its key usage, if it states any, allows signatures over data.
int copenssl_certificate_may_sign_data(const copenssl_certificate *certificate);
/// How many extensions of this dotted object identifier it has; -1 for text that is no object identifier.
int copenssl_certificate_extension_count(const copenssl_certificate *certificate, const char *oid);
/// The value of the only extension of this object identifier: its size, and up to `capacity` bytes of it in `out`; -1
/// when there is none, or several.
int64_t copenssl_certificate_extension_value(
    const copenssl_certificate *certificate, const char *oid, uint8_t *out, uint64_t capacity);

/// One trusted root in a store of its own; nothing else is ever trusted. Immutable: any number of threads at once.
typedef struct copenssl_root copenssl_root;
copenssl_root *copenssl_root_create(const copenssl_certificate *certificate);
void copenssl_root_free(copenssl_root *root);
/// Whether leaf, intermediate and root make a path of exactly three certificates: signatures, names, authority flags,
/// path lengths, key usages, critical extensions. Dates are left to the caller. 0 when it holds; -1 for a valid path
/// of another length, -2 when memory ran out, else OpenSSL's X509_V_ERR number.
int copenssl_root_verify(
    const copenssl_root *root, const copenssl_certificate *leaf, const copenssl_certificate *intermediate);
/// An intermediate that copenssl_root_verify has found good, trusted by itself from now on, so that its own signature is
/// not checked anew for each leaf. Only for one under a root without name constraints: those are not looked at here.
/// Immutable: any number of threads at once.
typedef struct copenssl_issuer copenssl_issuer;
copenssl_issuer *copenssl_issuer_create(const copenssl_certificate *certificate);
void copenssl_issuer_free(copenssl_issuer *issuer);
/// Whether the issuer signed this leaf, with all that copenssl_root_verify checks of a leaf; results as there.
int copenssl_issuer_verify(const copenssl_issuer *issuer, const copenssl_certificate *leaf);
/// OpenSSL's fixed English words for a result of copenssl_root_verify.
const char *copenssl_root_error(int result);

/// A P-256 public key. Immutable: any number of threads at once.
typedef struct copenssl_p256_key copenssl_p256_key;
/// The certificate's key; NULL unless it is an elliptic one on P-256 that names its curve.
copenssl_p256_key *copenssl_certificate_p256_key(const copenssl_certificate *certificate);
void copenssl_p256_key_free(copenssl_p256_key *key);
/// The point in uncompressed form (SEC 1 2.3.3): 04, x, y; 1 on success.
int copenssl_p256_key_point(const copenssl_p256_key *key, uint8_t out[65]);
/// 1 when `signature` (r then s, 32 bytes each, RFC 7518 3.4) is this key's ECDSA signature over a message of that SHA-256.
int copenssl_es256_verify(const copenssl_p256_key *key, const uint8_t digest[32], const uint8_t signature[64]);

#endif
