// A server in the place of Apple's AdServices, as cheap as one can be: it answers each POST after so many milliseconds
// with the same attribution and keeps its connections. One thread, epoll. Without a delay a caller would find its first
// answer before it has sent its second request, and no two would ever be in flight.
//
//   apple PORT MILLISECONDS
//
// SIGTERM ends it; it then prints how many it answered as one line of JSON.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 4096, MOST_BYTES = 16384, MOST_WAITING = 65536 };

static struct { char bytes[MOST_BYTES]; size_t size; } *received[MOST_CONNECTIONS];
// Which connection a descriptor stands for: an answer that was due to one before it goes nowhere.
static unsigned generations[MOST_CONNECTIONS];
// Answers in the order in which they are due, since all wait equally long.
static struct { long long due; int fd; unsigned generation; } waiting[MOST_WAITING];
static unsigned first, last;
static long long delay;
static long long answered;
static volatile sig_atomic_t stopping;

static void stop(int signal) {
    (void)signal;
    stopping = 1;
}

static char answer[1024];
static size_t answer_size;

static void make_answer(void) {
    const char *body =
        "{\"attribution\":true,\"orgId\":40669820,\"campaignId\":542370539,\"conversionType\":\"Download\","
        "\"clickDate\":\"2026-01-05T10:22Z\",\"claimType\":\"Click\",\"adGroupId\":542317095,"
        "\"countryOrRegion\":\"US\",\"adId\":542317136}";
    answer_size = snprintf(answer, sizeof answer,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
}

static long long milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

// Bytes of the first request, or 0 while it is not whole.
static size_t whole(const char *bytes, size_t size) {
    const char *end = memmem(bytes, size, "\r\n\r\n", 4);
    if (!end) return 0;
    const char *field = strcasestr(bytes, "\r\ncontent-length:");
    size_t body = field && field < end ? strtoul(field + 17, NULL, 10) : 0;
    size_t all = end + 4 - bytes + body;
    return all <= size ? all : 0;
}

static void drop(int fd) {
    free(received[fd]);
    received[fd] = NULL;
    generations[fd]++;
    close(fd);
}

static void answer_due(void) {
    long long now = milliseconds();
    for (; first != last && waiting[first % MOST_WAITING].due <= now; first++) {
        int fd = waiting[first % MOST_WAITING].fd;
        if (generations[fd] != waiting[first % MOST_WAITING].generation) continue;
        // One answer always fits into an empty socket buffer; callers here wait for it before they ask again.
        if (send(fd, answer, answer_size, MSG_NOSIGNAL) != (ssize_t)answer_size) drop(fd);
        else answered++;
    }
}

static void serve(int fd) {
    ssize_t count = recv(fd, received[fd]->bytes + received[fd]->size, MOST_BYTES - 1 - received[fd]->size, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return drop(fd);
    received[fd]->size += count;
    received[fd]->bytes[received[fd]->size] = 0;
    size_t all;
    while ((all = whole(received[fd]->bytes, received[fd]->size)) > 0) {
        if (last - first == MOST_WAITING) return drop(fd);
        waiting[last % MOST_WAITING].due = milliseconds() + delay;
        waiting[last % MOST_WAITING].fd = fd;
        waiting[last++ % MOST_WAITING].generation = generations[fd];
        received[fd]->size -= all;
        memmove(received[fd]->bytes, received[fd]->bytes + all, received[fd]->size + 1);
    }
    if (received[fd]->size == MOST_BYTES - 1) drop(fd);
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: apple PORT MILLISECONDS\n");
        return 2;
    }
    delay = atoi(arguments[2]);
    signal(SIGPIPE, SIG_IGN);
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    make_answer();
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(atoi(arguments[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024)) {
        perror("apple");
        return 1;
    }
    int poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    while (!stopping) {
        long long left = first == last ? -1 : waiting[first % MOST_WAITING].due - milliseconds();
        int ready = epoll_wait(poll, events, 256, first == last ? -1 : left > 0 ? left : 0);
        answer_due();
        for (int index = 0; index < ready; index++) {
            int fd = events[index].data.fd;
            if (fd != listener) {
                serve(fd);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                if (fd >= MOST_CONNECTIONS || !(received[fd] = calloc(1, sizeof *received[fd]))) {
                    close(fd);
                    continue;
                }
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                event = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
                epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
            }
        }
    }
    printf("{\"answered\":%lld}\n", answered);
    return 0;
}
