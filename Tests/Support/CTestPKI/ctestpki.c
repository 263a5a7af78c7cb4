#include "CTestPKI.h"

#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

static EVP_PKEY *pkey(const ctestpki_key *key) { return (EVP_PKEY *)key; }

ctestpki_key *ctestpki_key_create(const char *kind, int explicit_curve) {
    if (strcmp(kind, "RSA") == 0) return (ctestpki_key *)EVP_PKEY_Q_keygen(NULL, NULL, kind, (size_t)2048);
    if (strcmp(kind, "ED25519") == 0) return (ctestpki_key *)EVP_PKEY_Q_keygen(NULL, NULL, kind);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    EVP_PKEY *key = NULL;
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, (char *)kind, 0),
        OSSL_PARAM_construct_utf8_string(
            OSSL_PKEY_PARAM_EC_ENCODING,
            explicit_curve ? OSSL_PKEY_EC_ENCODING_EXPLICIT : OSSL_PKEY_EC_ENCODING_GROUP, 0),
        OSSL_PARAM_construct_end(),
    };
    if (context != NULL && EVP_PKEY_keygen_init(context) == 1 && EVP_PKEY_CTX_set_params(context, parameters) == 1) {
        EVP_PKEY_generate(context, &key);
    }
    EVP_PKEY_CTX_free(context);
    return (ctestpki_key *)key;
}

void ctestpki_key_free(ctestpki_key *key) { EVP_PKEY_free((EVP_PKEY *)key); }

static int add_name(X509_NAME *name, const char *text) {
    return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)text, -1, -1, 0);
}

static int add(X509 *certificate, X509V3_CTX *context, int nid, const char *value) {
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, context, nid, value);
    int added = extension != NULL && X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    return added;
}

// `text` is an object identifier, or one with '=' and the hexadecimal DER of the value behind it; NULL without.
static int add_marker(X509 *certificate, const char *text, int critical) {
    unsigned char bytes[512] = {5, 0};
    size_t size = 2;
    char oid[128];
    size_t length = strcspn(text, "=");
    if (length >= sizeof oid) return 0;
    memcpy(oid, text, length);
    oid[length] = 0;
    if (text[length] == '=' && OPENSSL_hexstr2buf_ex(bytes, sizeof bytes, &size, text + length + 1, 0) != 1) return 0;
    ASN1_OBJECT *object = OBJ_txt2obj(oid, 1);
    ASN1_OCTET_STRING *value = ASN1_OCTET_STRING_new();
    ASN1_OCTET_STRING_set(value, bytes, (int)size);
    X509_EXTENSION *extension = X509_EXTENSION_create_by_OBJ(NULL, object, critical, value);
    int added = extension != NULL && X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    ASN1_OCTET_STRING_free(value);
    ASN1_OBJECT_free(object);
    return added;
}

static int fill(X509 *certificate, const ctestpki_certificate *wish) {
    if (!X509_set_version(certificate, X509_VERSION_3)
        || !ASN1_INTEGER_set_int64(X509_get_serialNumber(certificate), wish->serial)
        || !add_name(X509_get_subject_name(certificate), wish->subject)
        || !add_name(X509_get_issuer_name(certificate), wish->issuer)
        || !ASN1_TIME_set(X509_getm_notBefore(certificate), wish->not_before)
        || !ASN1_TIME_set(X509_getm_notAfter(certificate), wish->not_after)
        || !X509_set_pubkey(certificate, pkey(wish->key))) {
        return 0;
    }
    // The issuer's key identifier is read from a certificate; a bare one with that key stands in for it.
    X509 *issuer = X509_new();
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    int good = X509_set_pubkey(issuer, pkey(wish->issuer_key));
    if (good && wish->basic_constraints) {
        good = add(certificate, &context, NID_basic_constraints, wish->basic_constraints);
    }
    if (good && wish->key_usage) good = add(certificate, &context, NID_key_usage, wish->key_usage);
    if (good && wish->key_identifiers) {
        X509V3_CTX own;
        X509V3_set_ctx(&own, issuer, issuer, NULL, NULL, 0);
        good = add(issuer, &own, NID_subject_key_identifier, "hash")
            && add(certificate, &context, NID_subject_key_identifier, "hash")
            && add(certificate, &context, NID_authority_key_identifier, "keyid:always");
    }
    const char *line = wish->markers;
    while (good && line && *line) {
        char oid[1024];
        size_t size = strcspn(line, "\n");
        int critical = *line == '!';
        if (size - critical >= sizeof oid) return 0;
        memcpy(oid, line + critical, size - critical);
        oid[size - critical] = 0;
        good = add_marker(certificate, oid, critical);
        line += size + (line[size] == '\n');
    }
    X509_free(issuer);
    return good;
}

int64_t ctestpki_certificate_der(const ctestpki_certificate *wish, uint8_t *out, uint64_t capacity) {
    X509 *certificate = X509_new();
    int64_t size = -1;
    if (certificate != NULL && fill(certificate, wish)
        && X509_sign(certificate, pkey(wish->issuer_key), EVP_get_digestbyname(wish->digest)) > 0) {
        size = i2d_X509(certificate, NULL);
        if (size > 0 && (uint64_t)size <= capacity) {
            unsigned char *cursor = out;
            i2d_X509(certificate, &cursor);
        } else {
            size = -1;
        }
    }
    X509_free(certificate);
    return size;
}

int ctestpki_sign(const ctestpki_key *key, const uint8_t *message, uint64_t length, uint8_t out[64]) {
    unsigned char der[160];
    size_t size = sizeof der;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    int made = context != NULL && EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, pkey(key)) == 1
        && EVP_DigestSign(context, der, &size, message, length) == 1;
    EVP_MD_CTX_free(context);
    if (!made) return 0;
    const unsigned char *cursor = der;
    ECDSA_SIG *signature = d2i_ECDSA_SIG(NULL, &cursor, (long)size);
    made = signature != NULL && BN_bn2binpad(ECDSA_SIG_get0_r(signature), out, 32) == 32
        && BN_bn2binpad(ECDSA_SIG_get0_s(signature), out + 32, 32) == 32;
    ECDSA_SIG_free(signature);
    return made;
}

int ctestpki_key_point(const ctestpki_key *key, uint8_t out[65]) {
    size_t length = 0;
    return EVP_PKEY_get_octet_string_param(pkey(key), OSSL_PKEY_PARAM_PUB_KEY, out, 65, &length) == 1 && length == 65
        && out[0] == 4;
}
