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

    private struct Pending: Sendable {
        let job: NewJob
        /// Nil for none, or once it was charged elsewhere.
        var limitKey: String?
        let deadlineNanoseconds: Int64
        let completion: @Sendable (AcceptResult) -> Void
    }

    private let loop: EventLoop
    private let client: RedisClient
    private let keys: QueueKeys
    private let configuration: Configuration
    /// The keys that every call for a partition names: the first, and the others.
    private let fixedKeys: [(first: RedisArgument, rest: EncodedArguments)]
    private static let fixedKeyCount = 4 + Lane.allCases.count
    private var pending: [[Pending]]
    private var underWay: [Bool]
    private var flushPlanned = false

    /// How long replicas may take. They usually need a millisecond; one that needs a second is as good as gone.
    private static let replicationMilliseconds: Int64 = 1000
    /// Room for the words of a write that are not its payload; more only costs a reallocation.
    private static let bytesBesidePayload = 160
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
            var rest = EncodedArguments()
            rest.append(keys.clock(partition))
            rest.append(keys.stats(partition))
            rest.append(keys.backlog(partition))
            for lane in Lane.allCases { rest.append(keys.lane(partition, lane)) }
            return (.text(keys.meta(partition)), rest)
        }
        pending = Array(repeating: [], count: keys.partitions)
        underWay = Array(repeating: false, count: keys.partitions)
    }

    package func accept(_ job: NewJob, completion: @escaping @Sendable (AcceptResult) -> Void) {
        loop.preconditionInLoop()
        precondition(job.payload.count <= NewJob.maxPayloadBytes, "a payload over the queue's cap")
        guard waiting < configuration.mostWaiting else {
            unavailable += 1
            return completion(.unavailable("too many writes wait for redis"))
        }
        let partition = keys.partition(organization: job.organization, subject: job.subject)
        let limitKey = job.limit.map { limit in
            keys.limit(limit.isShared ? keys.home(of: limit.subject) : partition, limit.subject)
        }
        let deadline = loop.time.monotonicNanoseconds + configuration.timeoutMilliseconds * 1_000_000
        waiting += 1
        pending[partition].append(
            Pending(job: job, limitKey: limitKey, deadlineNanoseconds: deadline, completion: completion))
        planFlush()
    }

    private func planFlush() {
        guard !flushPlanned else { return }
        flushPlanned = true
        loop.atTurnEnd { [self] in
            flushPlanned = false
            for partition in pending.indices where !pending[partition].isEmpty && !underWay[partition] {
                flush(partition)
            }
        }
    }

    /// Sends what waits for a partition in one call; what is left, or comes meanwhile, goes once it is answered.
    private func flush(_ partition: Int) {
        let batch = takeBatch(partition)
        underWay[partition] = true
        // The oldest waits shortest: its deadline holds for the call, so nobody is answered too late.
        let left = (batch[0].deadlineNanoseconds - loop.time.monotonicNanoseconds) / 1_000_000
        guard left > 0 else {
            return finish(batch, partition, Self.all(batch, .unavailable("redis did not answer in time")))
        }
        guard configuration.replicas == 0 && !client.isCluster else {
            loop.spawn { [self] in
                finish(batch, partition, await charged(batch, partition, timeoutMilliseconds: left))
            }
            return
        }
        calls += 1
        let call = arguments(of: batch, partition)
        client.evaluate(
            QueueScripts.accept, keys: call.keys, arguments: call.arguments, timeoutMilliseconds: left
        ) { [self] result in
            finish(batch, partition, Self.results(result, of: batch))
        }
    }

    private func finish(_ batch: [Pending], _ partition: Int, _ results: [AcceptResult]) {
        underWay[partition] = false
        waiting -= batch.count
        if !pending[partition].isEmpty { planFlush() }
        for (entry, result) in zip(batch, results) {
            switch result {
            case .accepted: accepted += 1
            case .unavailable: unavailable += 1
            case .shed: shed += 1
            case .draining: draining += 1
            case .limited: break
            }
            entry.completion(result)
        }
    }

    private static func all(_ batch: [Pending], _ result: AcceptResult) -> [AcceptResult] {
        Array(repeating: result, count: batch.count)
    }

    /// Takes as many of the oldest as one call carries, by number and by bytes.
    private func takeBatch(_ partition: Int) -> [Pending] {
        var bytes = 0
        var count = 0
        for entry in pending[partition] where count < Self.mostPerCall && bytes < Self.mostBytesPerCall {
            bytes += entry.job.payload.count
            count += 1
        }
        guard count < pending[partition].count else {
            defer { pending[partition] = [] }
            return pending[partition]
        }
        defer { pending[partition].removeFirst(count) }
        return Array(pending[partition].prefix(count))
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
                return entries.map { _ in .unavailable(Self.anotherForm) }
            }
            return items.map { item in
                let seconds = Int(item.int64 ?? 1)
                return seconds == 0 ? nil : .limited(retryAfterSeconds: seconds)
            }
        } catch {
            return entries.map { _ in .unavailable("redis: \(error.message)") }
        }
    }

    /// The words of one call of the accept script.
    private func arguments(
        of batch: [Pending], _ partition: Int
    ) -> (keys: [RedisArgument], arguments: [RedisArgument]) {
        let cap = configuration.organizationBacklog
        var limitKeys = EncodedArguments()
        var arguments = EncodedArguments(
            reservingBytes: batch.reduce(64) { $0 + $1.job.payload.count + Self.bytesBesidePayload })
        arguments.append(Int64(batch.count))
        arguments.append(cap == 0 ? 0 : Int64(max(1, cap / keys.partitions)))
        for entry in batch {
            let job = entry.job
            if let limitKey = entry.limitKey { limitKeys.append(limitKey) }
            arguments.append(Int64(job.lane.rawValue + 1))
            arguments.append(entry.limitKey == nil ? 0 : Int64(Self.fixedKeyCount + limitKeys.count))
            arguments.append(Int64(job.limit?.perMinute ?? 0))
            arguments.append(job.organization)
            arguments.append(JobHeader.prefix(kind: job.kind, version: job.version))
            arguments.append(
                JobHeader.suffix(
                    expiresMilliseconds: job.expiresMilliseconds, traceparent: job.traceparent, replyTo: job.replyTo,
                    correlationID: job.correlationID))
            arguments.append(job.payload)
            arguments.append(Int64(job.shedding.rawValue))
        }
        let fixed = fixedKeys[partition]
        return ([fixed.first, .encoded(fixed.rest), .encoded(limitKeys)], [.encoded(arguments)])
    }

    /// Sends a batch, and with `replicas` waits until they have it.
    private func send(_ batch: [Pending], _ partition: Int, timeoutMilliseconds: Int64) async -> [AcceptResult] {
        calls += 1
        let call = arguments(of: batch, partition)
        do throws(RedisError) {
            guard configuration.replicas > 0 else {
                return Self.results(
                    .success(
                        try await client.evaluate(
                            QueueScripts.accept, keys: call.keys, arguments: call.arguments,
                            timeoutMilliseconds: timeoutMilliseconds)), of: batch)
            }
            let outcome = try await client.evaluate(
                QueueScripts.accept, keys: call.keys, arguments: call.arguments,
                untilReplicasHaveIt: configuration.replicas,
                withinMilliseconds: min(Self.replicationMilliseconds, timeoutMilliseconds),
                timeoutMilliseconds: timeoutMilliseconds)
            let results = Self.results(.success(outcome.reply), of: batch)
            return outcome.replicas >= configuration.replicas ? results : results.map(Self.unreplicated)
        } catch {
            return Self.results(.failure(error), of: batch)
        }
    }

    /// What the answer to a call says about each of its writes.
    private static func results(_ answer: Result<RedisValue, RedisError>, of batch: [Pending]) -> [AcceptResult] {
        switch answer {
        case .failure(let error): return all(batch, .unavailable("redis: \(error.message)"))
        case .success(let value):
            guard let words = value.bytes else { return all(batch, .unavailable(anotherForm)) }
            guard !words.elementsEqual("unseeded".utf8) else {
                return all(batch, .unavailable("the queue is not seeded yet"))
            }
            var results: [AcceptResult] = []
            results.reserveCapacity(batch.count)
            var start = 0
            for index in 0...words.count where index == words.count || words[index] == UInt8(ascii: " ") {
                results.append(result(words[start..<index]))
                start = index + 1
            }
            return results.count == batch.count ? results : all(batch, .unavailable(anotherForm))
        }
    }

    private static let anotherForm = "redis answered in another form"

    /// Without enough replicas a write is not accepted, though it is stored: sent again, it merges with itself.
    private static func unreplicated(_ result: AcceptResult) -> AcceptResult {
        if case .accepted = result { .unavailable("too few replicas have the write") } else { result }
    }

    private static func result(_ word: ArraySlice<UInt8>) -> AcceptResult {
        switch word.first {
        case UInt8(ascii: "L"):
            let seconds = decimal(word.dropFirst()).flatMap { Int(exactly: $0) }
            return .limited(retryAfterSeconds: max(1, seconds ?? 1))
        case UInt8(ascii: "S"): return .shed
        case UInt8(ascii: "D"): return .draining
        default: return decimal(word).map { .accepted(stamp: $0) } ?? .unavailable(anotherForm)
        }
    }

    /// The value of decimal digits, as many as a stamp may have.
    private static func decimal(_ digits: ArraySlice<UInt8>) -> Int64? {
        guard 1...16 ~= digits.count else { return nil }
        var value: Int64 = 0
        for digit in digits {
            guard digit >= UInt8(ascii: "0"), digit <= UInt8(ascii: "9") else { return nil }
            value = value * 10 + Int64(digit - UInt8(ascii: "0"))
        }
        return value
    }
}
