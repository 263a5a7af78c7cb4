#include "CCurl.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

/// One transfer and what came of it so far.
typedef struct call {
    CURL *easy;
    ccurl_calls *owner;
    uint64_t number;
    uint8_t *body;
    size_t length, capacity;
    int too_long;
    char problem[CURL_ERROR_SIZE];
    struct call *next;
} call;

struct ccurl_calls {
    CURLM *multi;
    /// What libcurl's sockets and `waker` are watched with. With curl_multi_poll every turn goes through all transfers,
    /// here through those that can move.
    int epoll, waker;
    /// When libcurl wants to be called though nothing moves, milliseconds of the monotonic clock; -1 never.
    int64_t timer;
    struct curl_slist *headers;
    ccurl_options options;
    char *roots, *user_agent;
    /// All that exist, and those not in use.
    call **all;
    size_t count, capacity;
    call *idle;
    /// Whose body was lent by the last `ccurl_next`.
    call *lent;
};

static pthread_once_t initialized = PTHREAD_ONCE_INIT;
static CURLcode init_result;
static void initialize(void) { init_result = curl_global_init(CURL_GLOBAL_DEFAULT); }

static size_t receive(char *bytes, size_t size, size_t count, void *context) {
    call *call = context;
    size_t length = size * count, most = call->owner->options.most_body_bytes;
    if (length > most - call->length) {
        call->too_long = 1;
        return 0;
    }
    if (call->length + length > call->capacity) {
        size_t capacity = (call->length + length) * 2;
        if (capacity > most) capacity = most;
        uint8_t *body = realloc(call->body, capacity);
        if (!body) return 0;
        call->body = body;
        call->capacity = capacity;
    }
    memcpy(call->body + call->length, bytes, length);
    call->length += length;
    return length;
}

/// What is the same for all calls.
static int set_up(call *call) {
    const ccurl_calls *calls = call->owner;
    CURL *easy = call->easy;
    int fine = 1;
#define SET(option, value) fine = fine && curl_easy_setopt(easy, option, value) == CURLE_OK
    SET(CURLOPT_PRIVATE, call);
    SET(CURLOPT_WRITEFUNCTION, receive);
    SET(CURLOPT_WRITEDATA, call);
    SET(CURLOPT_ERRORBUFFER, call->problem);
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_HTTPHEADER, calls->headers);
    SET(CURLOPT_USERAGENT, calls->user_agent);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (calls->roots) {
        SET(CURLOPT_CAINFO, calls->roots);
        SET(CURLOPT_CAPATH, NULL);
    }
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    SET(CURLOPT_TIMEOUT_MS, (long)calls->options.deadline_ms);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)calls->options.connect_deadline_ms);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    if (!calls->options.proxy_from_environment) SET(CURLOPT_PROXY, "");
#undef SET
    return fine;
}

static call *take(ccurl_calls *calls) {
    if (calls->idle) {
        call *call = calls->idle;
        calls->idle = call->next;
        return call;
    }
    if (calls->count == calls->capacity) {
        size_t capacity = calls->capacity ? calls->capacity * 2 : 16;
        call **all = realloc(calls->all, capacity * sizeof *all);
        if (!all) return NULL;
        calls->all = all;
        calls->capacity = capacity;
    }
    call *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->owner = calls;
    made->easy = curl_easy_init();
    if (!made->easy || !set_up(made)) {
        if (made->easy) curl_easy_cleanup(made->easy);
        free(made);
        return NULL;
    }
    calls->all[calls->count++] = made;
    return made;
}

static void give_back(ccurl_calls *calls, call *call) {
    call->next = calls->idle;
    calls->idle = call;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int on_socket(CURL *easy, curl_socket_t socket, int what, void *context, void *watched) {
    (void)easy;
    ccurl_calls *calls = context;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(calls->epoll, EPOLL_CTL_DEL, socket, NULL);
        return 0;
    }
    struct epoll_event event = {.data.fd = socket};
    if (what & CURL_POLL_IN) event.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) event.events |= EPOLLOUT;
    if (epoll_ctl(calls->epoll, watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, socket, &event) != 0) return -1;
    // Anything but NULL: that the socket is watched.
    if (!watched) curl_multi_assign(calls->multi, socket, calls);
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *context) {
    (void)multi;
    ((ccurl_calls *)context)->timer = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
    return 0;
}

