// What Swift's Glibc module does not carry: epoll, eventfd, accept4, socket options and thread names. No system
// header is included here, because <sys/select.h> seen twice breaks debug builds.
#ifndef RATCHET_CLINUX_H
#define RATCHET_CLINUX_H

#include <stdint.h>

enum { clinux_readable = 1, clinux_writable = 2, clinux_hangup = 4 };

typedef struct {
    uint64_t token;   ///< The token the descriptor was registered with.
    uint32_t ready;   ///< clinux_readable | clinux_writable | clinux_hangup.
} clinux_event;

/// Every function answers a negative errno on failure, so that errno never has to cross into Swift.
int clinux_epoll_create(void);
int clinux_epoll_add(int epoll, int fd, uint32_t interest, uint64_t token);
int clinux_epoll_modify(int epoll, int fd, uint32_t interest, uint64_t token);
int clinux_epoll_remove(int epoll, int fd);
/// Waits at most timeout_ms (-1: for ever) and fills at most capacity events. EINTR answers 0.
int clinux_epoll_wait(int epoll, clinux_event *events, int capacity, int timeout_ms);

int clinux_eventfd(void);
void clinux_eventfd_signal(int fd);
void clinux_eventfd_clear(int fd);

/// Listens on a TCP address ("127.0.0.1", "::", port 0 for any) with SO_REUSEADDR and, when asked, SO_REUSEPORT.
int clinux_listen_tcp(const char *host, uint16_t port, int backlog, int reuse_port);
/// The port a socket is bound to.
int clinux_local_port(int fd);
/// Accepts one connection, non-blocking and close-on-exec, with TCP_NODELAY. `address` receives 16 bytes: an IPv6
/// address, or an IPv4 one mapped to ::ffff:a.b.c.d; all zero for a unix socket. `port` receives the peer's port.
int clinux_accept(int listener, uint8_t address[16], uint16_t *port);
/// recv/send that answer bytes moved, 0 at end of stream, or a negative errno (send never raises SIGPIPE).
int64_t clinux_recv(int fd, void *buffer, uint64_t length);
int64_t clinux_send(int fd, const void *buffer, uint64_t length);
/// Half-closes the sending side.
int clinux_shutdown_send(int fd);
int clinux_close(int fd);

/// Takes over SIGTERM and SIGINT of the process and makes SIGPIPE do nothing. The answer is a descriptor on which each
/// signal arrives as one byte, its number; it never blocks and lives as long as the process. Call it once.
int clinux_take_signals(void);
/// Sends a byte 0 down that descriptor; safe from any thread.
void clinux_wake_signals(void);
/// The entry of that number in the environment as `NAME=value`, NULL after the last.
const char *clinux_environment(int index);

/// Nanoseconds of CLOCK_MONOTONIC, and microseconds of CLOCK_REALTIME.
int64_t clinux_monotonic_ns(void);
int64_t clinux_wall_us(void);
/// Names the calling thread (15 bytes at most) and, when cpu >= 0, pins it there.
void clinux_name_thread(const char *name, int cpu);
/// Bytes of resident memory and microseconds of CPU time (user + system) of this process.
int64_t clinux_resident_bytes(void);
int64_t clinux_cpu_us(void);

extern const int clinux_EAGAIN;
extern const int clinux_ECONNRESET;
extern const int clinux_EMFILE;
extern const int clinux_ENFILE;

#endif
