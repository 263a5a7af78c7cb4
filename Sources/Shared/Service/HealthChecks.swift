internal import EventLoop
internal import Synchronization

/// What a check found.
package enum Health: Equatable, Sendable {
    case good
    /// It works, at a level that says how much it refuses (0: nothing), and what that is. Ready all the same.
    case level(Int, String)
    /// One line for an operator, without secrets.
    case bad(String)
}

/// Named questions about a process, asked at once and answered within a bounded time each.
final class HealthChecks: Sendable {
    typealias Ask = @Sendable () async -> Health

    private struct Check: Sendable {
        let name: String
        let ask: Ask
        let running = RunningFlag()
    }

    /// Whether a check's last question still waits for its answer.
    private final class RunningFlag: Sendable {
        private let value = Atomic<Bool>(false)
        func start() -> Bool { value.exchange(true, ordering: .acquiringAndReleasing) == false }
        func end() { value.store(false, ordering: .releasing) }
    }

    private let loop: EventLoop
    private let timeoutMilliseconds: Int64
    private let checks = Mutex<[Check]>([])

    init(loop: EventLoop, timeoutMilliseconds: Int64) {
        self.loop = loop
        self.timeoutMilliseconds = timeoutMilliseconds
    }

    func add(_ name: String, _ ask: @escaping Ask) {
        checks.withLock { $0.append(Check(name: name, ask: ask)) }
    }

    /// The answers in the order the checks were added.
    func results() async -> [(name: String, health: Health)] {
        let checks = self.checks.withLock { $0 }
        return await withTaskGroup(of: (Int, Health).self) { group in
            for (index, check) in checks.enumerated() {
                group.addTask { (index, await self.result(of: check)) }
            }
            var healths = [Health](repeating: .good, count: checks.count)
            for await (index, health) in group { healths[index] = health }
            return zip(checks, healths).map { ($0.name, $1) }
        }
    }

    /// A question that hangs is told as such and asked again only when it has ended, so that scrapes never pile up.
    private func result(of check: Check) async -> Health {
        guard check.running.start() else { return .bad("still waiting for an earlier answer") }
        let answer = FirstAnswer()
        let question = loop.spawn {
            let health = await check.ask()
            check.running.end()
            answer.give(health)
        }
        let timeout = timeoutMilliseconds
        let alarm = loop.spawn { [loop] in
            await loop.sleep(milliseconds: timeout)
            answer.give(.bad("no answer within \(timeout) ms"))
        }
        let health = await answer.wait()
        alarm.cancel()
        question.cancel()
        return health
    }
}

/// The first of several answers; later ones are dropped.
private final class FirstAnswer: Sendable {
    private enum State {
        case open
        case waiting(UnsafeContinuation<Health, Never>)
        case given(Health)
    }
    private let state = Mutex(State.open)

    func give(_ health: Health) {
        let waiting = state.withLock { state -> UnsafeContinuation<Health, Never>? in
            switch state {
            case .open: state = .given(health)
            case .given: break
            case .waiting(let continuation):
                state = .given(health)
                return continuation
            }
            return nil
        }
        waiting?.resume(returning: health)
    }

    func wait() async -> Health {
        await withUnsafeContinuation { continuation in
            let given = state.withLock { state -> Health? in
                if case .given(let health) = state { return health }
                state = .waiting(continuation)
                return nil
            }
            if let given { continuation.resume(returning: given) }
        }
    }
}
