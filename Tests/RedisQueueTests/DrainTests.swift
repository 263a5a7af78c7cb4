import EventLoop
import Jobs
import Redis
import Service
import TestSupport
import Testing

@testable import RedisQueue

/// Drain orders and purges at the level of scripts (queue.md §7).
@Suite(.onEachRedis) struct DrainTests {
    private func drain(
        _ bench: QueueBench, _ scope: QueueOrder.Scope, _ target: String, milliseconds: Int64? = nil
    ) async throws {
        try await bench.loop.run {
            _ = try await QueueOrders(client: bench.client, keys: bench.keys).drain(
                scope, target, owner: "ops", reason: "r \"7\"", milliseconds: milliseconds)
        }
    }

    private func resume(
        _ bench: QueueBench, _ scope: QueueOrder.Scope, _ target: String, _ action: QueueOrder.Action
    ) async throws {
        try await bench.loop.run {
            _ = try await QueueOrders(client: bench.client, keys: bench.keys).resume(
                scope, target, owner: "ops", lifting: action)
        }
    }

    private func pause(_ bench: QueueBench, _ scope: QueueOrder.Scope, _ target: String) async throws {
        try await bench.loop.run {
            _ = try await QueueOrders(client: bench.client, keys: bench.keys).pause(
                scope, target, owner: "ops", reason: "r", milliseconds: nil)
        }
    }

    private func orders(_ bench: QueueBench) async throws -> [QueueOrder] {
        try await bench.loop.run { try await QueueOrders(client: bench.client, keys: bench.keys).list() }
    }

    private func field(_ bench: QueueBench, _ key: (Int) -> String, _ name: String) async throws -> Int64 {
        var sum: Int64 = 0
        for partition in 0..<bench.keys.partitions {
            sum += try await bench.command(["HGET", .text(key(partition)), .text(name)]).int64 ?? 0
        }
        return sum
    }

    /// All fields of the backlog, summed over the partitions.
    private func backlog(_ bench: QueueBench) async throws -> [String: Int64] {
        var all: [String: Int64] = [:]
        for partition in 0..<bench.keys.partitions {
            let items = try await bench.command(["HGETALL", .text(bench.keys.backlog(partition))]).elements ?? []
            for index in stride(from: 0, to: items.count - 1, by: 2) {
                all[items[index].text ?? "", default: 0] += items[index + 1].int64 ?? 0
            }
        }
        return all
    }

    private func fetch(_ bench: QueueBench, _ source: RedisJobSource, until count: Int) async throws -> [FetchedJob] {
        var jobs: [FetchedJob] = []
        for _ in 0..<30 where jobs.count < count { jobs += try await bench.fetch(source) }
        return jobs
    }

    // MARK: - Intake

    @Test func whatIsDrainedIsRefusedAtOnceAndTheRestIsNot() async throws {
        let bench = try await QueueBench.make()
        #expect(try await bench.accept("before") != .draining)
        try await drain(bench, .lane, "write")
        try await drain(bench, .kind, "attribute")
        try await drain(bench, .organization, "other")
        for index in 0..<8 {
            #expect(try await bench.accept("user_\(index)") == .draining)
            #expect(try await bench.accept("user_\(index)", lane: .verify, kind: .attribute) == .draining)
            #expect(try await bench.accept("user_\(index)", lane: .verify, organization: "other") == .draining)
            guard case .accepted = try await bench.accept("user_\(index)", lane: .writeLive) else {
                Issue.record("a lane beside the drained one was refused")
                continue
            }
        }
        #expect(try await bench.length(.write) == 1)
        #expect(try await field(bench, bench.keys.stats, "draining") == 24)
        #expect(try await bench.loop.run { bench.sink.draining } == 24)
        // Workers go on.
        let worker = try await bench.worker("w1")
        let jobs = try await fetch(bench, worker, until: 9)
        #expect(jobs.count == 9)
        try await bench.settle(worker, jobs.map { Settlement($0, .done) })
        #expect(try await backlog(bench).isEmpty)
        try await resume(bench, .lane, "write", .drain)
        #expect(try await bench.accept("after") != .draining)
        #expect(try await orders(bench).map(\.name) == ["kind:attribute", "organization:other"])
    }

