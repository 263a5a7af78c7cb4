package import EventLoop
package import Jobs
package import Redis

/// The intake of the queue: gathers the writes of a loop's turn and sends them in one script call per partition.
///
/// At most one call per partition is under way; what arrives meanwhile goes into the next. So calls grow as load
/// grows (one call of sixteen costs Redis little more than half of sixteen calls), and a slow Redis makes batches,
/// not a storm.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone, which `accept` checks.
package final class RedisJobSink: JobSink, @unchecked Sendable {
    /// What the intake promises and how much it holds.
    package struct Configuration: Sendable {
        /// How long a write waits for Redis, queueing here included, before its caller is told `unavailable`.
        package var timeoutMilliseconds: Int64 = 5000
        /// Most writes that wait here; above it callers are told `unavailable` at once.
        package var mostWaiting = 10_000
        /// Most entries of one organization not ended yet, over all partitions; 0 for no cap. Keeps one tenant from
        /// filling memory.
        package var organizationBacklog = 0
        /// With `RATCHET_DURABILITY=replicated`: how many replicas must have a batch before it counts; 0 otherwise.
        package var replicas = 0
        package init() {}
    }

    /// Counts since the start, for metrics. Read on the loop.
    package private(set) var calls: Int64 = 0
    package private(set) var accepted: Int64 = 0
    package private(set) var unavailable: Int64 = 0
    /// Refused by the shed level or a full backlog, and by a drain.
    package private(set) var shed: Int64 = 0
    package private(set) var draining: Int64 = 0
    /// Writes that wait for Redis now.
    package private(set) var waiting = 0

    private struct Pending {
        let job: NewJob
        /// Nil for none, or once it was charged elsewhere.
        var limitKey: String?
        let deadlineNanoseconds: Int64
        let continuation: UnsafeContinuation<AcceptResult, Never>
    }

    private let loop: EventLoop
    private let client: RedisClient
    private let keys: QueueKeys
    private let configuration: Configuration
    private let fixedKeys: [[RedisArgument]]
    private var pending: [[Pending]]
    private var underWay: [Bool]
    private var flushPlanned = false

    /// How long replicas may take. They usually need a millisecond; one that needs a second is as good as gone.
    private static let replicationMilliseconds: Int64 = 1000
    /// Most writes one call carries: 64 × 20 µs keeps the slowest script near 1 ms.
    private static let mostPerCall = 64
    /// Beyond so many bytes no write is added to a call, for the same reason; one alone may be larger.
    private static let mostBytesPerCall = 256 << 10

    /// - Parameters:
    ///   - loop: the loop on which `accept` is called and `client` lives.
    ///   - client: connected to the Redis that holds the queue.
    package init(loop: EventLoop, client: RedisClient, keys: QueueKeys, configuration: Configuration = .init()) {
        self.loop = loop
        self.client = client
        self.keys = keys
        self.configuration = configuration
        fixedKeys = (0..<keys.partitions).map { partition in
            [keys.meta(partition), keys.clock(partition), keys.stats(partition), keys.backlog(partition)].map {
                RedisArgument.text($0)
            } + Lane.allCases.map { RedisArgument.text(keys.lane(partition, $0)) }
        }
        pending = Array(repeating: [], count: keys.partitions)
        underWay = Array(repeating: false, count: keys.partitions)
    }

    package func accept(_ job: NewJob) async -> AcceptResult {
        loop.preconditionInLoop()
        precondition(job.payload.count <= NewJob.maxPayloadBytes, "a payload over the queue's cap")
        guard waiting < configuration.mostWaiting else {
            unavailable += 1
            return .unavailable("too many writes wait for redis")
        }
        let partition = keys.partition(organization: job.organization, subject: job.subject)
        let limitKey = job.limit.map { limit in
            keys.limit(limit.isShared ? keys.home(of: limit.subject) : partition, limit.subject)
        }
        let deadline = loop.time.monotonicNanoseconds + configuration.timeoutMilliseconds * 1_000_000
        let result = await withUnsafeContinuation { continuation in
            waiting += 1
            pending[partition].append(
                Pending(job: job, limitKey: limitKey, deadlineNanoseconds: deadline, continuation: continuation))
            planFlush()
        }
        switch result {
        case .accepted: accepted += 1
        case .unavailable: unavailable += 1
        case .shed: shed += 1
        case .draining: draining += 1
        case .limited: break
        }
        return result
    }

    private func planFlush() {
        guard !flushPlanned else { return }
        flushPlanned = true
        loop.atTurnEnd { [self] in
            flushPlanned = false
            for partition in pending.indices where !pending[partition].isEmpty && !underWay[partition] {
                underWay[partition] = true
                loop.spawn { await self.drain(partition) }
            }
        }
    }

    /// Sends what waits for one partition, call after call, until nothing does.
    private func drain(_ partition: Int) async {
        while !pending[partition].isEmpty {
            let batch = nextBatch(partition)
            pending[partition].removeFirst(batch.count)
            let now = loop.time.monotonicNanoseconds
            // The oldest waits shortest: its deadline holds for the call, so nobody is answered too late.
            let left = (batch[0].deadlineNanoseconds - now) / 1_000_000
            let results =
                left > 0
                ? await charged(batch, partition, timeoutMilliseconds: left)
                : Array(repeating: .unavailable("redis did not answer in time"), count: batch.count)
            waiting -= batch.count
            for (entry, result) in zip(batch, results) { entry.continuation.resume(returning: result) }
        }
        underWay[partition] = false
    }

    /// As many of the oldest as one call carries, by number and by bytes.
    private func nextBatch(_ partition: Int) -> [Pending] {
        var bytes = 0
        let batch = pending[partition].prefix(Self.mostPerCall).prefix { entry in
            defer { bytes += entry.job.payload.count }
            return bytes < Self.mostBytesPerCall
        }
        return Array(batch)
    }

    /// Sends a batch, and before that charges what the script can't reach: in a cluster the limits that jobs of several
    /// partitions share, which lie on other nodes.
    private func charged(_ batch: [Pending], _ partition: Int, timeoutMilliseconds: Int64) async -> [AcceptResult] {
        guard client.isCluster, batch.contains(where: { $0.job.limit?.isShared == true }) else {
            return await send(batch, partition, timeoutMilliseconds: timeoutMilliseconds)
        }
        var batch = batch
        var results = [AcceptResult?](repeating: nil, count: batch.count)
        let shared = batch.indices.filter { batch[$0].job.limit?.isShared == true }
        for (key, indices) in Dictionary(grouping: shared, by: { batch[$0].limitKey ?? "" }) {
            let answers = await charge(key, indices.map { batch[$0] }, timeoutMilliseconds)
            for (index, refusal) in zip(indices, answers) {
                results[index] = refusal
                batch[index].limitKey = nil
            }
        }
        let passing = batch.indices.filter { results[$0] == nil }
        guard !passing.isEmpty else { return results.compactMap { $0 } }
        let sent = await send(passing.map { batch[$0] }, partition, timeoutMilliseconds: timeoutMilliseconds)
        for (index, result) in zip(passing, sent) { results[index] = result }
        return results.compactMap { $0 }
    }

    /// - Returns: why each of them may not pass, or nil.
    private func charge(
        _ key: String, _ entries: [Pending], _ timeoutMilliseconds: Int64
    ) async -> [AcceptResult?] {
        do {
            let answer = try await client.evaluate(
                QueueScripts.limit, keys: [.text(key)],
                arguments: [.integer(Int64(entries.count)), .integer(Int64(entries[0].job.limit?.perMinute ?? 1))],
                timeoutMilliseconds: timeoutMilliseconds)
            guard let items = answer.elements, items.count == entries.count else {
                return entries.map { _ in .unavailable("redis answered in another form") }
            }
            return items.map { item in
                let seconds = Int(item.int64 ?? 1)
                return seconds == 0 ? nil : .limited(retryAfterSeconds: seconds)
            }
        } catch {
            return entries.map { _ in .unavailable("redis: \(error.message)") }
        }
    }

    private func send(_ batch: [Pending], _ partition: Int, timeoutMilliseconds: Int64) async -> [AcceptResult] {
        calls += 1
        var callKeys = fixedKeys[partition]
        let cap = configuration.organizationBacklog
        var arguments: [RedisArgument] = [
            .integer(Int64(batch.count)), .integer(cap == 0 ? 0 : Int64(max(1, cap / keys.partitions))),
        ]
        arguments.reserveCapacity(2 + 8 * batch.count)
        for entry in batch {
            let job = entry.job
            if let limitKey = entry.limitKey { callKeys.append(.text(limitKey)) }
            arguments.append(.integer(Int64(job.lane.rawValue + 1)))
            arguments.append(.integer(entry.limitKey == nil ? 0 : Int64(callKeys.count)))
            arguments.append(.integer(Int64(job.limit?.perMinute ?? 0)))
            arguments.append(.text(job.organization))
            arguments.append(.text(JobHeader.prefix(kind: job.kind, version: job.version)))
            arguments.append(
                .text(
                    JobHeader.suffix(
                        expiresMilliseconds: job.expiresMilliseconds, traceparent: job.traceparent,
                        replyTo: job.replyTo, correlationID: job.correlationID)))
            arguments.append(.bytes(job.payload))
            arguments.append(.integer(Int64(job.shedding.rawValue)))
        }
        do {
            let answer: RedisValue
            var isReplicated = true
            if configuration.replicas > 0 {
                let outcome = try await client.evaluate(
                    QueueScripts.accept, keys: callKeys, arguments: arguments,
                    untilReplicasHaveIt: configuration.replicas,
                    withinMilliseconds: min(Self.replicationMilliseconds, timeoutMilliseconds),
                    timeoutMilliseconds: timeoutMilliseconds)
                answer = outcome.reply
                isReplicated = outcome.replicas >= configuration.replicas
            } else {
                answer = try await client.evaluate(
                    QueueScripts.accept, keys: callKeys, arguments: arguments, timeoutMilliseconds: timeoutMilliseconds)
            }
            guard let items = answer.elements else {
                return Array(repeating: .unavailable("the queue is not seeded yet"), count: batch.count)
            }
            guard items.count == batch.count else {
                return Array(repeating: .unavailable("redis answered in another form"), count: batch.count)
            }
            let results = items.map(Self.result)
            return isReplicated ? results : results.map(Self.unreplicated)
        } catch {
            return Array(repeating: .unavailable("redis: \(error.message)"), count: batch.count)
        }
    }

    /// Without enough replicas a write is not accepted, though it is stored: sent again, it merges with itself.
    private static func unreplicated(_ result: AcceptResult) -> AcceptResult {
        if case .accepted = result { .unavailable("too few replicas have the write") } else { result }
    }

    private static func result(_ item: RedisValue) -> AcceptResult {
        guard let bytes = item.bytes, let first = bytes.first else {
            return .unavailable("redis answered in another form")
        }
        let text = String(decoding: bytes.dropFirst(), as: UTF8.self)
        switch first {
        case UInt8(ascii: "L"): return .limited(retryAfterSeconds: max(1, Int(text) ?? 1))
        case UInt8(ascii: "S"): return .shed
        case UInt8(ascii: "D"): return .draining
        default:
            guard let stamp = Int64(String(decoding: bytes, as: UTF8.self)) else {
                return .unavailable("redis answered in another form")
            }
            return .accepted(stamp: stamp)
        }
    }
}
