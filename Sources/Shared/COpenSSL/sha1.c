#include "COpenSSL.h"

#include <openssl/sha.h>

void copenssl_sha1(const uint8_t *bytes, uint64_t length, uint8_t out[20]) { SHA1(bytes, length, out); }
