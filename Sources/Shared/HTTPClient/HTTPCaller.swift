internal import CCurl
internal import EventLoop
internal import Glibc
internal import Synchronization

/// Posts plain text to web servers: many calls at once over few connections that stay open, HTTP/2 where a server offers
/// it, a deadline for each, no redirects, no other scheme than http and https, certificates checked.
///
/// All of libcurl runs on one thread of the caller's own: a name lookup or a handshake never holds up an event loop, and
/// none of its handles is touched from two threads. Safe from any thread.
package final class HTTPCaller: Sendable {
    package struct Configuration: Sendable {
        /// Connections to one host at a time, and those kept between calls.
        package var mostConnections = 32
        /// Of a whole call, name lookup and connecting included.
        package var deadlineMilliseconds: Int64 = 10_000
        /// A server that doesn't take a connection for so long is away.
        package var connectDeadlineMilliseconds: Int64 = 5_000
        package var mostBodyBytes = 65_536
        /// Whether `https_proxy`, `no_proxy` and the like hold, as libcurl reads them.
        package var proxyFromEnvironment = false
        /// A PEM file of the roots to trust instead of the system's.
        package var roots: String?
        package var userAgent = "ratchet"

        package init() {}
    }

    private struct Call {
        let number: UInt64
        let url: String
        let body: [UInt8]
    }

    private struct Waiting {
        let tell: @Sendable (HTTPCallResult) -> Void
        /// Where it is told, when it was posted from one.
        let loop: EventLoop?
    }

    private struct State {
        var nextNumber: UInt64 = 1
        /// Not yet known to the thread.
        var new: [Call] = []
        var waiting: [UInt64: Waiting] = [:]
        var closing = false
        /// Nil once the thread has freed it. Other threads only wake it, and only while they hold the lock.
        nonisolated(unsafe) var calls: OpaquePointer?
    }

    private let state: Mutex<State>

    /// How long the thread sleeps when nothing happens; every change wakes it.
    private static let idleMilliseconds: Int32 = 60_000

    /// Starts the thread. `close` must be called in the end.
    package init(_ configuration: Configuration) {
        var options = ccurl_options()
        options.most_connections = UInt32(clamping: configuration.mostConnections)
        options.deadline_ms = UInt32(clamping: configuration.deadlineMilliseconds)
        options.connect_deadline_ms = UInt32(clamping: configuration.connectDeadlineMilliseconds)
        options.most_body_bytes = UInt32(clamping: configuration.mostBodyBytes)
        options.proxy_from_environment = configuration.proxyFromEnvironment ? 1 : 0
        let calls = configuration.userAgent.withCString { agent in
            options.user_agent = agent
            guard let roots = configuration.roots else { return ccurl_create(&options) }
            return roots.withCString { path in
                options.roots = path
                return ccurl_create(&options)
            }
        }
        precondition(calls != nil, "no memory for libcurl")
        state = Mutex(State(calls: calls))
        startThread()
    }

    private func startThread() {
        var thread = pthread_t()
        // The thread holds the caller until it is closed.
        let context = Unmanaged.passRetained(self).toOpaque()
        let result = pthread_create(
            &thread, nil,
            { raw in
                guard let raw else { return nil }
                Unmanaged<HTTPCaller>.fromOpaque(raw).takeRetainedValue().main()
                return nil
            }, context)
        precondition(result == 0, "no thread left for HTTP calls")
        pthread_detach(thread)
    }

    /// Posts a text and waits for what comes of it, at the latest the deadline. Cancelling the task does not end the
    /// call. How many run at once is the caller's to bound.
    package func post(_ body: [UInt8], to url: String) async -> HTTPCallResult {
        await withUnsafeContinuation { continuation in post(body, to: url) { continuation.resume(returning: $0) } }
    }

    /// Posts a text without a task that waits.
    /// - Parameter tell: called once with what came of it: on the event loop from which it was posted, and then never before
    ///   this returns; else on any thread, where it must be quick.
    package func post(_ body: [UInt8], to url: String, tell: @escaping @Sendable (HTTPCallResult) -> Void) {
        let loop = EventLoop.current
        let isOpen = state.withLock { state in
            guard !state.closing, let calls = state.calls else { return false }
            let number = state.nextNumber
            state.nextNumber += 1
            state.waiting[number] = Waiting(tell: tell, loop: loop)
            state.new.append(Call(number: number, url: url, body: body))
            guard state.new.count == 1 else { return true }
            // Once for all that a turn of the loop posts: a thread that wakes for the first of them takes the core from
            // the loop.
            if let loop { loop.atTurnEnd { self.wake() } } else { ccurl_wake(calls) }
            return true
        }
        guard !isOpen else { return }
        let closed: @Sendable () -> Void = { tell(.failed(HTTPCallFailure(.closed, "the caller is closed"))) }
        if let loop { loop.execute(closed) } else { closed() }
    }

    private func wake() {
        state.withLock { if let calls = $0.calls { ccurl_wake(calls) } }
    }

    /// False once `close` was called, or libcurl broke beyond use: nothing will be posted any more.
    package var isOpen: Bool { state.withLock { !$0.closing } }

    /// Ends the thread; calls under way fail with `.closed`.
    package func close() {
        state.withLock { state in
            state.closing = true
            if let calls = state.calls { ccurl_wake(calls) }
        }
    }

    private func main() {
        // Set before the thread started and freed below by this thread alone.
        guard let calls = state.withLock({ state in SendablePointer(state.calls) }).value else { return }
        while true {
            let (new, closing) = state.withLock { state in
                defer { state.new = [] }
                return (state.new, state.closing)
            }
            if closing { break }
            var results: [(UInt64, HTTPCallResult)] = []
            for call in new where ccurl_start(calls, call.number, call.url, call.body, UInt64(call.body.count)) != 0 {
                results.append(
                    (call.number, .failed(HTTPCallFailure(.unreachable, "the call could not be started"))))
            }
            end(results)
            results = []
            guard ccurl_turn(calls, Self.idleMilliseconds) == 0 else { break }
            var ended = ccurl_ended()
            while ccurl_next(calls, &ended) == 1 { results.append((ended.number, Self.result(ended))) }
            end(results)
        }
        let left: [(Waiting, HTTPCallResult)] = state.withLock { state in
            state.closing = true
            state.calls = nil
            defer { state.waiting = [:] }
            return state.waiting.values.map { ($0, .failed(HTTPCallFailure(.closed, "the caller is closed"))) }
        }
        ccurl_destroy(calls)
        Self.tell(left)
    }

    private func end(_ results: [(UInt64, HTTPCallResult)]) {
        guard !results.isEmpty else { return }
        Self.tell(
            state.withLock { state in
                results.compactMap { number, result in
                    state.waiting.removeValue(forKey: number).map { ($0, result) }
                }
            })
    }

    /// A loop is told of all that ended together at once: told one by one it would wake at the first, and take the core
    /// from this thread for each.
    private static func tell(_ ended: [(Waiting, HTTPCallResult)]) {
        for calls in Dictionary(grouping: ended, by: { $0.0.loop.map(ObjectIdentifier.init) }).values {
            let tell: @Sendable () -> Void = { for (waiting, result) in calls { waiting.tell(result) } }
            if let loop = calls[0].0.loop { loop.execute(tell) } else { tell() }
        }
    }

    private static func result(_ ended: ccurl_ended) -> HTTPCallResult {
        let problem = String(cString: ended.problem)
        switch Int(ended.outcome) {
        case ccurl_answered:
            let body = Array(UnsafeBufferPointer(start: ended.body, count: Int(ended.length)))
            return .answered(
                HTTPAnswer(
                    status: Int(ended.status), body: body,
                    retryAfterSeconds: ended.retry_after >= 0 ? ended.retry_after : nil, version: Int(ended.version),
                    connected: ended.connected == 1))
        case ccurl_late: return .failed(HTTPCallFailure(.late, problem))
        case ccurl_too_long: return .failed(HTTPCallFailure(.tooLong(status: Int(ended.status)), problem))
        default: return .failed(HTTPCallFailure(.unreachable, problem))
        }
    }

    /// Carries the pointer out of the lock to the one thread that uses it.
    private struct SendablePointer: @unchecked Sendable {
        let value: OpaquePointer?
        init(_ value: OpaquePointer?) { self.value = value }
    }
}
