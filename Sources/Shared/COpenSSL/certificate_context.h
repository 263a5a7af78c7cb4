#ifndef RATCHET_CERTIFICATE_CONTEXT_H
#define RATCHET_CERTIFICATE_CONTEXT_H

/// Where certificates are read and their signatures checked: an OSSL_LIB_CTX that has the default provider's digests and
/// signatures, and of its kinds of keys and their readers only EC and RSA. NULL, which is OpenSSL's own context, when it
/// can't be made. Lives as long as the process; any number of threads at once.
///
/// OpenSSL 3.0 gathers every reader of every kind of key anew for each certificate it reads (120 us, a sixth of a P-384
/// check); among so few that is 30.
struct ossl_lib_ctx_st *certificate_context(void);

#endif
