import EventLoop
import Jobs
import Redis
import TestSupport
import Testing

@testable import RedisQueue

/// What users of job systems report, case by case, on a real Redis.
@Suite struct QueueCaseTests {
    /// Redis was away while a job's retry was written, and the job was gone.
    @Test func aSettleThatRedisRefusesIsKeptAndSentUntilItSucceeds() async throws {
        let server = try await TestRedis.start()
        let bench = try await QueueBench.make(partitions: 1, redis: server)
        _ = try await bench.accept("user_1")
        let worker = try await bench.worker("w1")
        let job = try #require(try await bench.fetch(worker).first)
        // As after a failover: a replica takes no write.
        _ = try await server.command(["REPLICAOF", "127.0.0.1", "1"])
        async let settled: Void = bench.settle(
            worker,
            [
                Settlement(job, .retry(afterMilliseconds: 3_600_000, attempts: 1))
            ])
        while try await bench.loop.run({ worker.counters.settleRetries }) == 0 {
            try await Task.sleep(for: .milliseconds(5))
        }
        #expect(try await server.command(["XLEN", .text(bench.keys.lane(0, .write))]).int64 == 1)
        _ = try await server.command(["REPLICAOF", "NO", "ONE"])
        try await settled
        #expect(try await server.command(["XLEN", .text(bench.keys.lane(0, .write))]).int64 == 0)
        #expect(try await server.command(["ZCARD", .text(bench.keys.due(0, .write))]).int64 == 1)
        #expect(try await server.command(["HLEN", .text(bench.keys.later(0, .write))]).int64 == 1)
        await server.remove()
    }

