#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static volatile sig_atomic_t signal_fd = -1;

// Does nothing but write(2), which signal-safety(7) allows, and leaves errno as the interrupted code had it.
static void forward(int number) {
    int saved = errno;
    uint8_t byte = (uint8_t)number;
    // A full pipe already holds orders to stop, so a failed write loses nothing.
    ssize_t written = write(signal_fd, &byte, 1);
    (void)written;
    errno = saved;
}

int clinux_take_signals(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -errno;
    signal_fd = ends[1];
    struct sigaction forwarding = {.sa_handler = forward, .sa_flags = SA_RESTART};
    struct sigaction ignoring = {.sa_handler = SIG_IGN};
    sigemptyset(&forwarding.sa_mask);
    sigemptyset(&ignoring.sa_mask);
    if (sigaction(SIGTERM, &forwarding, NULL) != 0 || sigaction(SIGINT, &forwarding, NULL) != 0
        || sigaction(SIGPIPE, &ignoring, NULL) != 0)
        return -errno;
    return ends[0];
}

void clinux_wake_signals(void) { forward(0); }

const char *clinux_environment(int index) {
    for (int at = 0; environ != NULL && environ[at] != NULL; at++)
        if (at == index) return environ[at];
    return NULL;
}
