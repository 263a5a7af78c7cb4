internal import EventLoop

/// Tasks that wait for something to come true, each with a deadline of its own. Confined to its loop.
final class LoopWaiters {
    private struct Waiter {
        let continuation: UnsafeContinuation<Bool, Never>
        let timer: EventLoop.TimerToken
    }

    private let loop: EventLoop
    private var waiters: [UInt64: Waiter] = [:]
    private var next: UInt64 = 0

    init(loop: EventLoop) { self.loop = loop }

    /// - Parameter known: looked at first, in the same step that begins to wait: entering a suspension may cost a hop,
    ///   and what was checked before it may not hold any more.
    /// - Returns: what is known already or what `wake` says; false when nothing was said in time.
    func wait(milliseconds: Int64, unless known: () -> Bool?) async -> Bool {
        await withUnsafeContinuation { continuation in
            if let answer = known() { return continuation.resume(returning: answer) }
            let id = next
            next += 1
            let timer = loop.schedule(afterMilliseconds: milliseconds) { [weak self] in
                self?.waiters.removeValue(forKey: id)?.continuation.resume(returning: false)
            }
            waiters[id] = Waiter(continuation: continuation, timer: timer)
        }
    }

    /// Ends every wait, in the order they began.
    func wake(_ answer: Bool) {
        let waiting = waiters.sorted { $0.key < $1.key }
        waiters = [:]
        for (_, waiter) in waiting {
            loop.cancel(waiter.timer)
            waiter.continuation.resume(returning: answer)
        }
    }
}
