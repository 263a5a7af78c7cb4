// A server in the place of Apple's AdServices, as cheap as one can be: it answers each POST at once with the same
// attribution and keeps its connections. One thread, epoll.
//
//   apple PORT
//
// SIGTERM ends it; it then prints how many it answered as one line of JSON.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 4096, MOST_BYTES = 16384 };

static struct { char bytes[MOST_BYTES]; size_t size; } *received[MOST_CONNECTIONS];
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
    close(fd);
}

static void serve(int fd) {
    ssize_t count = recv(fd, received[fd]->bytes + received[fd]->size, MOST_BYTES - 1 - received[fd]->size, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return drop(fd);
    received[fd]->size += count;
    received[fd]->bytes[received[fd]->size] = 0;
    size_t all;
    while ((all = whole(received[fd]->bytes, received[fd]->size)) > 0) {
        // One answer always fits into an empty socket buffer; callers here wait for it before they ask again.
        if (send(fd, answer, answer_size, MSG_NOSIGNAL) != (ssize_t)answer_size) return drop(fd);
        answered++;
        received[fd]->size -= all;
        memmove(received[fd]->bytes, received[fd]->bytes + all, received[fd]->size + 1);
    }
    if (received[fd]->size == MOST_BYTES - 1) drop(fd);
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: apple PORT\n");
        return 2;
    }
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
        int ready = epoll_wait(poll, events, 256, -1);
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
