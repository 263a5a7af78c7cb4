#include "COpenSSL.h"

#include "certificate_context.h"

#include <string.h>
#include <time.h>

#include <openssl/asn1.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/objects.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

// The opaque types of the header are OpenSSL's own objects under another name.
static X509 *x509(const copenssl_certificate *certificate) { return (X509 *)certificate; }

// From the start of a DER text, `*cursor` behind it after; NULL for what is no certificate.
static X509 *read_certificate(const unsigned char **cursor, uint64_t length, OSSL_LIB_CTX *context) {
    X509 *certificate = X509_new_ex(context, NULL);
    // What it fails to fill, d2i frees and sets to NULL.
    if (certificate != NULL) d2i_X509(&certificate, cursor, (long)length);
    return certificate;
}

copenssl_certificate *copenssl_certificate_parse(const uint8_t *der, uint64_t length) {
    if (der == NULL || length == 0 || length > 1 << 20) return NULL;
    const unsigned char *cursor = der;
    X509 *certificate = read_certificate(&cursor, length, certificate_context());
    // A key of another kind than that context knows is not there; what such a certificate is good for is judged below.
    if (certificate != NULL && X509_get0_pubkey(certificate) == NULL) {
        X509_free(certificate);
        cursor = der;
        certificate = read_certificate(&cursor, length, NULL);
    }
    unsigned char *again = NULL;
    int exact = 0;
    if (certificate != NULL && cursor == der + length) {
        // d2i also reads BER (indefinite and padded lengths); what does not encode back to itself is not DER.
        int size = i2d_X509(certificate, &again);
        exact = size >= 0 && (uint64_t)size == length && memcmp(again, der, length) == 0;
    }
    OPENSSL_free(again);
    // X509_check_purpose with -1 only fills the extension cache; -1 or a flag says that an extension is malformed.
    if (exact && X509_check_purpose(certificate, -1, 0) != 1) exact = 0;
    if (exact && (X509_get_extension_flags(certificate) & EXFLAG_INVALID)) exact = 0;
    if (!exact) {
        X509_free(certificate);
        ERR_clear_error();
        return NULL;
    }
    ERR_clear_error();
    return (copenssl_certificate *)certificate;
}

void copenssl_certificate_free(copenssl_certificate *certificate) { X509_free((X509 *)certificate); }

static int seconds(const ASN1_TIME *time, int64_t *out) {
    int type = ASN1_STRING_type(time), length = ASN1_STRING_length(time);
    const unsigned char *text = ASN1_STRING_get0_data(time);
    int expected = type == V_ASN1_UTCTIME ? 13 : type == V_ASN1_GENERALIZEDTIME ? 15 : -1;
    struct tm parts;
    if (length != expected || text[length - 1] != 'Z' || ASN1_TIME_to_tm(time, &parts) != 1) {
        ERR_clear_error();
        return 0;
    }
    *out = timegm(&parts);
    return 1;
}

int copenssl_certificate_window(const copenssl_certificate *certificate, int64_t *not_before, int64_t *not_after) {
    return seconds(X509_get0_notBefore(x509(certificate)), not_before)
        && seconds(X509_get0_notAfter(x509(certificate)), not_after);
}

void copenssl_certificate_subject(const copenssl_certificate *certificate, char *out, uint64_t capacity) {
    if (capacity == 0) return;
    out[0] = 0;
    BIO *memory = BIO_new(BIO_s_mem());
    if (memory == NULL) return;
    X509_NAME_print_ex(memory, X509_get_subject_name(x509(certificate)), 0, XN_FLAG_RFC2253);
    int length = BIO_read(memory, out, (int)(capacity - 1));
    out[length > 0 ? length : 0] = 0;
    BIO_free(memory);
    ERR_clear_error();
}

int copenssl_certificate_is_authority(const copenssl_certificate *certificate) {
    // X509_check_ca alone passes over a claimed authority whose key usage forbids signing certificates.
    return X509_check_ca(x509(certificate)) != 0
        || (X509_get_extension_flags(x509(certificate)) & EXFLAG_CA) != 0;
}

int copenssl_certificate_is_root(const copenssl_certificate *certificate) {
    int root = X509_check_ca(x509(certificate)) == 1
        && (X509_get_key_usage(x509(certificate)) & KU_KEY_CERT_SIGN) != 0
        && X509_self_signed(x509(certificate), 1) == 1;
    ERR_clear_error();
    return root;
}

int copenssl_certificate_may_sign_data(const copenssl_certificate *certificate) {
    return (X509_get_key_usage(x509(certificate)) & KU_DIGITAL_SIGNATURE) != 0;
}

int copenssl_certificate_extension_count(const copenssl_certificate *certificate, const char *oid) {
    ASN1_OBJECT *object = OBJ_txt2obj(oid, 1);
    if (object == NULL) {
        ERR_clear_error();
        return -1;
    }
    int count = 0, position = -1;
    while ((position = X509_get_ext_by_OBJ(x509(certificate), object, position)) >= 0) count++;
    ASN1_OBJECT_free(object);
    return count;
}

