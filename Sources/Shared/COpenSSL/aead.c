#include "COpenSSL.h"

#include <openssl/evp.h>

int copenssl_aes256gcm_seal(
    const uint8_t key[32], const uint8_t nonce[12], const uint8_t *context, uint64_t context_length,
    const uint8_t *text, uint64_t length, uint8_t *out, uint8_t tag[16]) {
    if (context_length > INT32_MAX || length > INT32_MAX) return 0;
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    int written = 0, rest = 0;
    int done = cipher && EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, nonce) == 1
        && EVP_EncryptUpdate(cipher, NULL, &written, context, (int)context_length) == 1
        && EVP_EncryptUpdate(cipher, out, &written, text, (int)length) == 1 && (uint64_t)written == length
        && EVP_EncryptFinal_ex(cipher, out + written, &rest) == 1 && rest == 0
        && EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, 16, tag) == 1;
    EVP_CIPHER_CTX_free(cipher);
    return done;
}

int copenssl_aes256gcm_open(
    const uint8_t key[32], const uint8_t nonce[12], const uint8_t *context, uint64_t context_length,
    const uint8_t *text, uint64_t length, const uint8_t tag[16], uint8_t *out) {
    if (context_length > INT32_MAX || length > INT32_MAX) return 0;
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    int written = 0, rest = 0;
    int done = cipher && EVP_DecryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, nonce) == 1
        && EVP_DecryptUpdate(cipher, NULL, &written, context, (int)context_length) == 1
        && EVP_DecryptUpdate(cipher, out, &written, text, (int)length) == 1 && (uint64_t)written == length
        // The tag is an input here; OpenSSL takes it through a pointer that is not const, and only reads it.
        && EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, 16, (void *)tag) == 1
        && EVP_DecryptFinal_ex(cipher, out + written, &rest) == 1 && rest == 0;
    EVP_CIPHER_CTX_free(cipher);
    return done;
}
