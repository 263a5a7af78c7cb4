#include "CHiredis.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

const int chiredis_EAGAIN = EAGAIN;

int chiredis_resolve(const char *host, uint16_t port, int numeric, chiredis_endpoint *out, int capacity) {
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (numeric ? AI_NUMERICHOST : 0)};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(host, service, &hints, &found);
    if (code != 0) return code < 0 ? code : -code;
    int count = 0;
    for (struct addrinfo *at = found; at != NULL && count < capacity; at = at->ai_next) {
        if (at->ai_addrlen > sizeof out->bytes) continue;
        out[count].length = at->ai_addrlen;
        memcpy(out[count].bytes, at->ai_addr, at->ai_addrlen);
        count++;
    }
    freeaddrinfo(found);
    return count > 0 ? count : EAI_NONAME;
}

const char *chiredis_resolve_problem(int code) { return gai_strerror(code); }

static int start(int family, const void *address, socklen_t length, int *pending) {
    *pending = 0;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    if (family != AF_UNIX) {
        int on = 1, idle = 15, interval = 5, probes = 3;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        // A peer that vanished without a word is noticed on an idle connection after half a minute.
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    }
    if (connect(fd, address, length) == 0) return fd;
    // An interrupted connect goes on in the background like one in progress (connect(2)).
    if (errno == EINPROGRESS || errno == EINTR) {
        *pending = 1;
        return fd;
    }
    int code = -errno;
    close(fd);
    return code;
}

int chiredis_connect_tcp(const chiredis_endpoint *endpoint, int *pending) {
    struct sockaddr_storage address;
    memset(&address, 0, sizeof address);
    if (endpoint->length > sizeof endpoint->bytes) return -EINVAL;
    memcpy(&address, endpoint->bytes, endpoint->length);
    return start(address.ss_family, &address, endpoint->length, pending);
}

int chiredis_connect_unix(const char *path, int *pending) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    return start(AF_UNIX, &address, sizeof address, pending);
}

int chiredis_connect_result(int fd) {
    int code = 0;
    socklen_t length = sizeof code;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length) != 0) return -errno;
    return -code;
}

int64_t chiredis_send(int fd, const void *bytes, uint64_t length) {
    for (;;) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent >= 0) return sent;
        if (errno != EINTR) return -errno;
    }
}

void chiredis_close(int fd) { close(fd); }