ccurl_calls *ccurl_create(const ccurl_options *options) {
    pthread_once(&initialized, initialize);
    if (init_result != CURLE_OK) return NULL;
    ccurl_calls *calls = calloc(1, sizeof *calls);
    if (!calls) return NULL;
    calls->options = *options;
    calls->roots = options->roots ? strdup(options->roots) : NULL;
    calls->user_agent = strdup(options->user_agent);
    calls->options.roots = calls->options.user_agent = NULL;
    calls->multi = curl_multi_init();
    calls->timer = -1;
    calls->epoll = epoll_create1(EPOLL_CLOEXEC);
    calls->waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = calls->waker};
    int watches = calls->epoll >= 0 && calls->waker >= 0
        && epoll_ctl(calls->epoll, EPOLL_CTL_ADD, calls->waker, &event) == 0;
    // The body is text and nothing is negotiated about it.
    calls->headers = curl_slist_append(NULL, "Content-Type: text/plain");
    struct curl_slist *more = calls->headers ? curl_slist_append(calls->headers, "Accept: application/json") : NULL;
    if (!calls->multi || !watches || !more || !calls->user_agent || (options->roots && !calls->roots)) {
        ccurl_destroy(calls);
        return NULL;
    }
    long most = (long)options->most_connections;
    curl_multi_setopt(calls->multi, CURLMOPT_MAX_HOST_CONNECTIONS, most);
    curl_multi_setopt(calls->multi, CURLMOPT_MAXCONNECTS, most);
    curl_multi_setopt(calls->multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    curl_multi_setopt(calls->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(calls->multi, CURLMOPT_SOCKETDATA, calls);
    curl_multi_setopt(calls->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(calls->multi, CURLMOPT_TIMERDATA, calls);
    return calls;
}

void ccurl_destroy(ccurl_calls *calls) {
    for (size_t index = 0; index < calls->count; index++) {
        call *call = calls->all[index];
        curl_multi_remove_handle(calls->multi, call->easy);
        curl_easy_cleanup(call->easy);
        free(call->body);
        free(call);
    }
    if (calls->multi) curl_multi_cleanup(calls->multi);
    if (calls->epoll >= 0) close(calls->epoll);
    if (calls->waker >= 0) close(calls->waker);
    curl_slist_free_all(calls->headers);
    free(calls->all);
    free(calls->roots);
    free(calls->user_agent);
    free(calls);
}

int ccurl_start(ccurl_calls *calls, uint64_t number, const char *url, const uint8_t *body, uint64_t length) {
    call *call = take(calls);
    if (!call) return -1;
    call->number = number;
    call->length = 0;
    call->too_long = 0;
    call->problem[0] = 0;
    // Calls that start together wait to learn whether they can share a connection. TLS tells at once; without it they
    // would wait for a whole answer.
    long waits = strncmp(url, "https://", 8) == 0;
    // The size first: with it the copy may hold any byte.
    if (curl_easy_setopt(call->easy, CURLOPT_URL, url) != CURLE_OK
        || curl_easy_setopt(call->easy, CURLOPT_PIPEWAIT, waits) != CURLE_OK
        || curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length) != CURLE_OK
        || curl_easy_setopt(call->easy, CURLOPT_COPYPOSTFIELDS, (const char *)body) != CURLE_OK
        || curl_multi_add_handle(calls->multi, call->easy) != CURLM_OK) {
        give_back(calls, call);
        return -1;
    }
    return 0;
}

int ccurl_turn(ccurl_calls *calls, int timeout_ms) {
    // So many in one turn; what is left shows again in the next.
    struct epoll_event events[256];
    int64_t wait = timeout_ms;
    if (calls->timer >= 0) {
        int64_t left = calls->timer - now_ms();
        wait = left < 0 ? 0 : left < wait ? left : wait;
    }
    int running, ready = epoll_wait(calls->epoll, events, sizeof events / sizeof *events, (int)wait);
    if (ready < 0 && errno != EINTR) return -1;
    for (int index = 0; index < ready; index++) {
        int fd = events[index].data.fd;
        if (fd == calls->waker) {
            uint64_t count;
            // It fails when another read came first, which is as well.
            (void)!read(fd, &count, sizeof count);
            continue;
        }
        int moves = (events[index].events & EPOLLIN ? CURL_CSELECT_IN : 0)
            | (events[index].events & EPOLLOUT ? CURL_CSELECT_OUT : 0)
            | (events[index].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        if (curl_multi_socket_action(calls->multi, fd, moves, &running) != CURLM_OK) return -1;
    }
    if (calls->timer >= 0 && calls->timer <= now_ms()) {
        calls->timer = -1;
        if (curl_multi_socket_action(calls->multi, CURL_SOCKET_TIMEOUT, 0, &running) != CURLM_OK) return -1;
    }
    return 0;
}

int ccurl_next(ccurl_calls *calls, ccurl_ended *out) {
    if (calls->lent) {
        give_back(calls, calls->lent);
        calls->lent = NULL;
    }
    CURLMsg *message;
    int left;
    do {
        message = curl_multi_info_read(calls->multi, &left);
        if (!message) return 0;
    } while (message->msg != CURLMSG_DONE);
    CURLcode code = message->data.result;
    CURL *easy = message->easy_handle;
    call *call = NULL;
    long status = 0, version = 0, connects = 0;
    curl_off_t retry_after = 0;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_HTTP_VERSION, &version);
    curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connects);
    curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_after);
    // The message dies with this.
    curl_multi_remove_handle(calls->multi, easy);
    // The copy of the body was a secret: libcurl frees it when another takes its place, so one does.
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)0);
    curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, "");
    memset(out, 0, sizeof *out);
    out->number = call->number;
    out->status = (int32_t)status;
    out->retry_after = retry_after > 0 ? (int64_t)retry_after : -1;
    out->version = version == CURL_HTTP_VERSION_2_0   ? 20
                 : version == CURL_HTTP_VERSION_1_1   ? 11
                 : version == CURL_HTTP_VERSION_1_0   ? 10
                                                      : 0;
    out->connected = connects > 0;
    out->body = call->body;
    out->length = call->length;
    if (code == CURLE_OK) {
        out->outcome = ccurl_answered;
        out->problem = "";
    } else {
        out->outcome = call->too_long                  ? ccurl_too_long
                     : code == CURLE_OPERATION_TIMEDOUT ? ccurl_late
                                                        : ccurl_failed;
        out->problem = call->problem[0] ? call->problem : curl_easy_strerror(code);
    }
    calls->lent = call;
    return 1;
}

void ccurl_wake(ccurl_calls *calls) {
    uint64_t one = 1;
    // It fails only when the counter is full, and then the thread wakes anyhow.
    (void)!write(calls->waker, &one, sizeof one);
}
