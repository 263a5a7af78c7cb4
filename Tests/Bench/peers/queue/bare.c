// The queue's two ends in bare Redis commands, with as many bytes in as large batches: what Redis itself costs.
//
//   bare SOCKET add COUNT BATCH HEADER PAYLOAD     XADD, BATCH of them in one write
//   bare SOCKET settle COUNT BATCH                 XREADGROUP of BATCH, then XACK and XDEL of all of them in one write
//
// Prints {"seconds": s}, wall time.
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LARGEST_BATCH 4096

static void fail(const char *what) {
    fprintf(stderr, "bare: %s\n", what);
    exit(1);
}

static redisReply *next(redisContext *context) {
    redisReply *reply = NULL;
    if (redisGetReply(context, (void **)&reply) != REDIS_OK || reply == NULL) fail(context->errstr);
    if (reply->type == REDIS_REPLY_ERROR) fail(reply->str);
    return reply;
}

static void add(redisContext *context, long count, int batch, const char *header, const char *payload) {
    const char *words[] = {"XADD", "bare", "*", "h", header, "p", payload};
    for (long done = 0; done < count; done += batch) {
        for (int each = 0; each < batch; each++) redisAppendCommandArgv(context, 7, words, NULL);
        for (int each = 0; each < batch; each++) freeReplyObject(next(context));
    }
}

// Appends a command with the ids of a reply's entries behind its first words.
static void append_ids(redisContext *context, const char **words, int first, const redisReply *entries) {
    for (size_t each = 0; each < entries->elements; each++)
        words[first + each] = entries->element[each]->element[0]->str;
    redisAppendCommandArgv(context, first + (int)entries->elements, words, NULL);
}

static void settle(redisContext *context, long count, const char *batch) {
    const char *words[LARGEST_BATCH + 3];
    freeReplyObject(redisCommand(context, "XGROUP CREATE bare workers 0"));
    for (long done = 0; done < count;) {
        redisAppendCommand(context, "XREADGROUP GROUP workers bench COUNT %s STREAMS bare >", batch);
        redisReply *reply = next(context);
        if (reply->type != REDIS_REPLY_ARRAY) fail("fewer entries than expected");
        const redisReply *entries = reply->element[0]->element[1];
        words[0] = "XACK", words[1] = "bare", words[2] = "workers";
        append_ids(context, words, 3, entries);
        words[0] = "XDEL";
        append_ids(context, words, 2, entries);
        freeReplyObject(next(context));
        freeReplyObject(next(context));
        done += (long)entries->elements;
        freeReplyObject(reply);
    }
}

int main(int argc, char **argv) {
    if (argc != 5 && argc != 7) fail("see the head of this file");
    redisContext *context = redisConnectUnix(argv[1]);
    if (context == NULL || context->err) fail("redis is away");
    long count = atol(argv[3]);
    int batch = atoi(argv[4]);
    if (count < 1 || batch < 1 || batch > LARGEST_BATCH) fail("COUNT or BATCH is out of range");
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (strcmp(argv[2], "add") == 0 && argc == 7)
        add(context, count, batch, argv[5], argv[6]);
    else if (strcmp(argv[2], "settle") == 0)
        settle(context, count, argv[4]);
    else
        fail("add or settle");
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("{\"seconds\": %.6f}\n", (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
    redisFree(context);
    return 0;
}
