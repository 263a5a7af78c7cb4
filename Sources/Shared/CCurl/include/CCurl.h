// The part of libcurl that Ratchet uses, behind plain C types: many POSTs at once over few connections. No system
// header is included here.
#ifndef RATCHET_CCURL_H
#define RATCHET_CCURL_H

#include <stdint.h>

/// Transfers, their connections, and the handles that wait to be used again. One thread owns it, but for
/// `ccurl_wake`.
typedef struct ccurl_calls ccurl_calls;

typedef struct {
    /// Connections to one host, and those kept open between calls.
    uint32_t most_connections;
    /// Of a whole call, name lookup and connecting included.
    uint32_t deadline_ms;
    uint32_t connect_deadline_ms;
    /// A longer body ends its call.
    uint32_t most_body_bytes;
    /// 1: `https_proxy`, `no_proxy` and the like hold. 0: they don't.
    int proxy_from_environment;
    /// PEM file of the roots to trust instead of the system's; NULL takes those.
    const char *roots;
    const char *user_agent;
} ccurl_options;

enum {
    ccurl_answered = 0,
    /// No whole answer came within the deadline.
    ccurl_late = 1,
    /// The answer's body is longer than wanted.
    ccurl_too_long = 2,
    /// Everything else: no address, no connection, no trust, an answer that broke off.
    ccurl_failed = 3,
};

typedef struct {
    uint64_t number;
    int outcome;
    /// Of HTTP; 0 when none came.
    int32_t status;
    /// Seconds that the answer asks to wait; -1 without.
    int64_t retry_after;
    /// 10, 11 or 20; 0 when none came.
    int32_t version;
    /// 1 when the call opened a connection.
    int32_t connected;
    /// Valid until the next call of any function here.
    const uint8_t *body;
    uint64_t length;
    const char *problem;
} ccurl_ended;

/// NULL when memory is short. The options' texts are copied.
ccurl_calls *ccurl_create(const ccurl_options *options);
/// Ends what is under way without a word, and closes all connections.
void ccurl_destroy(ccurl_calls *calls);

/// Starts a POST of plain text. URL and body are copied. 0, or a negative number when memory is short or the URL can't
/// be used at all.
int ccurl_start(ccurl_calls *calls, uint64_t number, const char *url, const uint8_t *body, uint64_t length);
/// Waits until something can move, the time is over, or `ccurl_wake`, then moves everything on. 0, or a negative number
/// when libcurl is broken beyond use.
int ccurl_turn(ccurl_calls *calls, int timeout_ms);
/// 1 and a call that has ended, else 0.
int ccurl_next(ccurl_calls *calls, ccurl_ended *out);
/// Ends a running or the next wait of `ccurl_turn`. Any thread.
void ccurl_wake(ccurl_calls *calls);

#endif