    /// A delay longer than the visibility timeout brought a copy each time that ran out.
    @Test(.onEachRedis) func aJobDelayedForSixHoursIsInNobodysHandsAndIsNotCopied() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        _ = try await bench.accept("user_1")
        let worker = try await bench.worker("w1")
        let job = try #require(try await bench.fetch(worker).first)
        try await bench.settle(worker, [Settlement(job, .retry(afterMilliseconds: 6 * 3_600_000, attempts: 1))])
        let pending = try await bench.command([
            "XPENDING", .text(bench.keys.lane(0, .write)), .text(QueueKeys.group),
        ])
        #expect(pending.elements?.first?.int64 == 0)
        let other = try await bench.worker("other")
        _ = try await bench.command(["DEL", .text(bench.keys.live("w1"))])
        try await bench.loop.run {
            for _ in 0..<3 {
                await other.reclaimOnce()
                await other.reclaimIdle()
                _ = await other.promoteOnce()
            }
        }
        #expect(try await bench.delayed(.write) == 1)
        #expect(try await bench.length(.write) == 0)
        #expect(try await bench.backlog() == 1)
    }

    /// A worker's own look for stuck jobs ran its slow job again.
    @Test func aWorkerDoesNotTakeOverWhatItStillWorksOn() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        _ = try await bench.accept("user_1")
        let worker = try await bench.worker("w1")
        let job = try #require(try await bench.fetch(worker).first)
        _ = try await bench.command([
            "XCLAIM", .text(bench.keys.lane(0, .write)), .text(QueueKeys.group), "w1", "0", .text(job.entryID),
            "IDLE", "60000", "JUSTID",
        ])
        try await bench.loop.run { for _ in 0..<3 { await worker.reclaimIdle() } }
        #expect(try await bench.loop.run { worker.counters.reclaimed } == 0)
        #expect(try await bench.fetch(worker).isEmpty)
    }

    /// Entries trimmed while a worker held them vanished without a word.
    @Test(.onEachRedis) func entriesDeletedWhilePendingAreCountedAsLost() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        for index in 0..<3 { _ = try await bench.accept("user_\(index)") }
        let dying = try await bench.worker("dying", alive: false)
        let held = try await bench.fetch(dying)
        #expect(held.count == 3)
        _ = try await bench.command(["XDEL", .text(bench.keys.lane(0, .write)), .text(held[1].entryID)])
        let other = try await bench.worker("other")
        try await bench.loop.run { await other.reclaimOnce() }
        #expect(try await bench.loop.run { other.counters.lostWhilePending } == 1)
        #expect(try await bench.fetch(other).map(\.entryID) == [held[0].entryID, held[2].entryID])
    }

    /// A job that came before its group was skipped by a group that begins at the end.
    @Test(.onEachRedis) func aLostGroupIsMadeAgainAtTheBeginning() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        let worker = try await bench.worker("w1")
        for index in 0..<5 { _ = try await bench.accept("user_\(index)") }
        let first = try await bench.fetch(worker, atMost: 16)
        try await bench.settle(worker, first.prefix(2).map { Settlement($0, .done) })
        _ = try await bench.command([
            "XGROUP", "DESTROY", .text(bench.keys.lane(0, .write)), .text(QueueKeys.group),
        ])
        _ = try await bench.accept("user_5")
        // Those that ended do not come back, all the others do.
        let again = try await bench.fetch(worker, atMost: 16)
        #expect(again.dropLast().map(\.header.stamp) == first.dropFirst(2).map(\.header.stamp))
        #expect(again.count == 4)
        try await bench.settle(worker, again.map { Settlement($0, .done) })
        #expect(try await bench.length(.write) == 0)
        #expect(try await bench.backlog() == 0)
    }

    /// A scrape whose cost grew with what it counted pinned Redis.
    @Test func whatAScrapeAsksDoesNotGrowWithTheBacklogAndRunsNoScript() async throws {
        let server = try await TestRedis.start()
        let bench = try await QueueBench.make(partitions: 4, redis: server)
        let statistics = QueueStatistics(client: bench.client, keys: bench.keys)
        func calls() async throws -> [String: Int64] {
            let info = try await server.command(["INFO", "commandstats"]).text ?? ""
            var calls: [String: Int64] = [:]
            for line in info.split(whereSeparator: \.isNewline) where line.hasPrefix("cmdstat_x") {
                let parts = line.split(separator: ":")
                let count = parts.last?.split(separator: ",").first?.dropFirst("calls=".count)
                calls[String(parts[0])] = count.flatMap { Int64($0) }
            }
            return calls
        }
        func cost() async throws -> [String: Int64] {
            let before = try await calls()
            _ = try await bench.loop.run { try await statistics.lanes() }
            return try await calls().mapValues { $0 }.merging(before) { $0 - $1 }.filter { $0.value != 0 }
        }
        for index in 0..<40 { _ = try await bench.accept("user_\(index)") }
        _ = try await cost()
        let few = try await cost()
        for index in 40..<2040 { _ = try await bench.accept("user_\(index)") }
        let many = try await cost()
        #expect(!few.isEmpty)
        for (name, count) in many { #expect(count <= few[name] ?? 0, "\(name): \(few[name] ?? 0), then \(count)") }
        await server.remove()
    }

    /// After an outage a buffer stayed full and refused for ever. cases/queue.md 16 and 58.
    @Test func aFullIntakeRefusesAtOnceAndTakesAgainOnceRedisIsBack() async throws {
        let server = try await TestRedis.start()
        var configuration = RedisJobSink.Configuration()
        configuration.mostWaiting = 200
        configuration.timeoutMilliseconds = 500
        let bench = try await QueueBench.make(redis: server, configuration: configuration)
        server.freeze()
        let waiting = Task {
            await withTaskGroup(of: AcceptResult?.self) { group in
                for index in 0..<200 { group.addTask { try? await bench.accept("user_\(index)") } }
                return await group.reduce(into: []) { $0.append($1) }
            }
        }
        while try await bench.loop.run({ bench.sink.waiting }) < 200 { try await Task.sleep(for: .milliseconds(1)) }
        // Nobody sleeps for room: Redis would first have to answer.
        #expect(try await bench.accept("one too many") == .unavailable("too many writes wait for redis"))
        for result in await waiting.value {
            guard case .unavailable = result else {
                Issue.record("\(String(describing: result))")
                continue
            }
        }
        #expect(try await bench.loop.run { bench.sink.waiting } == 0)
        server.thaw()
        var taken = 0
        for _ in 0..<1_000 where taken < 300 {
            if case .accepted = try await bench.accept("after_\(taken)") { taken += 1 }
            if taken == 0 { await bench.loop.sleep(milliseconds: 10) }
        }
        #expect(taken == 300)
        await server.remove()
    }

    /// Keys that nobody read grew for ever. cases/queue.md 56.
    @Test func whatJobsLeaveBehindDoesNotGrowWithTheirNumber() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        let worker = try await bench.worker("w1")
        let first = try await leftovers(bench, worker, after: 100)
        let second = try await leftovers(bench, worker, after: 1_500)
        #expect(Set(second.keys) == Set(first.keys))
        let grown = second.values.reduce(0, +) - first.values.reduce(0, +)
        #expect(grown < 2_000, "\(first) became \(second)")
    }

    /// Lets jobs of as many organizations go every way there is to their end.
    /// - Returns: what is left then: bytes by key.
    private func leftovers(
        _ bench: QueueBench, _ worker: RedisJobSource, after count: Int
    ) async throws -> [String: Int64] {
        let keys = bench.keys
        for index in 0..<count {
            _ = try await bench.accept("user", organization: "org_\(count)_\(index)")
        }
        let orders = QueueOrders(client: bench.client, keys: keys)
        var parked: Set<Int64> = []
        while try await bench.command(["EXISTS", .text(keys.backlog(0))]).int64 == 1 {
            var settlements: [Settlement] = []
            for job in try await bench.fetch(worker) {
                guard job.lane == .write, job.header.attempts == 0 else {
                    settlements.append(Settlement(job, .done))
                    continue
                }
                switch job.header.stamp % 5 {
                case 0: settlements.append(Settlement(job, .retry(afterMilliseconds: 0, attempts: 1)))
                case 1: settlements.append(Settlement(job, .forward(to: .writeLive, payload: job.payload)))
                case 2: settlements.append(Settlement(job, .dead(reason: "r", text: "t")))
                case 3:
                    _ = try await bench.loop.run { await worker.startAlone(job) }
                    settlements.append(Settlement(job, .done, answer: job.payload))
                default:
                    // Nothing is paused: it goes to the end of its lane.
                    settlements.append(
                        Settlement(job, parked.insert(job.header.stamp).inserted ? .park : .done))
                }
            }
            try await bench.settle(worker, settlements)
            _ = try await bench.loop.run { await worker.promoteOnce() }
        }
        var caps = DeadLetterStreams.Caps()
        caps.milliseconds = 0
        let dead = DeadLetterStreams(client: bench.client, keys: keys, caps: caps)
        try await bench.loop.run {
            while let last = try await dead.uncopied(0).last {
                try await dead.copied(0, .write, through: last.entry, nowMilliseconds: 9_000_000_000_000)
            }
            _ = try await orders.pause(.kind, "k", owner: "o", reason: "r", milliseconds: nil)
            _ = try await orders.resume(.kind, "k", owner: "o")
            for change in try await orders.changes() { try await orders.forget(change) }
        }
        var bytes: [String: Int64] = [:]
        for key in try await bench.command(["KEYS", .text(keys.prefix + "*")]).elements?.compactMap(\.text) ?? []
        where key != keys.live("w1") {
            bytes[String(key.dropFirst(keys.prefix.count))] =
                try await bench.command(["MEMORY", "USAGE", .text(key)]).int64 ?? 0
        }
        return bytes
    }

    /// A fleet that stood at nothing was not started for one job, since without a group there was no number; and after
    /// holes the group's own lag was none. cases/queue.md 68.
    @Test(.onEachRedis) func oneJobThatNoWorkerEverSawIsCountedAndHolesFalsifyNothing() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        let statistics = QueueStatistics(client: bench.client, keys: bench.keys)
        func write() async throws -> LaneStatistics {
            try await bench.loop.run { try await statistics.lanes() }[Lane.write.rawValue]
        }
        #expect(try await write().oldestWaitingMilliseconds == nil)
        _ = try await bench.accept("user_0")
        let alone = try await write()
        #expect(alone.waiting == 1 && alone.pending == 0 && alone.oldestWaitingMilliseconds != nil)
        for index in 1..<40 { _ = try await bench.accept("user_\(index)") }
        let worker = try await bench.worker("w1")
        let held = try await bench.fetch(worker, atMost: 16)
        #expect(held.count == 16)
        try await bench.settle(worker, held.prefix(5).map { Settlement($0, .done) })
        let waiting = try await bench.command([
            "XRANGE", .text(bench.keys.lane(0, .write)), .text("(" + held[15].entryID), "+",
        ])
        let hole = try #require(waiting.elements?[9].elements?.first?.text)
        _ = try await bench.command(["XDEL", .text(bench.keys.lane(0, .write)), .text(hole)])
        let groups = try await bench.command(["XINFO", "GROUPS", .text(bench.keys.lane(0, .write))])
        let fields = groups.elements?.first?.elements ?? []
        let lag = try #require(fields.firstIndex { $0.text == "lag" })
        #expect(fields[lag + 1] == .null, "this Redis knows its lag after all: the test has no hole")
        let counted = try await write()
        #expect(counted.waiting == 23 && counted.pending == 11)
    }

    /// What could not be read was shown as nothing. cases/queue.md 68.
    @Test func aNumberThatRedisDoesNotTellIsAnErrorAndNoZero() async throws {
        let server = try await TestRedis.start()
        let bench = try await QueueBench.make(partitions: 1, redis: server)
        _ = try await bench.accept("user_1")
        let worker = try await bench.worker("w1")
        #expect(try await bench.fetch(worker).count == 1)
        let statistics = QueueStatistics(client: bench.client, keys: bench.keys)
        for (command, other) in [("xpending", "xinfo|groups"), ("xinfo|groups", "xpending")] {
            _ = try await bench.accept("user_2")
            _ = try await server.command(["ACL", "SETUSER", "default", .text("-" + command), .text("+" + other)])
            let error = await #expect(throws: RedisError.self) {
                _ = try await bench.loop.run { try await statistics.lanes() }
            }
            #expect(error?.code == .server("NOPERM"))
        }
        await server.remove()
    }

    /// A count is of each stream, not of the call: several streams brought several times as many. cases/queue.md 69.
    @Test(.onEachRedis, arguments: [1, 2, 15, 17, 40, 200])
    func aFetchNeverBringsMoreThanItIsAskedFor(count: Int) async throws {
        let bench = try await QueueBench.make(partitions: 8)
        for index in 0..<60 {
            _ = try await bench.accept("user_\(index)")
            _ = try await bench.accept("user_\(index)", lane: .writeLive)
        }
        let worker = try await bench.worker("w1")
        var sizes: [Int] = []
        var all = 0
        while all < 120 && sizes.count < 400 {
            sizes.append(try await bench.fetch(worker, atMost: count).count)
            all += sizes[sizes.count - 1]
        }
        #expect(all == 120)
        #expect(sizes.max() ?? 0 <= count, "\(sizes)")
    }
}