int64_t copenssl_certificate_extension_value(
    const copenssl_certificate *certificate, const char *oid, uint8_t *out, uint64_t capacity) {
    if (copenssl_certificate_extension_count(certificate, oid) != 1) return -1;
    ASN1_OBJECT *object = OBJ_txt2obj(oid, 1);
    int position = object ? X509_get_ext_by_OBJ(x509(certificate), object, -1) : -1;
    ASN1_OBJECT_free(object);
    ERR_clear_error();
    if (position < 0) return -1;
    const ASN1_OCTET_STRING *value = X509_EXTENSION_get_data(X509_get_ext(x509(certificate), position));
    int length = ASN1_STRING_length(value);
    if (length > 0) memcpy(out, ASN1_STRING_get0_data(value), (uint64_t)length < capacity ? (uint64_t)length : capacity);
    return length;
}

// A store that trusts one certificate and nothing else.
static X509_STORE *store_create(const copenssl_certificate *certificate, int depth, unsigned long flags) {
    X509_STORE *store = X509_STORE_new();
    X509_VERIFY_PARAM *parameters = X509_VERIFY_PARAM_new();
    int made = store != NULL && parameters != NULL && X509_STORE_add_cert(store, x509(certificate)) == 1;
    if (made) {
        X509_VERIFY_PARAM_set_depth(parameters, depth);
        // Level 2 asks for 112 bits: no SHA-1, no key that is shorter than P-224.
        X509_VERIFY_PARAM_set_auth_level(parameters, 2);
        // The window is checked by the caller at the date of each signature, so that a good path can be remembered.
        X509_VERIFY_PARAM_set_flags(parameters, X509_V_FLAG_NO_CHECK_TIME | flags);
        made = X509_STORE_set1_param(store, parameters) == 1;
    }
    X509_VERIFY_PARAM_free(parameters);
    if (!made) {
        X509_STORE_free(store);
        store = NULL;
    }
    ERR_clear_error();
    return store;
}

// Whether the store's certificate vouches for the leaf over a path of exactly so many, the intermediate in its midst.
static int store_verify(
    X509_STORE *store, const copenssl_certificate *leaf, const copenssl_certificate *intermediate, int length) {
    int result = -2;
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    STACK_OF(X509) *others = sk_X509_new_null();
    if (context != NULL && others != NULL
        && (intermediate == NULL || sk_X509_push(others, x509(intermediate)) > 0)
        && X509_STORE_CTX_init(context, store, x509(leaf), others) == 1) {
        if (X509_verify_cert(context) == 1) {
            STACK_OF(X509) *path = X509_STORE_CTX_get0_chain(context);
            result = sk_X509_num(path) == length
                    && (intermediate == NULL || X509_cmp(sk_X509_value(path, 1), x509(intermediate)) == 0)
                ? 0
                : -1;
        } else {
            result = X509_STORE_CTX_get_error(context);
            if (result == X509_V_OK) result = X509_V_ERR_UNSPECIFIED;
        }
    }
    sk_X509_free(others);
    X509_STORE_CTX_free(context);
    ERR_clear_error();
    return result;
}

copenssl_root *copenssl_root_create(const copenssl_certificate *certificate) {
    return (copenssl_root *)store_create(certificate, 1, 0);
}

void copenssl_root_free(copenssl_root *root) { X509_STORE_free((X509_STORE *)root); }

int copenssl_root_verify(
    const copenssl_root *root, const copenssl_certificate *leaf, const copenssl_certificate *intermediate) {
    return store_verify((X509_STORE *)root, leaf, intermediate, 3);
}

copenssl_issuer *copenssl_issuer_create(const copenssl_certificate *certificate) {
    return (copenssl_issuer *)store_create(certificate, 0, X509_V_FLAG_PARTIAL_CHAIN);
}

void copenssl_issuer_free(copenssl_issuer *issuer) { X509_STORE_free((X509_STORE *)issuer); }

int copenssl_issuer_verify(const copenssl_issuer *issuer, const copenssl_certificate *leaf) {
    return store_verify((X509_STORE *)issuer, leaf, NULL, 2);
}

const char *copenssl_root_error(int result) {
    switch (result) {
        case 0: return "ok";
        case -1: return "the path has another length than three";
        case -2: return "out of memory";
        default: return X509_verify_cert_error_string(result);
    }
}

copenssl_p256_key *copenssl_certificate_p256_key(const copenssl_certificate *certificate) {
    EVP_PKEY *key = X509_get_pubkey(x509(certificate));
    char group[32] = "";
    size_t length = 0;
    int explicit_curve = 0;
    int good = key != NULL && EVP_PKEY_is_a(key, "EC") && EVP_PKEY_get_group_name(key, group, sizeof group, &length)
        && strcmp(group, "prime256v1") == 0;
    // A key that spells its curve out can name a P-256 of its own (CVE-2020-0601).
    if (good && EVP_PKEY_get_int_param(key, OSSL_PKEY_PARAM_EC_DECODED_FROM_EXPLICIT_PARAMS, &explicit_curve)) {
        good = !explicit_curve;
    }
    if (!good) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    ERR_clear_error();
    return (copenssl_p256_key *)key;
}

void copenssl_p256_key_free(copenssl_p256_key *key) { EVP_PKEY_free((EVP_PKEY *)key); }

int copenssl_p256_key_point(const copenssl_p256_key *key, uint8_t out[65]) {
    size_t length = 0;
    int good = EVP_PKEY_get_octet_string_param((EVP_PKEY *)key, OSSL_PKEY_PARAM_PUB_KEY, out, 65, &length) == 1
        && length == 65 && out[0] == 4;
    ERR_clear_error();
    return good;
}
