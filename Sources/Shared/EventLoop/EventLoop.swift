internal import CLinux
internal import Glibc
internal import Synchronization

/// One epoll instance, one thread, one Swift executor.
///
/// A task started with the loop as its preferred executor runs on the loop's thread, so awaiting a reply that arrives
/// on one of the loop's descriptors costs a callback and no thread hop.
///
/// A turn of the loop is: ready descriptors, due timers, queued jobs until none is left (or they have had their share),
/// then the `atTurnEnd` work (one write per connection and turn). What that work queues belongs to the next turn.
///
/// `@unchecked Sendable`: `shared` is a Mutex; the descriptors are written once before the thread starts; every other
/// property is touched by the loop's own thread alone, which each entry point checks with `preconditionInLoop`.
package final class EventLoop: TaskExecutor, SerialExecutor, @unchecked Sendable {
    /// What a descriptor can wait for, and what it is told.
    package struct Readiness: OptionSet, Sendable {
        package let rawValue: UInt32
        package init(rawValue: UInt32) { self.rawValue = rawValue }
        /// Bytes, a connection or the peer's end of stream can be read.
        package static let readable = Readiness(rawValue: 1)
        /// The socket takes bytes again.
        package static let writable = Readiness(rawValue: 2)
        /// Error or full hang-up; told whether asked for or not.
        package static let hangup = Readiness(rawValue: 4)
    }

    /// Names one watched descriptor.
    package struct WatchToken: Hashable, Sendable { fileprivate let value: UInt64 }
    /// Names one scheduled timer.
    package struct TimerToken: Hashable, Sendable { fileprivate let value: UInt64 }

    private enum Work {
        /// Of a task that prefers this loop.
        case job(UnownedJob)
        /// Of an actor whose executor is this loop.
        case isolated(UnownedJob)
        case closure(@Sendable () -> Void)
    }

    private struct Shared {
        var incoming: [Work] = []
        var stopping = false
        /// Set with the decision to end, in the same critical section: nothing is queued after it.
        var ended = false
    }

    private struct Watch {
        let fd: Int32
        let handler: (Readiness) -> Void
    }

    /// Events handled per epoll_wait: enough to amortise the call, small enough that jobs never wait long.
    private static let eventsPerTurn = 256
    /// Rounds of queued work per turn. A request needs a handful; without a bound, a task that yields in a loop would
    /// keep descriptors, timers and the turn's end waiting for ever.
    private static let roundsPerTurn = 128

    package let time: any TimeSource
    private let name: String
    private let cpu: Int32
    private let epoll: Int32
    private let waker: Int32
    private let shared = Mutex(Shared())
    private let finished = ThreadGate()
    private let actors = ActorExecutor()

    private var local: [Work] = []
    /// The emptied buffers of the last round and of the last turn's end, so that a turn allocates nothing.
    private var spareWork: [Work] = []
    private var spareTurnEnd: [() -> Void] = []
    private var draining = false
    private var watches: [UInt64: Watch] = [:]
    private var nextToken: UInt64 = 1
    private var timers = TimerHeap()
    private var turnEnd: [() -> Void] = []

    /// Starts the loop's thread.
    /// - Parameters:
    ///   - name: the thread's name, 15 bytes at most.
    ///   - cpu: the core the thread is pinned to, or nil.
    ///   - time: the clock that timers follow.
    package init(name: String, cpu: Int? = nil, time: any TimeSource = SystemTime()) {
        self.name = name
        self.cpu = Int32(cpu ?? -1)
        self.time = time
        epoll = clinux_epoll_create()
        waker = clinux_eventfd()
        precondition(epoll >= 0 && waker >= 0, "no descriptors left for an event loop")
        let added = clinux_epoll_add(epoll, waker, UInt32(clinux_readable), 0)
        precondition(added == 0, "epoll refused an eventfd")
        actors.loop = self
        time.onJump { [weak self] in self?.wake() }
        startThread()
    }

    deinit {
        _ = clinux_close(epoll)
        _ = clinux_close(waker)
    }

    private func startThread() {
        var thread = pthread_t()
        // The thread owns a reference to the loop until it ends, so the loop can't be freed under it.
        let context = Unmanaged.passRetained(self).toOpaque()
        let result = pthread_create(
            &thread, nil,
            { raw in
                guard let raw else { return nil }
                let owner = Unmanaged<EventLoop>.fromOpaque(raw)
                let finished = owner._withUnsafeGuaranteedRef { loop in
                    loop.main()
                    return loop.finished
                }
                // Given up before the gate opens: whoever waited in `stop` holds the last reference.
                owner.release()
                finished.signal()
                return nil
            }, context)
        precondition(result == 0, "no thread left for an event loop")
        pthread_detach(thread)
    }

    // MARK: - Any thread

    /// The loop whose thread this is, if it is one.
    package static var current: EventLoop? {
        guard let raw = pthread_getspecific(loopKey) else { return nil }
        return Unmanaged<EventLoop>.fromOpaque(raw).takeUnretainedValue()
    }

    /// True on the loop's own thread.
    package var inLoop: Bool {
        pthread_getspecific(loopKey) == Unmanaged.passUnretained(self).toOpaque()
    }

    /// Traps when called off the loop's thread: the proof behind every type that is confined to a loop.
    @inline(__always)
    package func preconditionInLoop(_ function: StaticString = #function) {
        precondition(inLoop, "must run on its event loop")
    }

    /// Runs a closure on the loop, in the order of the calls from one thread. Safe from any thread. Once the loop has
    /// ended it is dropped unrun.
    package func execute(_ body: @escaping @Sendable () -> Void) {
        submit(.closure(body))
    }

    package func enqueue(_ job: consuming ExecutorJob) {
        submit(.job(UnownedJob(job)))
    }

    /// What an actor on this loop returns as its `unownedExecutor`; the actor must hold the loop.
    package func asUnownedSerialExecutor() -> UnownedSerialExecutor {
        UnownedSerialExecutor(ordinary: actors)
    }

    fileprivate func enqueueIsolated(_ job: consuming ExecutorJob) {
        submit(.isolated(UnownedJob(job)))
    }

    package func isSameExclusiveExecutionContext(other: EventLoop) -> Bool { self === other }

    package func checkIsolated() { preconditionInLoop() }

    /// Runs an async function on the loop's thread and waits for its result; cancelling the caller cancels it. Safe
    /// from any task. It never returns when the loop has ended.
    package func run<Result: Sendable>(
        _ body: @escaping @Sendable () async throws -> Result
    ) async throws -> Result {
        try await withTaskExecutorPreference(self, operation: body)
    }

    /// Starts a task on the loop's thread.
    @discardableResult
    package func spawn(_ body: @escaping @Sendable () async -> Void) -> Task<Void, Never> {
        Task(executorPreference: self, operation: body)
    }

    /// Suspends for a while of the injected clock; returns early (without an error) when the task is cancelled.
    package func sleep(milliseconds: Int64) async {
        let gate = SleepGate()
        await withTaskCancellationHandler {
            await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
                guard gate.arm(continuation) else { return }
                let arm: @Sendable () -> Void = { [self] in
                    let timer = schedule(afterMilliseconds: milliseconds) { gate.open() }
                    if !gate.hold(timer) { cancel(timer) }
                }
                if inLoop { arm() } else { execute(arm) }
            }
        } onCancel: {
            gate.open()
            // Left in the heap, the timer of a long sleep that was cut short would stay until its time.
            execute { [self] in
                if let timer = gate.takeTimer() { cancel(timer) }
            }
        }
    }

    /// Ends the loop's thread after the work already queued, timers and watched descriptors excepted: they are
    /// forgotten. The descriptors stay open: who opened them closes them first. Tasks still suspended on the loop never
    /// resume, so end them first too. Blocks until the thread has ended unless called on it; may be called twice.
    package func stop() {
        shared.withLock { $0.stopping = true }
        wake()
        if !inLoop { finished.wait() }
    }

    private func submit(_ work: Work) {
        if inLoop {
            local.append(work)
            return
        }
        let mustWake = shared.withLock { shared in
            // Kept, it would hold what it captured, often this loop, for ever.
            if shared.ended { return false }
            shared.incoming.append(work)
            return shared.incoming.count == 1
        }
        if mustWake { wake() }
    }

    private func wake() { clinux_eventfd_signal(waker) }

    // MARK: - The loop's thread

    /// Timers that will run, and entries that the heap holds for them and for cancelled ones: for tests.
    var liveTimers: Int { timers.count }
    var timerEntries: Int { timers.entries }

    /// Watches a descriptor, level-triggered. The handler runs on the loop; it may unwatch its own descriptor.
    /// - Returns: a token for `rewatch` and `unwatch`, or nil when the kernel refused (descriptor closed or limit met).
    package func watch(
        _ fd: Int32, for interest: Readiness, handler: @escaping (Readiness) -> Void
    ) -> WatchToken? {
        preconditionInLoop()
        let token = nextToken
        nextToken += 1
        guard clinux_epoll_add(epoll, fd, interest.rawValue, token) == 0 else { return nil }
        watches[token] = Watch(fd: fd, handler: handler)
        return WatchToken(value: token)
    }

    /// Changes what a watched descriptor waits for; an empty set keeps it registered and silent but for hang-ups.
    package func rewatch(_ token: WatchToken, for interest: Readiness) {
        preconditionInLoop()
        guard let watch = watches[token.value] else { return }
        _ = clinux_epoll_modify(epoll, watch.fd, interest.rawValue, token.value)
    }

    /// Forgets a descriptor. Must come before it is closed. Events of this turn for it are dropped.
    package func unwatch(_ token: WatchToken) {
        preconditionInLoop()
        guard let watch = watches.removeValue(forKey: token.value) else { return }
        _ = clinux_epoll_remove(epoll, watch.fd)
    }

    /// Runs a closure once, on the loop, after a delay of the injected clock.
    package func schedule(afterMilliseconds milliseconds: Int64, _ body: @escaping () -> Void) -> TimerToken {
        preconditionInLoop()
        let token = nextToken
        nextToken += 1
        let delay = max(0, milliseconds).multipliedReportingOverflow(by: 1_000_000)
        let due = time.monotonicNanoseconds.addingReportingOverflow(delay.overflow ? Int64.max : delay.partialValue)
        timers.insert(token: token, due: due.overflow ? Int64.max : due.partialValue, body: body)
        return TimerToken(value: token)
    }

    /// Forgets a timer; one that has run, or runs now, is left alone.
    package func cancel(_ token: TimerToken) {
        preconditionInLoop()
        // The body is let go after the heap's turn: freeing what it captured may cancel another timer.
        _ = timers.remove(token: token.value)
    }

    /// Runs a closure once at the end of this turn, after every job that the turn's events made runnable: the place to
    /// send what the turn gathered in one write.
    package func atTurnEnd(_ body: @escaping () -> Void) {
        preconditionInLoop()
        turnEnd.append(body)
    }

    private func main() {
        pthread_setspecific(loopKey, Unmanaged.passUnretained(self).toOpaque())
        clinux_name_thread(name, cpu)
        let events = UnsafeMutablePointer<clinux_event>.allocate(capacity: Self.eventsPerTurn)
        defer { events.deallocate() }
        while true {
            let count = clinux_epoll_wait(epoll, events, Int32(Self.eventsPerTurn), waitMilliseconds())
            precondition(count >= 0, "epoll_wait failed on the loop's own descriptor")
            for index in 0..<Int(count) {
                let event = events[index]
                if event.token == 0 {
                    clinux_eventfd_clear(waker)
                } else if let watch = watches[event.token] {
                    watch.handler(Readiness(rawValue: event.ready))
                }
            }
            let now = time.monotonicNanoseconds
            let newest = nextToken
            while let body = timers.popDue(now: now, olderThan: newest) { body() }
            drain()
            runTurnEnd()
            guard local.isEmpty, turnEnd.isEmpty else { continue }
            let ended = shared.withLock { shared in
                shared.ended = shared.stopping && shared.incoming.isEmpty
                return shared.ended
            }
            if ended { break }
        }
        forgetEverything()
        pthread_setspecific(loopKey, nil)
    }

    private func runTurnEnd() {
        guard !turnEnd.isEmpty else { return }
        var ending = spareTurnEnd
        spareTurnEnd = []
        swap(&ending, &turnEnd)
        for body in ending { body() }
        ending.removeAll(keepingCapacity: true)
        spareTurnEnd = ending
    }

    /// Lets go of what handlers and timers captured. That may run code that calls back into the loop, so everything is
    /// moved out before it is freed, and again until nothing new has come.
    private func forgetEverything() {
        while true {
            let watches = watches
            let timers = timers
            let work = (local, spareWork, turnEnd, spareTurnEnd)
            if watches.isEmpty && timers.isEmpty && work.0.isEmpty && work.2.isEmpty { return }
            self.watches = [:]
            self.timers = TimerHeap()
            (local, spareWork, turnEnd, spareTurnEnd) = ([], [], [], [])
            withExtendedLifetime((watches, timers, work)) {}
        }
    }

    /// Runs queued work until none is left or the turn has had its share; the rest is the next turn's. Never
    /// re-entered: draining from inside a running job corrupts the runtime's task allocator.
    private func drain() {
        precondition(!draining, "an event loop drained itself from inside a job")
        draining = true
        defer { draining = false }
        var batch = spareWork
        spareWork = []
        defer { spareWork = batch }
        for _ in 0..<Self.roundsPerTurn {
            swap(&batch, &local)
            shared.withLock { shared in
                if !shared.incoming.isEmpty {
                    batch.append(contentsOf: shared.incoming)
                    shared.incoming.removeAll(keepingCapacity: true)
                }
            }
            if batch.isEmpty { return }
            for work in batch {
                switch work {
                case .closure(let body): body()
                case .job(let job): job.runSynchronously(on: asUnownedTaskExecutor())
                case .isolated(let job):
                    job.runSynchronously(isolatedTo: asUnownedSerialExecutor(), taskExecutor: asUnownedTaskExecutor())
                }
            }
            batch.removeAll(keepingCapacity: true)
        }
    }

    private func waitMilliseconds() -> Int32 {
        if !local.isEmpty || !turnEnd.isEmpty { return 0 }
        if shared.withLock({ $0.stopping }) { return 0 }
        guard let due = timers.nextDue else { return -1 }
        let remaining = due - time.monotonicNanoseconds
        if remaining <= 0 { return 0 }
        // Rounded up: waking a little late is right, waking early would spin.
        return Int32(clamping: remaining / 1_000_000 + 1)
    }
}

