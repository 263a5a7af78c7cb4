// Tells the thread sanitizer what orders memory inside the Swift libraries, which are not instrumented: without it,
// correct code reads as racing. Stands before the libraries' own functions in every program that `make sanitize` builds
// with the thread sanitizer; no part of the product. Checked against the libraries of Swift 6.3.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);
void *swift_task_getCurrent(void);

#define SWIFT __attribute__((swiftcall))
#define SELF __attribute__((swift_context)) void *self
#define ASYNC __attribute__((swiftasynccall))

// Synchronization.Mutex. The fast path is compiled into the caller, where the sanitizer sees its atomics. The slow one
// takes the lock by an atomic inside the library or from the kernel, and gives it up through the kernel: acquire after
// the one, release before the other.
#define LOCK_SLOW "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
#define TRY_LOCK_SLOW "$s15Synchronization12_MutexHandleV12_tryLockSlowSbyF"
#define UNLOCK_SLOW "$s15Synchronization12_MutexHandleV11_unlockSlowyyF"
SWIFT void lock_slow(uint32_t thread, SELF) __asm__(LOCK_SLOW);
SWIFT bool try_lock_slow(SELF) __asm__(TRY_LOCK_SLOW);
SWIFT void unlock_slow(SELF) __asm__(UNLOCK_SLOW);

// A continuation. Resuming it releases, and a task that was suspended acquires when it runs again. The library forgets
// one case: resumed from another thread before it is awaited, the task goes on at once and nothing acquires.
struct continuation {
    void *parent;
    ASYNC void (*resume)(__attribute__((swift_async_context)) struct continuation *);
    // The library uses the low bits alone; the address of the real `resume`, of 48 bits, is kept above them.
    uintptr_t flags;
};
enum { flag_bits = 16 };
ASYNC void swift_continuation_await(struct continuation *continuation);

static SWIFT void (*real_lock_slow)(uint32_t, SELF);
static SWIFT bool (*real_try_lock_slow)(SELF);
static SWIFT void (*real_unlock_slow)(SELF);
static ASYNC void (*real_await)(struct continuation *);

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) abort();
    return found;
}

__attribute__((constructor)) static void find(void) {
    real_lock_slow = real(LOCK_SLOW);
    real_try_lock_slow = real(TRY_LOCK_SLOW);
    real_unlock_slow = real(UNLOCK_SLOW);
    real_await = real("swift_continuation_await");
}

SWIFT void lock_slow(uint32_t thread, SELF) {
    real_lock_slow(thread, self);
    __tsan_acquire(self);
}

SWIFT bool try_lock_slow(SELF) {
    bool taken = real_try_lock_slow(self);
    if (taken) __tsan_acquire(self);
    return taken;
}

SWIFT void unlock_slow(SELF) {
    __tsan_release(self);
    real_unlock_slow(self);
}

// Called by the library in the forgotten case alone: a suspended task was given the real `resume` before.
static ASYNC void go_on_at_once(__attribute__((swift_async_context)) struct continuation *continuation) {
    __tsan_acquire(swift_task_getCurrent());
    continuation->resume = (void *)(continuation->flags >> flag_bits);
    __attribute__((musttail)) return continuation->resume(continuation);
}

ASYNC void swift_continuation_await(struct continuation *continuation) {
    continuation->flags |= (uintptr_t)continuation->resume << flag_bits;
    continuation->resume = go_on_at_once;
    __attribute__((musttail)) return real_await(continuation);
}
