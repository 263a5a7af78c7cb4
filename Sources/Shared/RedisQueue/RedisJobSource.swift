package import EventLoop
package import Jobs
package import Redis

/// A worker's side of the queue: fetches the jobs of one stage and settles them. Promoter and Reclaimer work beside it
/// on the same state.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone, which each entry point checks.
package final class RedisJobSource: JobSource, @unchecked Sendable {
    /// Counts since the start, for metrics. Read on the loop.
    package struct Counters: Sendable {
        /// Jobs handed out, by lane.
        package var fetched: [Lane: Int64] = [:]
        /// Entries without a readable header, buried at once, by lane.
        package var malformed: [Lane: Int64] = [:]
        /// Jobs taken over from dead or stuck workers.
        package var reclaimed: Int64 = 0
        /// Entries that vanished while pending: data was lost by somebody's hand. Alarm above zero.
        package var lostWhilePending: Int64 = 0
        /// Delayed jobs moved back into their lanes.
        package var promoted: Int64 = 0
        /// Jobs put aside because their kind or organization is paused.
        package var parked: Int64 = 0
        /// Settle calls that failed and were tried again.
        package var settleRetries: Int64 = 0
    }

    struct Stream {
        let lane: Lane
        let partition: Int
        let key: String
        /// There may be something to fetch.
        var ready = true
        /// A waiter goes on from here.
        var lastID = "0-0"
        /// When a fetch was refused because the lane is paused, on the loop's monotonic clock; nil when it was not.
        var refusedAt: Int64?
    }

    /// An entry of one of this worker's streams.
    struct HeldEntry: Hashable {
        let partition: Int
        let lane: Lane
        let id: String

        init(_ partition: Int, _ lane: Lane, _ id: String) {
            self.partition = partition
            self.lane = lane
            self.id = id
        }
    }

    package internal(set) var counters = Counters()
    /// When a fetch was last answered, on the loop's monotonic clock. 'Connected but fetching nothing' is the
    /// commonest outage of the field, so its age is published.
    package private(set) var lastFetchOK: Int64
    /// What the queue says of this worker's lanes.
    package private(set) var isSeeded = false

    let loop: EventLoop
    let client: RedisClient
    let keys: QueueKeys
    let consumer: String
    var streams: [Stream]
    /// Taken over by the reclaimer, not yet handed out.
    var takenOver: [FetchedJob] = []
    /// What this process has in hand: never taken over from itself.
    var held: Set<HeldEntry> = []
    /// Pending here for Redis, unknown to this process, at the last refresh.
    var strays: Set<HeldEntry> = []
    /// A fetch failed after it may have reached Redis: what it handed out may be among the next strays.
    var deliveriesInDoubt = false
    /// Where each stream's search for idle entries goes on.
    var idleCursors: [String: String] = [:]
    /// How many jobs are parked, by stream, at the last look.
    var parkedJobs: [String: Int64] = [:]
    /// The mark of the orders under which all parked jobs of a stream were looked at.
    var looked: [String: String] = [:]
    private(set) var stopping = false
    private let waiter: RedisClient
    /// Blocking reads under way: 0 for all partitions together or, in a cluster, one a partition.
    private var waits: Set<Int> = []
    /// Opened by the first wait that ends.
    private var wake: UnsafeContinuation<Void, Never>?

    /// Blocking reads last this long at the most; then everything is looked at, since after a wipe a new stream may
    /// have lower ids than the last seen.
    private static let blockMilliseconds: Int64 = 1000
    /// Pause before asking again a queue that refused or was away.
    private static let refusedMilliseconds: Int64 = 200
    /// A reply ends about here: Redis works on nothing else while it writes one, and 256 jobs of the greatest size would
    /// take it tens of milliseconds.
    private static let bytesPerFetch: Int64 = 512 << 10
    /// Fewest entries asked of a stream at once.
    private static let fewestPerStream = 16

    /// - Parameters:
    ///   - loop: the loop on which every method is called and both clients live.
    ///   - client: for commands; `waiter`: connections of its own for blocking reads, one a slot in a cluster, with a
    ///     command timeout above two seconds.
    ///   - consumer: this process' unique name, the same as its `live:` key.
    package init(
        loop: EventLoop, client: RedisClient, waiter: RedisClient, keys: QueueKeys, stage: Stage, consumer: String
    ) {
        self.loop = loop
        self.client = client
        self.waiter = waiter
        self.keys = keys
        self.consumer = consumer
        lastFetchOK = loop.time.monotonicNanoseconds
        streams = stage.lanes.flatMap { lane in
            (0..<keys.partitions).map { Stream(lane: lane, partition: $0, key: keys.lane($0, lane)) }
        }
    }

    // MARK: - Fetch

    package func fetch(atMost count: Int) async -> [FetchedJob] {
        loop.preconditionInLoop()
        guard !stopping else { return [] }
        if !takenOver.isEmpty {
            let jobs = await fetchTakenOver(atMost: count)
            guard jobs.isEmpty, takenOver.isEmpty, !stopping else { return jobs }
        }
        markReadyAgain()
        var jobs = await fetchReady(atMost: count)
        if jobs.isEmpty && !stopping && takenOver.isEmpty && isSeeded {
            await waitForEntries()
            if !stopping && takenOver.isEmpty { jobs = await fetchReady(atMost: count) }
        }
        if jobs.isEmpty && !stopping && !isSeeded { await loop.sleep(milliseconds: Self.refusedMilliseconds) }
        return jobs
    }

    /// Live lanes are asked at each fetch, however long the bulk backlog is; paused ones now and then, however busy the
    /// others are.
    private func markReadyAgain() {
        let now = loop.time.monotonicNanoseconds
        for index in streams.indices {
            if let refusedAt = streams[index].refusedAt {
                streams[index].ready = now - refusedAt >= Self.refusedMilliseconds * 1_000_000
            } else if streams[index].lane == .verifyLive || streams[index].lane == .writeLive {
                streams[index].ready = true
            }
        }
    }

    /// What was taken over from others, but for what was paused since.
    private func fetchTakenOver(atMost count: Int) async -> [FetchedJob] {
        let jobs = Array(takenOver.prefix(count))
        takenOver.removeFirst(jobs.count)
        var allowed: [FetchedJob] = []
        for (partition, jobs) in Dictionary(grouping: jobs, by: \.partition) {
            let answer = try? await client.evaluate(
                QueueScripts.orders, keys: [.text(keys.meta(partition))], arguments: [])
            guard let items = answer?.elements, items.first?.int64 == 1 else {
                // Nobody says what is paused: they wait.
                takenOver += jobs
                continue
            }
            let pauses = items.dropFirst().compactMap(\.elements).filter { $0.last?.text == "pause" }
            allowed += await unlessPaused(jobs, Set(pauses.compactMap { $0.first?.text }))
        }
        if allowed.isEmpty && !takenOver.isEmpty {
            await loop.sleep(milliseconds: Self.refusedMilliseconds)
        } else {
            lastFetchOK = loop.time.monotonicNanoseconds
        }
        return allowed
    }

    /// Parks what is paused by kind or organization. What was taken over from a lane that is paused itself goes back
    /// into it.
    /// - Parameter paused: names of orders.
    private func unlessPaused(_ jobs: [FetchedJob], _ paused: Set<String>) async -> [FetchedJob] {
        guard !paused.isEmpty, !jobs.isEmpty else { return jobs }
        var allowed: [FetchedJob] = []
        var parked: [Settlement] = []
        for job in jobs {
            let names = [
                QueueOrder.name(.lane, job.lane.name), QueueOrder.name(.kind, job.header.kind.rawValue),
                QueueOrder.name(.organization, job.header.organization),
            ]
            if names.contains(where: paused.contains) {
                parked.append(Settlement(job, .park))
            } else {
                allowed.append(job)
            }
        }
        counters.parked += Int64(parked.count)
        await settle(parked)
        return allowed
    }

    private func fetchReady(atMost count: Int) async -> [FetchedJob] {
        var jobs: [FetchedJob] = []
        var anyFailed = false
        let lanes = [streams[0].lane, streams[streams.count - 1].lane]
        for lane in lanes where !stopping {
            var failed = false
            var asked = false
            // A live lane is emptied before a bulk job is handed out; of a bulk lane one look is enough.
            repeat {
                guard let answered = await ask(lane, atMost: count, &jobs) else { break }
                asked = true
                failed = !answered
            } while lane == lanes[0] && !failed && !stopping
            anyFailed = anyFailed || failed
            if asked && !failed { lastFetchOK = loop.time.monotonicNanoseconds }
            if asked { rotate(lane) }
        }
        isSeeded = !anyFailed
        return jobs
    }

    /// Asks ready streams of a lane, as many as there is room for.
    /// - Returns: whether all of them answered; nil when there is none to ask or no room.
    private func ask(_ lane: Lane, atMost count: Int, _ jobs: inout [FetchedJob]) async -> Bool? {
        let ready = streams.indices.filter { streams[$0].lane == lane && streams[$0].ready }
        guard !ready.isEmpty, jobs.count < count else { return nil }
        let room = count - jobs.count
        let share = (room + ready.count - 1) / ready.count
        let perStream = min(QueueScripts.mostEntries, max(Self.fewestPerStream, share), room)
        // Not more streams than the batch has room for; the others stay ready and come first next time.
        let asked = ready.prefix(room / perStream)
        let answers = await withTaskGroup(of: (Int, Answer).self) { group in
            for index in asked {
                group.addTask { (index, await self.ask(index, perStream)) }
            }
            return await group.reduce(into: [(Int, Answer)]()) { $0.append($1) }
        }
        var failed = false
        // Every answer is looked at, whatever became of the others: what was handed out is in this worker's hands.
        for (index, answer) in answers {
            switch answer {
            case .entries(let found, let lastID, let full):
                streams[index].lastID = lastID
                streams[index].ready = full
                streams[index].refusedAt = nil
                jobs.append(contentsOf: found)
            case .refused:
                streams[index].ready = false
                streams[index].refusedAt = loop.time.monotonicNanoseconds
            case .unseeded, .failed: failed = true
            }
        }
        return !failed
    }

    /// The next fetch begins with another partition, so that none starves when batches are small.
    private func rotate(_ lane: Lane) {
        let range = streams.indices.filter { streams[$0].lane == lane }
        guard let first = range.first, let last = range.last else { return }
        let moved = streams.remove(at: first)
        streams.insert(moved, at: last)
    }

    private enum Answer: Sendable {
        /// `full`: there may be more.
        case entries([FetchedJob], lastID: String, full: Bool)
        case refused
        case unseeded
        case failed
    }

    private func ask(_ index: Int, _ count: Int) async -> Answer {
        let stream = streams[index]
        let answer: RedisValue
        do {
            answer = try await client.evaluate(
                QueueScripts.fetch, keys: [.text(keys.meta(stream.partition)), .text(stream.key)],
                arguments: [
                    .text(QueueKeys.group), .text(consumer), .integer(Int64(count)), .text(stream.lane.name),
                    .integer(Self.bytesPerFetch),
                ])
        } catch {
            deliveriesInDoubt = true
            return .failed
        }
        guard let parts = answer.elements, parts.count == 4, let entries = parts[0].elements,
            let lastID = parts[1].text
        else { return answer.text == "paused" ? .refused : .unseeded }
        var jobs: [FetchedJob] = []
        jobs.reserveCapacity(entries.count)
        for entry in entries {
            guard let pair = entry.elements, pair.count >= 2, let id = pair[0].text else { continue }
            if let job = await job(stream, id: id, fields: pair[1], deliveries: 1) { jobs.append(job) }
        }
        jobs = await unlessPaused(jobs, Set(parts[2].elements?.compactMap(\.text) ?? []))
        counters.fetched[stream.lane, default: 0] += Int64(jobs.count)
        return .entries(jobs, lastID: lastID, full: parts[3].int64 == 1)
    }

    /// Reads an entry; one that is not of our form is buried at once.
    func job(_ stream: Stream, id: String, fields: RedisValue, deliveries: Int) async -> FetchedJob? {
        let items = fields.elements ?? []
        var header: [UInt8] = []
        var payload: [UInt8] = []
        for index in stride(from: 0, to: items.count - 1, by: 2) {
            switch items[index].text {
            case "h": header = items[index + 1].bytes ?? []
            case "p": payload = items[index + 1].bytes ?? []
            default: break
            }
        }
        guard let parsed = JobHeader(encoded: header) else {
            counters.malformed[stream.lane, default: 0] += 1
            await buryMalformed(stream, id: id, header: header, payload: payload)
            return nil
        }
        held.insert(HeldEntry(stream.partition, stream.lane, id))
        return FetchedJob(
            lane: stream.lane, partition: stream.partition, entryID: id, header: parsed, payload: payload,
            deliveries: deliveries)
    }

    /// Waits until a stream has an entry after the last one seen there, at most about a second. In a cluster one read
    /// can't span partitions: each has its own, the first that ends ends the wait, and the others go on beside the work.
    private func waitForEntries() async {
        let groups = waiter.isCluster ? Array(0..<keys.partitions) : [0]
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
            wake = continuation
            for group in groups where !waits.contains(group) {
                waits.insert(group)
                loop.spawn { await self.wait(group) }
            }
        }
    }

    /// One blocking read. Its streams are ready when it says so, and all of its group when it says nothing. A paused
    /// lane is not waited for: what lies there would end the wait at once, again and again.
    private func wait(_ group: Int) async {
        let isOfGroup = { (stream: Stream) in !self.waiter.isCluster || stream.partition == group }
        let all = streams.filter(isOfGroup)
        let awaited = all.filter { $0.refusedAt == nil }
        var found: Set<String>?
        if awaited.isEmpty {
            await loop.sleep(milliseconds: Self.refusedMilliseconds)
        } else {
            let wait = awaited.count < all.count ? Self.refusedMilliseconds : Self.blockMilliseconds
            var command: [RedisArgument] = ["XREAD", "COUNT", "1", "BLOCK", .integer(wait), "STREAMS"]
            command.append(contentsOf: awaited.map { .text($0.key) })
            command.append(contentsOf: awaited.map { .text($0.lastID) })
            if let answer = try? await waiter.command(command) {
                if let items = answer.elements, !items.isEmpty {
                    found = Set(items.compactMap { $0.elements?.first?.text })
                }
            } else if !stopping {
                await loop.sleep(milliseconds: Self.refusedMilliseconds)
            }
        }
        for index in streams.indices where isOfGroup(streams[index]) {
            if found?.contains(streams[index].key) ?? true { streams[index].ready = true }
        }
        waits.remove(group)
        wake?.resume()
        wake = nil
    }

    // MARK: - Stop

    /// Ends the fetching: a fetch that waits returns at once, later ones are empty.
    package func stopFetching() async {
        loop.preconditionInLoop()
        stopping = true
        await waiter.close()
    }

    /// Gives back everything still in hand, so that others go on at once.
    package func release() async {
        loop.preconditionInLoop()
        takenOver.removeAll()
        held.removeAll()
        let streams = self.streams
        await withTaskGroup(of: Void.self) { group in
            for stream in streams {
                group.addTask {
                    var more = true
                    while more {
                        let answer = try? await self.client.evaluate(
                            QueueScripts.release, keys: [.text(stream.key)],
                            arguments: [
                                .text(QueueKeys.group), .text(self.consumer),
                                .integer(Int64(QueueScripts.mostEntries)),
                            ])
                        more = answer?.int64 == Int64(QueueScripts.mostEntries)
                    }
                }
            }
        }
    }
}