/// The loop as actors see it. A job says only through which executor it came whether it is an actor's or a task's, and
/// each kind must be run as what it is: run as the other, it is queued again at every call between the two kinds.
///
/// `@unchecked Sendable`: `loop` is set once, before the loop's thread starts. Unowned, because the loop owns this
/// object, and an actor that queues jobs here holds the loop.
private final class ActorExecutor: SerialExecutor, @unchecked Sendable {
    unowned(unsafe) var loop: EventLoop!

    func enqueue(_ job: consuming ExecutorJob) { loop.enqueueIsolated(job) }

    func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }

    func checkIsolated() { loop.preconditionInLoop() }
}

/// The thread-specific slot that holds the running loop.
private let loopKey: pthread_key_t = {
    var key = pthread_key_t()
    pthread_key_create(&key, nil)
    return key
}()

/// Opens once: by its timer or by cancellation, whichever comes first.
private final class SleepGate: Sendable {
    private enum State {
        case idle
        case armed(UnsafeContinuation<Void, Never>)
        case open
    }
    private let state = Mutex(State.idle)
    private let timer = Mutex<EventLoop.TimerToken?>(nil)

    /// Remembers the timer that will open the gate.
    /// - Returns: false when the gate is open already, so that the timer has nothing to do.
    func hold(_ token: EventLoop.TimerToken) -> Bool {
        let isOpen = state.withLock { state in
            if case .open = state { return true }
            return false
        }
        if !isOpen { timer.withLock { $0 = token } }
        return !isOpen
    }

