#include "CLinux.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

const int clinux_EAGAIN = EAGAIN;
const int clinux_ECONNRESET = ECONNRESET;
const int clinux_EMFILE = EMFILE;
const int clinux_ENFILE = ENFILE;

static uint32_t epoll_bits(uint32_t interest) {
    uint32_t bits = 0;
    if (interest & clinux_readable) bits |= EPOLLIN | EPOLLRDHUP;
    if (interest & clinux_writable) bits |= EPOLLOUT;
    return bits;
}

static int epoll_change(int epoll, int operation, int fd, uint32_t interest, uint64_t token) {
    struct epoll_event event = {.events = epoll_bits(interest), .data = {.u64 = token}};
    return epoll_ctl(epoll, operation, fd, &event) == 0 ? 0 : -errno;
}

int clinux_epoll_create(void) {
    int fd = epoll_create1(EPOLL_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

int clinux_epoll_add(int epoll, int fd, uint32_t interest, uint64_t token) {
    return epoll_change(epoll, EPOLL_CTL_ADD, fd, interest, token);
}

int clinux_epoll_modify(int epoll, int fd, uint32_t interest, uint64_t token) {
    return epoll_change(epoll, EPOLL_CTL_MOD, fd, interest, token);
}

int clinux_epoll_remove(int epoll, int fd) { return epoll_change(epoll, EPOLL_CTL_DEL, fd, 0, 0); }

int clinux_epoll_wait(int epoll, clinux_event *events, int capacity, int timeout_ms) {
    enum { most = 256 };
    struct epoll_event ready[most];
    if (capacity > most) capacity = most;
    int count = epoll_wait(epoll, ready, capacity, timeout_ms);
    if (count < 0) return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < count; i++) {
        uint32_t bits = 0;
        if (ready[i].events & (EPOLLIN | EPOLLRDHUP)) bits |= clinux_readable;
        if (ready[i].events & EPOLLOUT) bits |= clinux_writable;
        if (ready[i].events & (EPOLLERR | EPOLLHUP)) bits |= clinux_hangup;
        events[i].token = ready[i].data.u64;
        events[i].ready = bits;
    }
    return count;
}

int clinux_eventfd(void) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd >= 0 ? fd : -errno;
}

void clinux_eventfd_signal(int fd) {
    uint64_t one = 1;
    // A full counter (EAGAIN) already wakes the reader, so the result says nothing that matters.
    if (write(fd, &one, sizeof one) < 0) return;
}

void clinux_eventfd_clear(int fd) {
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0) return;
}

int clinux_listen_tcp(const char *host, uint16_t port, int backlog, int reuse_port) {
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, service, &hints, &found) != 0 || found == NULL) return -EINVAL;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int result = fd;
    if (fd < 0) {
        result = -errno;
    } else {
        int on = 1;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (reuse_port) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
        if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, backlog) != 0) {
            result = -errno;
            close(fd);
        }
    }
    freeaddrinfo(found);
    return result;
}

int clinux_local_port(int fd) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0) return -errno;
    if (address.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)&address)->sin_port);
    if (address.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return -EAFNOSUPPORT;
}

int clinux_accept(int listener, uint8_t out[16], uint16_t *port) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int fd = accept4(listener, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return -errno;
    memset(out, 0, 16);
    *port = 0;
    if (address.ss_family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
        out[10] = out[11] = 0xff;
        memcpy(out + 12, &v4->sin_addr, 4);
        *port = ntohs(v4->sin_port);
    } else if (address.ss_family == AF_INET6) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;
        memcpy(out, &v6->sin6_addr, 16);
        *port = ntohs(v6->sin6_port);
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

int64_t clinux_recv(int fd, void *buffer, uint64_t length) {
    for (;;) {
        ssize_t moved = recv(fd, buffer, length, 0);
        if (moved >= 0) return moved;
        if (errno != EINTR) return -errno;
    }
}

int64_t clinux_send(int fd, const void *buffer, uint64_t length) {
    for (;;) {
        ssize_t moved = send(fd, buffer, length, MSG_NOSIGNAL);
        if (moved >= 0) return moved;
        if (errno != EINTR) return -errno;
    }
}

int clinux_shutdown_send(int fd) { return shutdown(fd, SHUT_WR) == 0 ? 0 : -errno; }

int clinux_close(int fd) { return close(fd) == 0 ? 0 : -errno; }

int64_t clinux_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clinux_wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void clinux_name_thread(const char *name, int cpu) {
    char short_name[16];
    snprintf(short_name, sizeof short_name, "%s", name);
    pthread_setname_np(pthread_self(), short_name);
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
}

int64_t clinux_resident_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    long total = 0, resident = 0;
    int read = fscanf(file, "%ld %ld", &total, &resident);
    fclose(file);
    return read == 2 ? (int64_t)resident * sysconf(_SC_PAGESIZE) : 0;
}

int64_t clinux_cpu_us(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec
           + usage.ru_stime.tv_usec;
}
