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
    /// What this process has in hand, by `partition/lane/entry`: never taken over from itself.
    var held: Set<String> = []
    /// Pending here for Redis, unknown to this process, at the last refresh.
    var strays: Set<String> = []
    /// Where each stream's search for idle entries goes on.
    var idleCursors: [String: String] = [:]
    private(set) var stopping = false
    private let waiter: RedisClient

    /// Blocking reads last this long at the most; then everything is looked at, since after a wipe a new stream may
    /// have lower ids than the last seen.
    private static let blockMilliseconds: Int64 = 1000
    /// Pause before asking again a queue that refused or was away.
    private static let refusedMilliseconds: Int64 = 200
    /// Fewest entries asked of a stream at once.
    private static let fewestPerStream = 16

    /// - Parameters:
    ///   - loop: the loop on which every method is called and both clients live.
    ///   - client: for commands; `waiter`: a connection of its own for blocking reads, with a command timeout above
    ///     two seconds.
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
            let jobs = Array(takenOver.prefix(count))
            takenOver.removeFirst(jobs.count)
            lastFetchOK = loop.time.monotonicNanoseconds
            return jobs
        }
        markLiveReady()
        var jobs = await fetchReady(atMost: count)
        if jobs.isEmpty && !stopping && takenOver.isEmpty && isSeeded {
            await waitForEntries()
            if !stopping && takenOver.isEmpty { jobs = await fetchReady(atMost: count) }
        }
        if jobs.isEmpty && !stopping && !isSeeded { await loop.sleep(milliseconds: Self.refusedMilliseconds) }
        return jobs
    }

    /// Live lanes are asked at each fetch, however long the bulk backlog is.
    private func markLiveReady() {
        for index in streams.indices where streams[index].lane == .verifyLive || streams[index].lane == .writeLive {
            streams[index].ready = true
        }
    }

    private func fetchReady(atMost count: Int) async -> [FetchedJob] {
        var jobs: [FetchedJob] = []
        var anyFailed = false
        for lane in [streams[0].lane, streams[streams.count - 1].lane] {
            let ready = streams.indices.filter { streams[$0].lane == lane && streams[$0].ready }
            guard !ready.isEmpty, jobs.count < count, !stopping else { continue }
            let share = (count - jobs.count + ready.count - 1) / ready.count
            let perStream = min(QueueScripts.mostEntries, max(Self.fewestPerStream, share))
            // Not more streams than the batch has room for; the others stay ready and come first next time.
            let asked = ready.prefix(max(1, (count - jobs.count) / perStream))
            let answers = await withTaskGroup(of: (Int, Answer).self) { group in
                for index in asked {
                    group.addTask { (index, await self.ask(index, perStream)) }
                }
                return await group.reduce(into: [(Int, Answer)]()) { $0.append($1) }
            }
            var refused = false
            var failed = false
            // Every answer is looked at, whatever became of the others: what was handed out is in this worker's hands.
            for (index, answer) in answers {
                switch answer {
                case .entries(let found, let lastID):
                    streams[index].lastID = lastID
                    streams[index].ready = found.count >= perStream
                    jobs.append(contentsOf: found)
                case .refused: refused = true
                case .unseeded, .failed: failed = true
                }
            }
            anyFailed = anyFailed || failed
            if !failed { lastFetchOK = loop.time.monotonicNanoseconds }
            if refused && jobs.isEmpty { await loop.sleep(milliseconds: Self.refusedMilliseconds) }
            rotate(lane)
        }
        isSeeded = !anyFailed
        return jobs
    }

    /// The next fetch begins with another partition, so that none starves when batches are small.
    private func rotate(_ lane: Lane) {
        let range = streams.indices.filter { streams[$0].lane == lane }
        guard let first = range.first, let last = range.last else { return }
        let moved = streams.remove(at: first)
        streams.insert(moved, at: last)
    }

    private enum Answer: Sendable {
        case entries([FetchedJob], lastID: String)
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
                ])
        } catch {
            return .failed
        }
        guard let parts = answer.elements, parts.count == 2, let entries = parts[0].elements,
            let lastID = parts[1].text
        else { return answer.text == "paused" ? .refused : .unseeded }
        var jobs: [FetchedJob] = []
        jobs.reserveCapacity(entries.count)
        for entry in entries {
            guard let pair = entry.elements, pair.count >= 2, let id = pair[0].text else { continue }
            if let job = await job(stream, id: id, fields: pair[1], deliveries: 1) { jobs.append(job) }
        }
        counters.fetched[stream.lane, default: 0] += Int64(jobs.count)
        return .entries(jobs, lastID: lastID)
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
        held.insert(Self.heldName(stream.partition, stream.lane, id))
        return FetchedJob(
            lane: stream.lane, partition: stream.partition, entryID: id, header: parsed, payload: payload,
            deliveries: deliveries)
    }

    static func heldName(_ partition: Int, _ lane: Lane, _ id: String) -> String {
        "\(partition)/\(lane.rawValue)/\(id)"
    }

    /// Waits until a stream has an entry after the last one seen there, at most about a second.
    private func waitForEntries() async {
        var command: [RedisArgument] = ["XREAD", "COUNT", "1", "BLOCK", .integer(Self.blockMilliseconds), "STREAMS"]
        command.append(contentsOf: streams.map { .text($0.key) })
        command.append(contentsOf: streams.map { .text($0.lastID) })
        guard let answer = try? await waiter.command(command) else {
            if !stopping { await loop.sleep(milliseconds: Self.refusedMilliseconds) }
            markAllReady()
            return
        }
        guard let found = answer.elements, !found.isEmpty else {
            markAllReady()
            return
        }
        let names = Set(found.compactMap { $0.elements?.first?.text })
        for index in streams.indices where names.contains(streams[index].key) { streams[index].ready = true }
    }

    private func markAllReady() {
        for index in streams.indices { streams[index].ready = true }
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
