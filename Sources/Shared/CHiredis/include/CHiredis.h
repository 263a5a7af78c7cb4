// The part of hiredis that Ratchet uses (its reply reader) and the sockets to feed it, behind plain C types. No
// hiredis or system header is included here. docs/decisions/001-redis-client.md says why only the reader.
#ifndef RATCHET_CHIREDIS_H
#define RATCHET_CHIREDIS_H

#include <stdint.h>

// MARK: Replies

/// An incremental RESP2 parser. One owner, one thread at a time.
typedef struct chiredis_reader chiredis_reader;
/// One parsed reply. A reply from `chiredis_reader_next` is freed by its caller; its elements go with it.
typedef struct chiredis_reply chiredis_reply;

enum {
    chiredis_kind_string = 1,
    chiredis_kind_array = 2,
    chiredis_kind_integer = 3,
    chiredis_kind_null = 4,
    chiredis_kind_status = 5,
    chiredis_kind_error = 6,
};

/// NULL when memory is short.
chiredis_reader *chiredis_reader_create(void);
void chiredis_reader_free(chiredis_reader *reader);
/// One recv of at most 64 KiB from a socket into the parser. Answers bytes read, 0 at end of stream, or a negative
/// errno (-ENOMEM too when the parser's buffer can't grow).
int64_t chiredis_reader_receive(chiredis_reader *reader, int fd);
/// 1 and a reply, 0 when more bytes are needed, -1 when the bytes are no RESP2 (the parser is then of no more use).
int chiredis_reader_next(chiredis_reader *reader, chiredis_reply **out);
/// What the parser disliked; valid until it is freed.
const char *chiredis_reader_problem(const chiredis_reader *reader);

int chiredis_reply_kind(const chiredis_reply *reply);
int64_t chiredis_reply_integer(const chiredis_reply *reply);
/// The bytes of a string, status or error reply; valid until the reply is freed.
const uint8_t *chiredis_reply_bytes(const chiredis_reply *reply);
uint64_t chiredis_reply_length(const chiredis_reply *reply);
/// The elements of an array reply.
uint64_t chiredis_reply_count(const chiredis_reply *reply);
const chiredis_reply *chiredis_reply_element(const chiredis_reply *reply, uint64_t index);
void chiredis_reply_free(chiredis_reply *reply);

// MARK: Sockets

/// A socket address as the kernel takes it.
typedef struct {
    uint32_t length;
    uint8_t bytes[28];
} chiredis_endpoint;

/// Looks a host up. With `numeric` only literal addresses are taken and nothing blocks; without it this may block for
/// seconds. Answers the number of endpoints filled in, or a negative EAI code.
int chiredis_resolve(const char *host, uint16_t port, int numeric, chiredis_endpoint *out, int capacity);
/// The text of an EAI code from `chiredis_resolve`.
const char *chiredis_resolve_problem(int code);
/// Start connecting a non-blocking, close-on-exec socket. Answer the descriptor or a negative errno; `*pending` is 1
/// when the outcome comes with writability (`chiredis_connect_result`).
int chiredis_connect_tcp(const chiredis_endpoint *endpoint, int *pending);
int chiredis_connect_unix(const char *path, int *pending);
/// 0 when connected, else a negative errno.
int chiredis_connect_result(int fd);
/// Bytes taken by the kernel or a negative errno; never raises SIGPIPE.
int64_t chiredis_send(int fd, const void *bytes, uint64_t length);
void chiredis_close(int fd);

extern const int chiredis_EAGAIN;

#endif
