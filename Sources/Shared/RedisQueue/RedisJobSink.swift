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

    private typealias Completion = @Sendable (AcceptResult) -> Void

    /// Writes that leave in one call, in the form in which they are sent.
    ///
    /// `@unchecked Sendable`: touched on the sink's loop alone.
    private final class Batch: @unchecked Sendable {
        var words = Words()
        var completions: [Completion] = []
        /// The earliest of its writes': it holds for the call, so nobody is answered too late. A write that was charged
        /// first may have one before the others'.
        var deadlineNanoseconds = Int64.max
    }

    /// What the script is told of the writes of a batch.
    private struct Words {
        private(set) var limitKeys = EncodedArguments()
        private(set) var arguments = EncodedArguments(reservingBytes: 1024)

        mutating func append(_ job: NewJob, headerPrefix: String, limitKey: [UInt8]?) {
            if let limitKey { limitKeys.append(limitKey) }
            arguments.append(Int64(job.lane.rawValue + 1))
            arguments.append(limitKey == nil ? 0 : Int64(RedisJobSink.fixedKeyCount + limitKeys.count))
            arguments.append(limitKey == nil ? 0 : Int64(job.limit?.perMinute ?? 0))
            arguments.append(job.organization)
            arguments.append(headerPrefix)
            arguments.append(
                JobHeader.suffix(
                    expiresMilliseconds: job.expiresMilliseconds, traceparent: job.traceparent, replyTo: job.replyTo,
                    correlationID: job.correlationID))
            arguments.append(job.payload)
            arguments.append(Int64(job.shedding.rawValue))
        }
    }

    /// A write whose limit lies on another node of a cluster than it goes to, and is charged first.
    private struct Charge: Sendable {
        let job: NewJob
        let deadlineNanoseconds: Int64
        let completion: Completion
    }

    private let loop: EventLoop
    private let client: RedisClient
    private let keys: QueueKeys
    private let configuration: Configuration
    /// The keys that every call for a partition names: the first, and the others.
    private let fixedKeys: [(first: RedisArgument, rest: EncodedArguments)]
    private static let fixedKeyCount = 4 + Lane.allCases.count
    /// By partition; all but the last are full.
    private var batches: [[Batch]]
    /// By partition: whether a call is under way.
    private var underWay: [Bool]
    /// By the key of their limit.
    private var charges: [[UInt8]: [Charge]] = [:]
    private var flushPlanned = false
    private var lastPrefix = (kind: JobKind(rawValue: ""), version: 0, text: "")

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
            var rest = EncodedArguments()
            rest.append(keys.clock(partition))
            rest.append(keys.stats(partition))
            rest.append(keys.backlog(partition))
            for lane in Lane.allCases { rest.append(keys.lane(partition, lane)) }
            return (.text(keys.meta(partition)), rest)
        }
        batches = Array(repeating: [], count: keys.partitions)
        underWay = Array(repeating: false, count: keys.partitions)
    }

    package func accept(_ job: NewJob, completion: @escaping @Sendable (AcceptResult) -> Void) {
        loop.preconditionInLoop()
        precondition(job.payload.count <= NewJob.maxPayloadBytes, "a payload over the queue's cap")
        guard waiting < configuration.mostWaiting else {
            unavailable += 1
            return completion(.unavailable("too many writes wait for redis"))
        }
        waiting += 1
        let deadline = loop.time.monotonicNanoseconds + configuration.timeoutMilliseconds * 1_000_000
        if let limit = job.limit, limit.isShared, client.isCluster {
            charges[keys.limit(keys.home(of: limit.subject), limit.subject), default: []].append(
                Charge(job: job, deadlineNanoseconds: deadline, completion: completion))
        } else {
            add(job, job.limit, deadline, completion)
        }
        planFlush()
    }

    /// Puts a write into the batch of its partition.
    /// - Parameter limit: what the script is to charge; nil for none, or once it was charged elsewhere.
    private func add(_ job: NewJob, _ limit: RateLimit?, _ deadline: Int64, _ completion: @escaping Completion) {
        let partition = keys.partition(organization: job.organization, subject: job.subject)
        let batch: Batch
        if let last = batches[partition].last, last.completions.count < Self.mostPerCall,
            last.words.arguments.byteCount < Self.mostBytesPerCall
        {
            batch = last
        } else {
            batch = Batch()
            batches[partition].append(batch)
        }
        batch.deadlineNanoseconds = min(batch.deadlineNanoseconds, deadline)
        batch.completions.append(completion)
        let limitKey = limit.map {
            keys.limit($0.isShared ? keys.home(of: $0.subject) : partition, $0.subject)
        }
        batch.words.append(job, headerPrefix: headerPrefix(of: job), limitKey: limitKey)
    }

    /// One kind of write mostly comes after itself.
    private func headerPrefix(of job: NewJob) -> String {
        if lastPrefix.kind != job.kind || lastPrefix.version != job.version {
            lastPrefix = (job.kind, job.version, JobHeader.prefix(kind: job.kind, version: job.version))
        }
        return lastPrefix.text
    }

    private func planFlush() {
        guard !flushPlanned else { return }
        flushPlanned = true
        loop.atTurnEnd { [self] in
            flushPlanned = false
            if !charges.isEmpty { flushCharges() }
            for partition in batches.indices where !batches[partition].isEmpty && !underWay[partition] {
                underWay[partition] = true
                send(batches[partition].removeFirst(), partition)
            }
        }
    }

    /// Charges what the script can't reach, and lets pass what may.
    private func flushCharges() {
        for (key, entries) in charges {
            for start in stride(from: 0, to: entries.count, by: Self.mostPerCall) {
                let part = Array(entries[start..<min(start + Self.mostPerCall, entries.count)])
                loop.spawn { [self] in
                    for (entry, refusal) in zip(part, await charge(key, part)) {
                        if let refusal {
                            end(refusal, entry.completion)
                        } else {
                            add(entry.job, nil, entry.deadlineNanoseconds, entry.completion)
                            planFlush()
                        }
                    }
                }
            }
        }
        charges = [:]
    }

    /// - Returns: why each of them may not pass, or nil.
    private func charge(_ key: [UInt8], _ entries: [Charge]) async -> [AcceptResult?] {
        guard let left = millisecondsLeft(entries[0].deadlineNanoseconds) else { return entries.map { _ in Self.late } }
        do {
            let answer = try await client.evaluate(
                QueueScripts.limit, keys: [.bytes(key)],
                arguments: [.integer(Int64(entries.count)), .integer(Int64(entries[0].job.limit?.perMinute ?? 1))],
                timeoutMilliseconds: left)
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

    private static let late = AcceptResult.unavailable("redis did not answer in time")

    /// Nil when none is left.
    private func millisecondsLeft(_ deadline: Int64) -> Int64? {
        let left = (deadline - loop.time.monotonicNanoseconds) / 1_000_000
        return left > 0 ? left : nil
    }

    /// Sends one call; what comes for the partition meanwhile goes once it is answered.
    private func send(_ batch: Batch, _ partition: Int) {
        let count = batch.completions.count
        guard let left = millisecondsLeft(batch.deadlineNanoseconds) else {
            return finish(batch, partition, Array(repeating: Self.late, count: count))
        }
        calls += 1
        let cap = configuration.organizationBacklog
        let fixed = fixedKeys[partition]
        let callKeys: [RedisArgument] = [fixed.first, .encoded(fixed.rest), .encoded(batch.words.limitKeys)]
        let arguments: [RedisArgument] = [
            .integer(Int64(count)), .integer(cap == 0 ? 0 : Int64(max(1, cap / keys.partitions))),
            .encoded(batch.words.arguments),
        ]
        guard configuration.replicas > 0 else {
            return client.evaluate(
                QueueScripts.accept, keys: callKeys, arguments: arguments, timeoutMilliseconds: left
            ) { [self] answer in
                finish(batch, partition, Self.results(answer, count))
            }
        }
        loop.spawn { [self] in
            do throws(RedisError) {
                let outcome = try await client.evaluate(
                    QueueScripts.accept, keys: callKeys, arguments: arguments,
                    untilReplicasHaveIt: configuration.replicas,
                    withinMilliseconds: min(Self.replicationMilliseconds, left), timeoutMilliseconds: left)
                let results = Self.results(.success(outcome.reply), count)
                finish(
                    batch, partition,
                    outcome.replicas >= configuration.replicas ? results : results.map(Self.unreplicated))
            } catch {
                finish(batch, partition, Self.results(.failure(error), count))
            }
        }
    }

    private func finish(_ batch: Batch, _ partition: Int, _ results: [AcceptResult]) {
        underWay[partition] = false
        if !batches[partition].isEmpty { planFlush() }
        for (completion, result) in zip(batch.completions, results) { end(result, completion) }
    }

    private func end(_ result: AcceptResult, _ completion: Completion) {
        waiting -= 1
        switch result {
        case .accepted: accepted += 1
        case .unavailable: unavailable += 1
        case .shed: shed += 1
        case .draining: draining += 1
        case .limited: break
        }
        completion(result)
    }

    /// What the answer to a call says about each of its writes.
    private static func results(_ answer: Result<RedisValue, RedisError>, _ count: Int) -> [AcceptResult] {
        func all(_ why: String) -> [AcceptResult] { Array(repeating: .unavailable(why), count: count) }
        switch answer {
        case .failure(let error): return all("redis: \(error.message)")
        case .success(let value):
            guard let words = value.bytes else { return all(anotherForm) }
            guard !words.elementsEqual("unseeded".utf8) else { return all("the queue is not seeded yet") }
            var results: [AcceptResult] = []
            results.reserveCapacity(count)
            var start = 0
            for index in 0...words.count where index == words.count || words[index] == UInt8(ascii: " ") {
                results.append(result(words[start..<index]))
                start = index + 1
            }
            return results.count == count ? results : all(anotherForm)
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
