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
}
