package import EventLoop
internal import Synchronization

/// When a process stops and how long that may take. Safe from any thread.
package final class ProcessLifecycle: Sendable {
    private struct State {
        var reason: String?
        var deadline: Int64 = .max
        var nextWaiter = 0
        var waiters: [Int: UnsafeContinuation<Void, Never>] = [:]
        var listeners: [@Sendable () -> Void] = []
    }

    private let graceMilliseconds: Int
    private let time: any TimeSource
    private let state = Mutex(State())

    /// - Parameter graceMilliseconds: the one budget of a whole stop, counted from its first order.
    package init(graceMilliseconds: Int, time: any TimeSource) {
        self.graceMilliseconds = graceMilliseconds
        self.time = time
    }

    /// True once a stop has been ordered: from then on nothing new is begun.
    package var isStopping: Bool { state.withLock { $0.reason != nil } }

    /// Why the process stops, once it does.
    package var stopReason: String? { state.withLock { $0.reason } }

    /// Milliseconds of the grace that are left, 0 at its end; nil before a stop is ordered.
    package var remainingGraceMilliseconds: Int64? {
        let (deadline, stopping) = state.withLock { ($0.deadline, $0.reason != nil) }
        guard stopping else { return nil }
        return max(0, (deadline - time.monotonicNanoseconds) / 1_000_000)
    }

    /// Orders a stop; the first order counts, later ones change nothing.
    /// - Parameter reason: for the log, such as `SIGTERM`.
    package func stop(because reason: String) {
        let now = time.monotonicNanoseconds
        let (waiters, listeners) = state.withLock { state in
            guard state.reason == nil else { return ([UnsafeContinuation<Void, Never>](), [@Sendable () -> Void]()) }
            state.reason = reason
            state.deadline = now + Int64(graceMilliseconds) * 1_000_000
            defer {
                state.waiters = [:]
                state.listeners = []
            }
            return (Array(state.waiters.values), state.listeners)
        }
        for waiter in waiters { waiter.resume() }
        for listener in listeners { listener() }
    }

    /// Returns when a stop is ordered, or when the task is cancelled.
    package func stopping() async {
        let number = state.withLock { state in
            state.nextWaiter += 1
            return state.nextWaiter
        }
        await withTaskCancellationHandler {
            await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
                let goOn = state.withLock { state in
                    // A cancellation that came before this line found no waiter, so it is looked for here.
                    if state.reason != nil || Task.isCancelled { return true }
                    state.waiters[number] = continuation
                    return false
                }
                if goOn { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiters.removeValue(forKey: number) }?.resume()
        }
    }

    /// Calls a closure once, on the thread that orders the stop; at once if that has happened.
    package func onStop(_ listener: @escaping @Sendable () -> Void) {
        let late = state.withLock { state in
            if state.reason == nil { state.listeners.append(listener) }
            return state.reason != nil
        }
        if late { listener() }
    }
}