    func takeTimer() -> EventLoop.TimerToken? {
        timer.withLock { timer in
            defer { timer = nil }
            return timer
        }
    }

    /// False when the gate was opened before anyone waited; the continuation is then resumed at once.
    func arm(_ continuation: UnsafeContinuation<Void, Never>) -> Bool {
        let wasOpen = state.withLock { state in
            if case .open = state { return true }
            state = .armed(continuation)
            return false
        }
        if wasOpen { continuation.resume() }
        return !wasOpen
    }

    func open() {
        let waiting = state.withLock { state -> UnsafeContinuation<Void, Never>? in
            defer { state = .open }
            if case .armed(let continuation) = state { return continuation }
            return nil
        }
        waiting?.resume()
    }
}

/// A one-shot gate for joining the loop's thread, on a pthread condition.
///
/// `@unchecked Sendable`: the flag is read and written under the mutex alone; both primitives live in heap memory that
/// this object owns and frees.
private final class ThreadGate: @unchecked Sendable {
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private var open = false

    init() {
        pthread_mutex_init(mutex, nil)
        pthread_cond_init(condition, nil)
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    func signal() {
        pthread_mutex_lock(mutex)
        open = true
        pthread_cond_broadcast(condition)
        pthread_mutex_unlock(mutex)
    }

    func wait() {
        pthread_mutex_lock(mutex)
        while !open { pthread_cond_wait(condition, mutex) }
        pthread_mutex_unlock(mutex)
    }
}
