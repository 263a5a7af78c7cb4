// Posts N tokens to a server, so many at once, by libcurl's multi interface with handles that are used again: what a
// sweeper's exchanges cost without a sweep.
//
//   asks URL TOKENS AT_ONCE
//
// Prints one line of JSON.
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_AT_ONCE = 1024, TOKEN_BYTES = 384 };

// One call with its own text; its handle is used again.
struct ask {
    CURL *easy;
    char token[TOKEN_BYTES + 1];
    size_t received;
};

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static size_t receive(char *bytes, size_t size, size_t count, void *context) {
    (void)bytes;
    ((struct ask *)context)->received += size * count;
    return size * count;
}

int main(int count, char **arguments) {
    long tokens = count == 4 ? atol(arguments[2]) : 0, most = count == 4 ? atol(arguments[3]) : 0;
    if (tokens < 1 || most < 1 || most > MOST_AT_ONCE) {
        fprintf(stderr, "usage: asks URL TOKENS AT_ONCE\n");
        return 2;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    CURLM *multi = curl_multi_init();
    curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, most);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, most);
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: text/plain");
    headers = curl_slist_append(headers, "Expect:");
    static struct ask asks[MOST_AT_ONCE];
    long started = 0, ended = 0, good = 0;
    double began = now(CLOCK_MONOTONIC), own = now(CLOCK_PROCESS_CPUTIME_ID);
    while (started < tokens && started < most) {
        struct ask *ask = &asks[started];
        ask->easy = curl_easy_init();
        curl_easy_setopt(ask->easy, CURLOPT_URL, arguments[1]);
        curl_easy_setopt(ask->easy, CURLOPT_PRIVATE, ask);
        curl_easy_setopt(ask->easy, CURLOPT_WRITEFUNCTION, receive);
        curl_easy_setopt(ask->easy, CURLOPT_WRITEDATA, ask);
        curl_easy_setopt(ask->easy, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(ask->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(ask->easy, CURLOPT_POSTFIELDSIZE, (long)TOKEN_BYTES);
        curl_easy_setopt(ask->easy, CURLOPT_POSTFIELDS, ask->token);
        curl_easy_setopt(ask->easy, CURLOPT_TIMEOUT_MS, 10000L);
        curl_easy_setopt(ask->easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(ask->easy, CURLOPT_PROXY, "");
        snprintf(ask->token, sizeof ask->token, "%0*ld", TOKEN_BYTES, started++);
        curl_multi_add_handle(multi, ask->easy);
    }
    while (ended < tokens) {
        int running, left;
        if (curl_multi_perform(multi, &running) != CURLM_OK) return 1;
        CURLMsg *message;
        while ((message = curl_multi_info_read(multi, &left))) {
            struct ask *ask;
            long status = 0;
            CURL *easy = message->easy_handle;
            curl_easy_getinfo(easy, CURLINFO_PRIVATE, &ask);
            curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
            good += message->data.result == CURLE_OK && status == 200 && ask->received > 0;
            ended++;
            curl_multi_remove_handle(multi, easy);
            if (started == tokens) continue;
            ask->received = 0;
            snprintf(ask->token, sizeof ask->token, "%0*ld", TOKEN_BYTES, started++);
            curl_multi_add_handle(multi, easy);
        }
        if (ended < tokens) curl_multi_poll(multi, NULL, 0, 1000, NULL);
    }
    printf("{\"asks\":%ld,\"seconds\":%f,\"cpuSeconds\":%f}\n", good, now(CLOCK_MONOTONIC) - began,
        now(CLOCK_PROCESS_CPUTIME_ID) - own);
    return good == tokens ? 0 : 1;
}
