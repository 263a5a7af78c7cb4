#include "CHiredis.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <sys/socket.h>
#include <sys/types.h>

_Static_assert(chiredis_kind_string == REDIS_REPLY_STRING, "kinds are handed on as they are");
_Static_assert(chiredis_kind_array == REDIS_REPLY_ARRAY, "kinds are handed on as they are");
_Static_assert(chiredis_kind_integer == REDIS_REPLY_INTEGER, "kinds are handed on as they are");
_Static_assert(chiredis_kind_null == REDIS_REPLY_NIL, "kinds are handed on as they are");
_Static_assert(chiredis_kind_status == REDIS_REPLY_STATUS, "kinds are handed on as they are");
_Static_assert(chiredis_kind_error == REDIS_REPLY_ERROR, "kinds are handed on as they are");

// The two opaque types of the header are hiredis' own under another name.
static redisReader *reader_of(const chiredis_reader *reader) { return (redisReader *)reader; }
static const redisReply *reply_of(const chiredis_reply *reply) { return (const redisReply *)reply; }

chiredis_reader *chiredis_reader_create(void) {
    redisReader *reader = redisReaderCreate();
    // Empty buffers above this are freed; the default of 16 KiB would allocate anew for each of our 64 KiB reads.
    if (reader != NULL) reader->maxbuf = 256 * 1024;
    return (chiredis_reader *)reader;
}

void chiredis_reader_free(chiredis_reader *reader) { redisReaderFree(reader_of(reader)); }

int64_t chiredis_reader_receive(chiredis_reader *reader, int fd) {
    char buffer[64 * 1024];
    ssize_t count;
    do {
        count = recv(fd, buffer, sizeof buffer, 0);
    } while (count < 0 && errno == EINTR);
    if (count < 0) return -errno;
    if (count > 0 && redisReaderFeed(reader_of(reader), buffer, (size_t)count) != REDIS_OK) return -ENOMEM;
    return count;
}

int chiredis_reader_next(chiredis_reader *reader, chiredis_reply **out) {
    void *reply = NULL;
    if (redisReaderGetReply(reader_of(reader), &reply) != REDIS_OK) return -1;
    *out = reply;
    return reply != NULL;
}

const char *chiredis_reader_problem(const chiredis_reader *reader) { return reader_of(reader)->errstr; }

int chiredis_reply_kind(const chiredis_reply *reply) { return reply_of(reply)->type; }
int64_t chiredis_reply_integer(const chiredis_reply *reply) { return reply_of(reply)->integer; }
const uint8_t *chiredis_reply_bytes(const chiredis_reply *reply) { return (const uint8_t *)reply_of(reply)->str; }
uint64_t chiredis_reply_length(const chiredis_reply *reply) { return reply_of(reply)->len; }
uint64_t chiredis_reply_count(const chiredis_reply *reply) { return reply_of(reply)->elements; }
const chiredis_reply *chiredis_reply_element(const chiredis_reply *reply, uint64_t index) {
    return (const chiredis_reply *)reply_of(reply)->element[index];
}
void chiredis_reply_free(chiredis_reply *reply) { freeReplyObject(reply); }
