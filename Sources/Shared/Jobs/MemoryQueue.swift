internal import Synchronization

/// The queue in memory, for tests and for trying a worker without a server: the same ports, the same outcomes, no
/// durability. Safe from any thread.
package final class MemoryQueue: JobSink, Sendable {
    /// A job that was buried.
    package struct DeadLetter: Sendable {
        package let job: FetchedJob
        package let reason: String
        package let text: String
    }

    fileprivate struct State {
        var stamp: Int64 = 0
        var entry: Int64 = 0
        var waiting: [Lane: [FetchedJob]] = [:]
        var delayed: [(milliseconds: Int64, job: FetchedJob)] = []
        var pending: [String: FetchedJob] = [:]
        var dead: [DeadLetter] = []
        var answers: [AcceptResult] = []
        var alone: [Int64: Int] = [:]
        var stopped = false
        var sleepers: [CheckedContinuation<Void, Never>] = []
        var settled = 0
        var replies: [(correlationID: String, payload: [UInt8])] = []
        var watchers: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }
    private let state = Mutex(State())
    private let now: @Sendable () -> Int64

    /// - Parameter now: milliseconds since 1970.
    package init(now: @escaping @Sendable () -> Int64) { self.now = now }

    /// Answers given to the next calls of `accept` instead of storing, in order.
    package func refuse(with answers: [AcceptResult]) { state.withLock { $0.answers += answers } }

    /// Answers sent, in order.
    package var replies: [(correlationID: String, payload: [UInt8])] { state.withLock { $0.replies } }
    package var dead: [DeadLetter] { state.withLock { $0.dead } }
    package func waiting(_ lane: Lane) -> [FetchedJob] { state.withLock { $0.waiting[lane] ?? [] } }
    package var delayed: [(milliseconds: Int64, job: FetchedJob)] { state.withLock { $0.delayed } }

    package func accept(_ job: NewJob, completion: @escaping @Sendable (AcceptResult) -> Void) {
        let (result, sleepers) = state.withLock { state -> (AcceptResult, [CheckedContinuation<Void, Never>]) in
            if !state.answers.isEmpty { return (state.answers.removeFirst(), []) }
            state.stamp = max(state.stamp + 1, now() * 1000)
            let header = JobHeader(
                kind: job.kind, version: job.version, stamp: state.stamp, attempts: 0, organization: job.organization,
                enqueuedMilliseconds: now(), expiresMilliseconds: job.expiresMilliseconds,
                traceparent: job.traceparent, replyTo: job.replyTo, correlationID: job.correlationID)
            state.add(header, job.payload, job.lane, deliveries: 0)
            defer { state.sleepers = [] }
            return (.accepted(stamp: header.stamp), state.sleepers)
        }
        for sleeper in sleepers { sleeper.resume() }
        completion(result)
    }

    /// The side of one stage's workers.
    package func source(_ stage: Stage) -> Source { Source(queue: self, stage: stage) }

    /// Makes every waiting fetch look again.
    package func wake() {
        let sleepers = state.withLock { state in
            defer { state.sleepers = [] }
            return state.sleepers
        }
        for sleeper in sleepers { sleeper.resume() }
    }

    /// Wakes every waiting fetch for good.
    package func stop() {
        let sleepers = state.withLock { state in
            state.stopped = true
            defer { state.sleepers = [] }
            return state.sleepers
        }
        for sleeper in sleepers { sleeper.resume() }
    }

    package struct Source: JobSource {
        let queue: MemoryQueue
        let stage: Stage

        package func fetch(atMost count: Int) async -> [FetchedJob] {
            let found = queue.take(stage, count)
            if !found.isEmpty { return found }
            await withCheckedContinuation { continuation in
                let resumeNow = queue.state.withLock { state in
                    if state.stopped || stage.lanes.contains(where: { state.waiting[$0]?.isEmpty == false }) {
                        return true
                    }
                    state.sleepers.append(continuation)
                    return false
                }
                if resumeNow { continuation.resume() }
            }
            return queue.take(stage, count)
        }

        package func startAlone(_ job: FetchedJob) async -> Int? { queue.startAlone(job) }

        package func forgetStart(_ job: FetchedJob) async { queue.forgetStart(job) }

        package func answer(_ job: FetchedJob, _ payload: [UInt8]) async {
            queue.state.withLock { $0.replies.append((job.header.correlationID, payload)) }
        }

        package func settle(_ settlements: [Settlement]) async { queue.settle(settlements) }
    }

    private func startAlone(_ job: FetchedJob) -> Int {
        state.withLock { state in
            state.alone[job.header.stamp, default: 0] += 1
            return state.alone[job.header.stamp] ?? 0
        }
    }

    private func forgetStart(_ job: FetchedJob) {
        state.withLock { state in
            if let starts = state.alone[job.header.stamp] { state.alone[job.header.stamp] = starts - 1 }
        }
    }

    /// Hands out again what is pending, as after a worker's death.
    package func redeliver(_ jobs: [FetchedJob]) {
        state.withLock { state in
            for job in jobs where state.pending.removeValue(forKey: job.entryID) != nil {
                state.add(job.header, job.payload, job.lane, deliveries: job.deliveries)
            }
        }
    }

    /// Hands out again everything that is pending, oldest entry first, as after the death of all workers.
    package func redeliverPending() {
        let pending = state.withLock { $0.pending.values }
        redeliver(pending.sorted { (Int64($0.entryID) ?? 0) < (Int64($1.entryID) ?? 0) })
        wake()
    }

    private func take(_ stage: Stage, _ count: Int) -> [FetchedJob] {
        state.withLock { state in
            for lane in stage.lanes {
                guard let waiting = state.waiting[lane], !waiting.isEmpty else { continue }
                let taken = waiting.prefix(count).map { job in
                    var job = job
                    job.deliveries += 1
                    return job
                }
                state.waiting[lane] = Array(waiting.dropFirst(taken.count))
                for job in taken { state.pending[job.entryID] = job }
                return taken
            }
            return []
        }
    }

    private func settle(_ settlements: [Settlement]) {
        let sleepers = state.withLock { state in
            for settlement in settlements
            where state.pending.removeValue(forKey: settlement.job.entryID) != nil {
                state.settled += 1
                let job = settlement.job
                state.alone[job.header.stamp] = nil
                switch settlement.action {
                case .done: break
                case .forward(let lane, let payload):
                    var header = job.header
                    header.attempts = 0
                    state.add(header, payload, lane, deliveries: 0)
                case .retry(let milliseconds, let attempts):
                    var delayed = job
                    delayed.header.attempts = attempts
                    delayed.deliveries = 0
                    state.delayed.append((now() + milliseconds, delayed))
                case .park: state.add(job.header, job.payload, job.lane, deliveries: 0)
                case .dead(let reason, let text):
                    state.dead.append(DeadLetter(job: job, reason: reason, text: text))
                }
            }
            let done = state.settled
            let ready = state.watchers.filter { $0.count <= done }.map(\.continuation)
            state.watchers.removeAll { $0.count <= done }
            defer { state.sleepers = [] }
            return state.sleepers + ready
        }
        for sleeper in sleepers { sleeper.resume() }
    }

    /// Returns once that many jobs were settled since the start.
    package func settled(_ count: Int) async {
        await withCheckedContinuation { continuation in
            let now = state.withLock { state in
                if state.settled >= count { return true }
                state.watchers.append((count, continuation))
                return false
            }
            if now { continuation.resume() }
        }
    }

    /// Moves every delayed job whose time has come back into its lane, and makes waiting fetches look again.
    package func promote() {
        let now = now()
        state.withLock { state in
            let due = state.delayed.filter { $0.milliseconds <= now }
            state.delayed.removeAll { $0.milliseconds <= now }
            for (_, job) in due { state.add(job.header, job.payload, job.lane, deliveries: 0) }
        }
        wake()
    }
}

extension MemoryQueue.State {
    fileprivate mutating func add(_ header: JobHeader, _ payload: [UInt8], _ lane: Lane, deliveries: Int) {
        entry += 1
        waiting[lane, default: []].append(
            FetchedJob(
                lane: lane, partition: 0, entryID: String(entry), header: header, payload: payload,
                deliveries: deliveries))
    }
}