    @Test func aDrainAndAPauseOfTheSameStandSideBySide() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        _ = try await bench.accept("user_1")
        try await pause(bench, .lane, "write")
        try await drain(bench, .lane, "write")
        #expect(try await orders(bench).map(\.action) == [.drain, .pause])
        let worker = try await bench.worker("w1")
        #expect(try await bench.fetch(worker).isEmpty)
        try await resume(bench, .lane, "write", .pause)
        #expect(try await bench.accept("user_2") == .draining)
        #expect(try await fetch(bench, worker, until: 1).count == 1)
        try await resume(bench, .lane, "write", .drain)
        #expect(try await orders(bench).isEmpty)
        #expect(try await bench.command(["HEXISTS", .text(bench.keys.meta(0)), "closed"]).int64 == 0)
    }

    @Test func aDrainRunsOutOnRedisClock() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        try await drain(bench, .lane, "write", milliseconds: 3_600_000)
        var result = try await bench.accept("user_1")
        #expect(result == .draining)
        // The same order given again counts anew.
        try await drain(bench, .lane, "write", milliseconds: 20)
        for _ in 0..<2_000 where result == .draining {
            await bench.loop.sleep(milliseconds: 10)
            result = try await bench.accept("user_1")
        }
        #expect(result != .draining)
        #expect(try await orders(bench).isEmpty)
        // As every writer does each second.
        _ = try await bench.loop.run { try await ShedLevel(client: bench.client, keys: bench.keys).update() }
        #expect(
            try await bench.command(["HMGET", .text(bench.keys.meta(0)), "closed", "drain:lane:write"])
                == .array([.null, .null]))
    }

    @Test func aDrainSurvivesARestartAndComesBackWithTheSeedAfterAWipe() async throws {
        let server = try await TestRedis.start(.init(appendOnly: true, appendFsync: "always"))
        let bench = try await QueueBench.make(partitions: 2, redis: server)
        try await drain(bench, .organization, "demo")
        try await server.restart()
        _ = try await bench.loop.run { await bench.client.waitUntilConnected(milliseconds: 10_000) }
        #expect(try await bench.accept("user_1") == .draining)
        let standing = try await orders(bench)
        _ = try await bench.command(["FLUSHALL"])
        guard case .unavailable = try await bench.accept("user_1") else {
            Issue.record("a wiped redis took a write")
            return
        }
        try await bench.loop.run {
            try await QueueSeed(client: bench.client, keys: bench.keys).seed(orders: standing)
        }
        #expect(try await bench.accept("user_1") == .draining)
        #expect(try await orders(bench) == standing)
        await server.remove()
    }

    @Test func aDeadWorkersJobIsHandedOutUnderADrain() async throws {
        let bench = try await QueueBench.make()
        for index in 0..<4 { _ = try await bench.accept("user_\(index)") }
        let dying = try await bench.worker("dying", alive: false)
        #expect(try await fetch(bench, dying, until: 4).count == 4)
        try await drain(bench, .lane, "write")
        try await drain(bench, .kind, "identify")
        let other = try await bench.worker("other")
        try await bench.loop.run { await other.reclaimOnce() }
        #expect(try await fetch(bench, other, until: 4).count == 4)
    }

    @Test func healthTellsTheShedLevelAndWhatIsDrained() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        let health = IntakeHealth(client: bench.client, keys: bench.keys)
        // What Redis does not answer within a second is `good`, and asked again.
        func settled() async throws -> Health {
            while true {
                let found = try await bench.loop.run { await health.health() }
                if found != .good { return found }
            }
        }
        #expect(try await settled() == .level(0, ""))
        _ = try await bench.command(["HSET", .text(bench.keys.meta(0)), "shed", "2"])
        try await drain(bench, .lane, "write")
        #expect(
            try await settled()
                == .level(2, "refused for overload: impressions, identify; drained: lane:write"))
    }

    // MARK: - Counts

    /// Any mix of outcomes, repeated settles, takeovers and redrives: what is counted is what is there.
    @Test(arguments: [1, 2, 3]) func countsOfKindsAndOrganizationsReturnToZero(seed: UInt64) async throws {
        var random = SeededGenerator(seed: seed)
        let bench = try await QueueBench.make()
        let kinds: [JobKind] = [.identify, .attribute, .echo]
        for index in 0..<120 {
            _ = try await bench.accept(
                "user_\(index)", lane: [.write, .writeLive][Int(random.next() % 2)],
                organization: "o\(random.next() % 3)", kind: kinds[Int(random.next() % 3)])
        }
        #expect(try await bench.accept("v", lane: .verify) != .shed)
        let verifier = try await bench.worker("v1", stage: .verify)
        try await bench.settle(
            verifier,
            try await fetch(bench, verifier, until: 1).map {
                Settlement($0, .forward(to: .write, payload: $0.payload))
            })
        let workers = [try await bench.worker("w1"), try await bench.worker("w2")]
        let streams = DeadLetterStreams(client: bench.client, keys: bench.keys)
        var before: [Settlement] = []
        var rounds = 0
        while try await !backlog(bench).isEmpty, rounds < 200 {
            rounds += 1
            let worker = workers[Int(random.next() % 2)]
            let mayFail = rounds < 40
            let jobs = try await bench.fetch(worker, atMost: 20)
            let settlements = jobs.map { job -> Settlement in
                switch mayFail ? random.next() % 8 : 0 {
                case 1, 2: Settlement(job, .retry(afterMilliseconds: 0, attempts: 1))
                case 3: Settlement(job, .dead(reason: "r", text: "t"))
                case 4: Settlement(job, .park)
                case 5: Settlement(job, .forward(to: .write, payload: job.payload))
                default: Settlement(job, .done)
                }
            }
            try await bench.settle(worker, settlements)
            // The same once more, by whoever comes late.
            try await bench.settle(workers[Int(random.next() % 2)], Array(before.prefix(5)))
            try await bench.settle(worker, settlements)
            before = settlements
            _ = try await bench.loop.run { await worker.promoteOnce() }
            if mayFail, rounds % 5 == 0 {
                for partition in 0..<bench.keys.partitions {
                    let letters = try await bench.loop.run { try await streams.uncopied(partition) }
                    for lane in [Lane.write, .writeLive] {
                        let redrives = letters.filter { $0.lane == lane }.compactMap { letter in
                            JobHeader(encoded: letter.header).map {
                                DeadLetterStreams.Redrive(entry: letter.entry, header: $0, payload: letter.payload)
                            }
                        }
                        for _ in 0..<2 {
                            try await bench.loop.run { _ = try await streams.redrive(redrives, partition, lane) }
                        }
                    }
                }
            }
            let counts = try await backlog(bench)
            let lanes = try await bench.loop.run {
                try await QueueStatistics(client: bench.client, keys: bench.keys).lanes()
            }
            let left = lanes.reduce(0) { $0 + $1.left }
            #expect(counts.filter { $0.key.hasPrefix("kind:") }.values.reduce(0, +) == left)
            #expect(counts.filter { !$0.key.hasPrefix("kind:") }.values.reduce(0, +) == left)
        }
        #expect(try await backlog(bench).isEmpty, "after \(rounds) rounds")
    }

    @Test func liveWorkersAreCounted() async throws {
        let bench = try await QueueBench.make()
        for index in 0..<4 { _ = try await bench.accept("user_\(index)") }
        let dead = try await bench.worker("dead", alive: false)
        let statistics = QueueStatistics(client: bench.client, keys: bench.keys)
        #expect(try await bench.loop.run { try await statistics.liveWorkers(.write) } == 0)
        #expect(try await fetch(bench, dead, until: 4).count == 4)
        #expect(try await bench.loop.run { try await statistics.liveWorkers(.write) } == 0)
        _ = try await bench.accept("more")
        let live = try await bench.worker("live")
        #expect(try await fetch(bench, live, until: 1).count == 1)
        #expect(try await bench.loop.run { try await statistics.liveWorkers(.write) } == 1)
    }

    // MARK: - Purge

    @Test func aPurgeTakesWhatNobodyHoldsAndCountsRight() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        let purge = QueuePurge(client: bench.client, keys: bench.keys)
        for index in 0..<20 { _ = try await bench.accept("user_\(index)") }
        let worker = try await bench.worker("w1")
        let held = try await bench.fetch(worker, atMost: 16)
        let rest = try await fetch(bench, worker, until: 20 - held.count)
        try await bench.settle(
            worker, rest.map { Settlement($0, .retry(afterMilliseconds: 3_600_000, attempts: 1)) })
        for index in 0..<600 { _ = try await bench.accept("waits_\(index)") }
        for index in 0..<30 { _ = try await bench.accept("waits_\(index)", organization: "other") }
        let filter = QueuePurge.Filter(lane: .write, organization: "demo")
        #expect(try await bench.loop.run { try await purge.count(filter) }.fitting == 600 + Int64(rest.count))
        await #expect(throws: QueuePurge.NotPaused.self) {
            try await bench.loop.run { _ = try await purge.purge(filter) }
        }
        #expect(try await bench.length(.write) == 630 + Int64(held.count))
        try await pause(bench, .lane, "write")
        let counts = try await bench.loop.run { try await purge.purge(filter) }
        #expect((counts.waiting, counts.due, counts.parked) == (600, Int64(rest.count), 0))
        #expect(try await bench.length(.write) == 30 + Int64(held.count))
        #expect(try await bench.delayed(.write) == 0)
        #expect(try await bench.command(["HLEN", .text(bench.keys.later(0, .write))]).int64 == 0)
        #expect(try await field(bench, bench.keys.stats, "purged:write") == 600 + Int64(rest.count))
        #expect(
            try await backlog(bench) == [
                "demo": Int64(held.count), "other": 30, "kind:identify": 30 + Int64(held.count),
            ])
        // What was in hand ends as always.
        try await bench.settle(worker, held.map { Settlement($0, .done) })
        #expect(try await backlog(bench) == ["other": 30, "kind:identify": 30])
        #expect(try await bench.loop.run { try await purge.purge(filter) }.fitting == 0)
    }

    @Test func aPurgeThatStopsInTheMiddleGoesOnWhenRepeated() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        for index in 0..<1_000 { _ = try await bench.accept("user_\(index)") }
        try await pause(bench, .lane, "write")
        let purge = QueuePurge(client: bench.client, keys: bench.keys)
        let filter = QueuePurge.Filter(lane: .write)
        let first = try await bench.loop.run { try await purge.purge(filter) { $0.fitting < 256 } }
        #expect(first.fitting == 256 && !first.isComplete)
        #expect(try await bench.length(.write) == 744)
        let second = try await bench.loop.run { try await purge.purge(filter) }
        #expect(second.fitting == 744 && second.isComplete)
        #expect(try await backlog(bench).isEmpty)
    }

    @Test func aPurgeOfAPausedKindFindsWaitingDelayedAndParkedJobs() async throws {
        let bench = try await QueueBench.make()
        for index in 0..<40 {
            _ = try await bench.accept("user_\(index)", kind: index % 2 == 0 ? .identify : .attribute)
        }
        let worker = try await bench.worker("w1")
        try await bench.settle(
            worker,
            try await fetch(bench, worker, until: 40).map {
                Settlement($0, .retry(afterMilliseconds: 3_600_000, attempts: 1))
            })
        try await pause(bench, .kind, "identify")
        for index in 0..<10 { _ = try await bench.accept("parks_\(index)") }
        for _ in 0..<4 { #expect(try await bench.fetch(worker).isEmpty) }
        for index in 0..<10 { _ = try await bench.accept("waits_\(index)") }
        let purge = QueuePurge(client: bench.client, keys: bench.keys)
        let counts = try await bench.loop.run { try await purge.purge(.init(kind: "identify")) }
        #expect((counts.waiting, counts.due, counts.parked) == (10, 20, 10))
        #expect(try await backlog(bench) == ["demo": 20, "kind:attribute": 20])
        #expect(try await bench.delayed(.write) == 20)
    }
}
