// Has a process look for leaks when it ends by _exit, as the services do; LeakSanitizer looks only in exit handlers.
// Linked into every program that `make sanitize` builds with the address sanitizer; no part of the product.
#include <sys/syscall.h>
#include <unistd.h>

int __lsan_do_recoverable_leak_check(void);

void _exit(int code) {
    __lsan_do_recoverable_leak_check();
    for (;;) syscall(SYS_exit_group, code);
}
