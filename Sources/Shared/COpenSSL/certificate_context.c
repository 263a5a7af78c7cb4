#include "certificate_context.h"

#include <string.h>

#include <openssl/core_dispatch.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/provider.h>

// EC and RSA keys, and a reader of each from SubjectPublicKeyInfo; the rest is room for names OpenSSL may add.
enum { most_algorithms = 8 };

// All set once by `create`, before the context that leads here is given out, and never changed or freed.
static OSSL_PROVIDER *provider;
static OSSL_ALGORITHM keys[most_algorithms + 1], readers[most_algorithms + 1];
static OSSL_LIB_CTX *context;

// A provider lists an algorithm as "EC:id-ecPublicKey:1.2.840.10045.2.1".
static int is_named(const OSSL_ALGORITHM *algorithm, const char *name) {
    size_t length = strlen(name);
    return strncmp(algorithm->algorithm_names, name, length) == 0
        && (algorithm->algorithm_names[length] == ':' || algorithm->algorithm_names[length] == 0);
}

static int is_reader(const OSSL_ALGORITHM *algorithm) {
    return strstr(algorithm->property_definition, "input=der") != NULL
        && strstr(algorithm->property_definition, "structure=SubjectPublicKeyInfo") != NULL;
}

static void choose(int operation, OSSL_ALGORITHM *out) {
    int no_cache = 0, count = 0;
    const OSSL_ALGORITHM *all = OSSL_PROVIDER_query_operation(provider, operation, &no_cache);
    for (; all != NULL && all->algorithm_names != NULL && count < most_algorithms; all++) {
        if (!is_named(all, "EC") && !is_named(all, "RSA")) continue;
        if (operation == OSSL_OP_DECODER && !is_reader(all)) continue;
        out[count++] = *all;
    }
}

static const OSSL_ALGORITHM *query(void *unused, int operation, int *no_cache) {
    (void)unused;
    switch (operation) {
        case OSSL_OP_KEYMGMT: *no_cache = 0; return keys;
        case OSSL_OP_DECODER: *no_cache = 0; return readers;
        case OSSL_OP_DIGEST:
        case OSSL_OP_SIGNATURE: return OSSL_PROVIDER_query_operation(provider, operation, no_cache);
        default: return NULL;
    }
}

// The algorithms are the default provider's, so they get its context.
static int initialize(
    const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in, const OSSL_DISPATCH **out, void **provider_context) {
    static const OSSL_DISPATCH functions[] = {
        {OSSL_FUNC_PROVIDER_QUERY_OPERATION, (void (*)(void))query},
        {0, NULL},
    };
    (void)handle, (void)in;
    *out = functions;
    *provider_context = OSSL_PROVIDER_get0_provider_ctx(provider);
    return 1;
}

static void create(void) {
    static const char name[] = "certificates";
    provider = OSSL_PROVIDER_load(NULL, "default");
    if (provider == NULL) return;
    choose(OSSL_OP_KEYMGMT, keys);
    choose(OSSL_OP_DECODER, readers);
    OSSL_LIB_CTX *made = OSSL_LIB_CTX_new();
    if (made != NULL && keys[0].algorithm_names != NULL && readers[0].algorithm_names != NULL
        && OSSL_PROVIDER_add_builtin(made, name, initialize) == 1 && OSSL_PROVIDER_load(made, name) != NULL) {
        context = made;
    } else {
        OSSL_LIB_CTX_free(made);
    }
    ERR_clear_error();
}

OSSL_LIB_CTX *certificate_context(void) {
    static CRYPTO_ONCE once = CRYPTO_ONCE_STATIC_INIT;
    return CRYPTO_THREAD_run_once(&once, create) == 1 ? context : NULL;
}
