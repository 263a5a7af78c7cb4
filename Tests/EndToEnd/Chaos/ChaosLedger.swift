import EventLoop
import Synchronization
import TestSupport

/// What was sent and what was promised: every call's attempts, and the fault during which its answer came.
final class ChaosLedger: Sendable {
    struct Entry: Sendable {
        /// Requests sent for it; any of them may have reached the queue.
        let attempts: Int
        /// Which fault was the last when it was acknowledged.
        let window: Int
    }
    /// A person whose calls were all acknowledged, with the model of what must be stored for it.
    struct Person: Sendable {
        let workload: Workload
        let entries: [Entry]
        /// Monotonic nanoseconds before its first call.
        let began: Int64
    }

    private struct State {
        var nextPerson = 0
        var window = 0
        var people: [Person] = []
        /// Monotonic nanoseconds of each acknowledgement, in order, of its request, and of the call's first one.
        var acknowledged: [(first: Int64, sent: Int64, at: Int64)] = []
        /// By poster: when the call that it has not been answered yet was first sent, monotonic nanoseconds.
        var open: [Int: Int64] = [:]
        var refused = 0
        var broken = 0
        var ending = false
        var abandoned = false
    }
    private let state = Mutex(State())
    private let time = SystemTime()
    private let pki: TestPKI
    private let stranger = TestPKI()

    /// Fewer would leave the queue nearly empty; more would make a debug build the bottleneck.
    private static let posters = 12
    /// Between two calls of a poster.
    private static let paceMilliseconds: Int64 = 20
    /// A real SDK heeds Retry-After; here that would blur when service is back.
    private static let retryMilliseconds: Int64 = 50

    init(pki: TestPKI) { self.pki = pki }

    var people: [Person] { state.withLock { $0.people } }
    var acknowledgedCount: Int { state.withLock { $0.acknowledged.count } }
    var refused: Int { state.withLock { $0.refused } }
    var broken: Int { state.withLock { $0.broken } }

    /// What is acknowledged from now on belongs to this fault.
    func enter(window: Int) { state.withLock { $0.window = window } }
    /// Posters finish their person and stop.
    func end() { state.withLock { $0.ending = true } }
    /// Posters stop where they are: the test has failed.
    func abandon() {
        state.withLock {
            $0.ending = true
            $0.abandoned = true
        }
    }

    /// Monotonic nanoseconds of the first acknowledgement of a request that was sent after a moment.
    func firstAcknowledgement(ofRequestsAfter moment: Int64) -> Int64? {
        state.withLock { state in
            var first: Int64?
            for (_, sent, at) in state.acknowledged.reversed() {
                guard at >= moment else { break }
                if sent >= moment { first = at }
            }
            return first
        }
    }

    /// How long the unluckiest call had to be sent again and again, of those acknowledged after a moment: nanoseconds,
    /// from that moment at the earliest.
    func longestWait(after moment: Int64) -> Int64 {
        state.withLock { state in
            state.acknowledged.reduce(0) { longest, call in
                call.at < moment ? longest : max(longest, call.at - max(call.first, moment))
            }
        }
    }

    /// Whether a call that was first sent before a moment still waits to be acknowledged: `longestWait` leaves it out.
    func isWaiting(sentBefore moment: Int64) -> Bool {
        state.withLock { $0.open.values.contains { $0 < moment } }
    }

    /// Sends people's calls, one poster's after the other, until `end`.
    func post(to system: RunningSystem) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<Self.posters {
                group.addTask { try await self.post(from: Poster(number, port: system.port), system.loop) }
            }
            do {
                try await group.waitForAll()
            } catch {
                abandon()
                throw error
            }
        }
    }

    private func post(from poster: Poster, _ loop: EventLoop) async throws {
        while true {
            let number = state.withLock { state -> Int? in
                guard !state.ending else { return nil }
                state.nextPerson += 1
                return state.nextPerson
            }
            guard let number else { return }
            let began = time.monotonicNanoseconds
            let workload = Workload(people: 1, from: number, pki: pki, stranger: stranger)
            var entries: [Entry] = []
            for call in workload.scripts[0] {
                guard let entry = try await send(call, poster, loop) else { return }
                entries.append(entry)
                await loop.sleep(milliseconds: Self.paceMilliseconds)
            }
            state.withLock { $0.people.append(Person(workload: workload, entries: entries, began: began)) }
        }
    }

    /// Sends one call until it is acknowledged, as an SDK would.
    /// - Returns: nil when the test was abandoned.
    private func send(_ call: Workload.Call, _ poster: Poster, _ loop: EventLoop) async throws -> Entry? {
        var attempts = 0
        let began = time.monotonicNanoseconds
        state.withLock { $0.open[poster.number] = began }
        defer { state.withLock { $0.open[poster.number] = nil } }
        while !state.withLock({ $0.abandoned }) {
            do {
                attempts += 1
                let sent = time.monotonicNanoseconds
                let response = try await poster.exchange(call)
                if response.status == 200 {
                    guard response.text.contains("\"stored\":false") == call.isDropped else {
                        throw RatchetProcess.Failure(description: "wrongly stored or dropped: \(call.body)")
                    }
                    let now = time.monotonicNanoseconds
                    let window = state.withLock { state in
                        state.acknowledged.append((began, sent, now))
                        return state.window
                    }
                    return Entry(attempts: attempts, window: window)
                }
                guard response.status == 503, response.first("retry-after") != nil else {
                    throw RatchetProcess.Failure(description: "\(response.status) \(response.text) for \(call.body)")
                }
                state.withLock { $0.refused += 1 }
            } catch is RawHTTPClient.Problem {
                state.withLock { $0.broken += 1 }
            }
            await loop.sleep(milliseconds: Self.retryMilliseconds)
        }
        return nil
    }

    /// One connection, opened anew when it broke. Used by one task.
    private final class Poster {
        let number: Int
        private let port: Int
        private var connection: RawHTTPClient?

        init(_ number: Int, port: Int) {
            self.number = number
            self.port = port
        }

        func exchange(_ call: Workload.Call) async throws -> RawHTTPClient.Response {
            let request =
                "POST /api/sdk/v1/\(call.path) HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + "Content-Length: \(call.body.utf8.count)\r\n\r\n\(call.body)"
            do {
                let connection =
                    if let connection { connection } else {
                        try await RawHTTPClient.connect(port: port, timeoutMilliseconds: 30_000)
                    }
                self.connection = connection
                let response = try await connection.exchange(request)
                if response.first("connection") == "close" { self.connection = nil }
                return response
            } catch {
                connection = nil
                throw error
            }
        }
    }
}
