import EventLoop
import Jobs
import Redis
import TestSupport
import Testing

@testable import RedisQueue

/// Orders to the queue (queue.md §7), at the level of scripts and fetches. cases/queue.md 61.
@Suite(.onEachRedis) struct PauseTests {
    @discardableResult
    private func pause(
        _ bench: QueueBench, _ scope: QueueOrder.Scope, _ target: String, milliseconds: Int64? = nil
    ) async throws -> QueueOrder {
        try await bench.loop.run {
            try await QueueOrders(client: bench.client, keys: bench.keys).pause(
                scope, target, owner: "ops", reason: "incident \"7\"", milliseconds: milliseconds)
        }
    }

    @discardableResult
    private func resume(_ bench: QueueBench, _ scope: QueueOrder.Scope, _ target: String) async throws -> Bool {
        try await bench.loop.run {
            try await QueueOrders(client: bench.client, keys: bench.keys).resume(scope, target, owner: "ops")
        }
    }

    private func orders(_ bench: QueueBench) async throws -> [QueueOrder] {
        try await bench.loop.run { try await QueueOrders(client: bench.client, keys: bench.keys).list() }
    }

    private func parked(_ bench: QueueBench, _ lane: Lane = .write) async throws -> Int64 {
        var sum: Int64 = 0
        for partition in 0..<bench.keys.partitions {
            sum += try await bench.command(["XLEN", .text(bench.keys.parked(partition, lane))]).int64 ?? 0
        }
        return sum
    }

    /// Moves the end of an order into the past, in every partition: as if its time had come.
    private func runOut(_ bench: QueueBench, _ name: String) async throws {
        for partition in 0..<bench.keys.partitions {
            _ = try await bench.command([
                "HSET", .text(bench.keys.meta(partition)), .text("pause:" + name),
                #"{"owner":"ops","reason":"r","at":1,"until":1000}"#,
            ])
        }
    }

    private func fetch(_ bench: QueueBench, _ source: RedisJobSource, until count: Int) async throws -> [FetchedJob] {
        var jobs: [FetchedJob] = []
        for _ in 0..<30 where jobs.count < count { jobs += try await bench.fetch(source) }
        return jobs
    }

    // MARK: - Lanes

    @Test func aPausedLaneHandsOutNothingUntilItIsResumed() async throws {
        let bench = try await QueueBench.make()
        for index in 0..<10 { _ = try await bench.accept("user_\(index)") }
        let worker = try await bench.worker("w1")
        try await pause(bench, .lane, "write")
        // A worker that starts meanwhile, and a Redis that forgot its scripts, know of it.
        _ = try await bench.command(["SCRIPT", "FLUSH"])
        let second = try await bench.worker("w2")
        for source in [worker, second, worker] { #expect(try await bench.fetch(source).isEmpty) }
        #expect(try await bench.loop.run { worker.isPaused(.write) && !worker.isPaused(.writeLive) })
        #expect(try await bench.length(.write) == 10)
        let lanes = try await bench.loop.run {
            try await QueueStatistics(client: bench.client, keys: bench.keys).lanes()
        }
        #expect(lanes.filter(\.paused).map(\.lane) == [.write])
        #expect(try await resume(bench, .lane, "write"))
        #expect(try await fetch(bench, worker, until: 10).count == 10)
        #expect(try await bench.loop.run { !worker.isPaused(.write) })
    }

    @Test func aPauseHoldsForAFetchThatWaitsAlready() async throws {
        let bench = try await QueueBench.make()
        let worker = try await bench.worker("w1")
        #expect(try await bench.fetch(worker).isEmpty)
        async let waiting = bench.fetch(worker)
        try await pause(bench, .lane, "write")
        _ = try await bench.accept("user_1")
        #expect(try await waiting.isEmpty)
        #expect(try await bench.length(.write) == 1)
    }

    @Test func aBusyLiveLaneGoesOnBesideAPausedOneAndTheResumeIsSeen() async throws {
        let bench = try await QueueBench.make()
        let worker = try await bench.worker("w1")
        try await pause(bench, .lane, "write")
        _ = try await bench.accept("bulk")
        var seen: [Lane] = []
        for index in 0..<20 {
            _ = try await bench.accept("live_\(index)", lane: .writeLive)
            let jobs = try await fetch(bench, worker, until: 1)
            seen += jobs.map(\.lane)
            try await bench.settle(worker, jobs.map { Settlement($0, .done) })
        }
        #expect(seen == Array(repeating: .writeLive, count: 20))
        try await resume(bench, .lane, "write")
        // The live lane never falls silent, and the other one gets its turn all the same.
        var bulk = 0
        for index in 0..<2_000 where bulk == 0 {
            _ = try await bench.accept("live_\(index)", lane: .writeLive)
            let jobs = try await fetch(bench, worker, until: 1)
            bulk += jobs.filter { $0.lane == .write }.count
            try await bench.settle(worker, jobs.map { Settlement($0, .done) })
        }
        #expect(bulk == 1)
    }

    @Test func aWorkerOfAPausedLaneDoesNotSpin() async throws {
        let server = try await TestRedis.start()
        let bench = try await QueueBench.make(partitions: 2, redis: server)
        let worker = try await bench.worker("w1")
        for index in 0..<4 { _ = try await bench.accept("user_\(index)") }
        for lanes in [["write"], ["write", "write.live"]] {
            for lane in lanes { try await pause(bench, .lane, lane) }
            #expect(try await bench.fetch(worker).isEmpty)
            _ = try await bench.command(["CONFIG", "RESETSTAT"])
            let began = bench.loop.time.monotonicNanoseconds
            for _ in 0..<5 { #expect(try await bench.fetch(worker).isEmpty) }
            let milliseconds = (bench.loop.time.monotonicNanoseconds - began) / 1_000_000
            let info = try await bench.command(["INFO", "stats"]).text ?? ""
            let calls = info.split(whereSeparator: \.isNewline).first { $0.hasPrefix("total_commands_processed:") }
                .flatMap { Int64($0.split(separator: ":")[1]) }
            // At most eight fetch scripts and a wait in each 200 ms.
            #expect(milliseconds >= 900, "\(milliseconds) ms for five fetches")
            #expect((calls ?? 0) < 200, "\(calls ?? -1) commands")
        }
        await server.remove()
    }

    @Test func whatADeadWorkerHeldOfAPausedLaneIsNotHandedOut() async throws {
        let bench = try await QueueBench.make()
        for index in 0..<6 { _ = try await bench.accept("user_\(index)") }
        let dying = try await bench.worker("dying", alive: false)
        #expect(try await fetch(bench, dying, until: 6).count == 6)
        try await pause(bench, .lane, "write")
        let other = try await bench.worker("other")
        try await bench.loop.run { await other.reclaimOnce() }
        for _ in 0..<3 { #expect(try await bench.fetch(other).isEmpty) }
        #expect(try await bench.length(.write) == 6)
        try await resume(bench, .lane, "write")
        #expect(try await fetch(bench, other, until: 6).count == 6)
        #expect(try await bench.backlog() == 6)
    }

    // MARK: - Kinds and organizations

    @Test func jobsOfAPausedKindAreParkedAsTheyAreAndComeBackInOrder() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        try await pause(bench, .kind, "identify")
        var accepted: [Int64] = []
        for index in 0..<600 {
            if case .accepted(let stamp) = try await bench.accept("user_\(index)", payload: "p\(index)\n") {
                accepted.append(stamp)
            }
        }
        _ = try await bench.accept("other", kind: .attribute)
        let (one, two) = (try await bench.worker("w1"), try await bench.worker("w2"))
        async let first = fetchAll(bench, one)
        async let second = fetchAll(bench, two)
        let handed = try await first + second
        #expect(handed.map(\.header.kind) == [.attribute])
        #expect(try await parked(bench) == 600)
        #expect(try await bench.backlog() == 601)
        try await bench.settle(one, handed.map { Settlement($0, .retry(afterMilliseconds: 0, attempts: 1)) })
        try await bench.loop.run { await one.unparkOnce() }
        #expect(try await parked(bench) == 600)
        #expect(try await bench.loop.run { one.parkedJobs(.write) } == 600)
        try await resume(bench, .kind, "identify")
        try await bench.loop.run {
            await one.unparkOnce()
            await two.unparkOnce()
        }
        #expect(try await parked(bench) == 0)
        let back = try await fetch(bench, one, until: 600)
        #expect(back.count == 600)
        #expect(Set(back.map(\.header.stamp)) == Set(accepted))
        #expect(back.allSatisfy { $0.header.attempts == 0 && $0.deliveries == 1 })
        for (job, index) in zip(back.sorted { $0.header.stamp < $1.header.stamp }, 0..<600) {
            #expect(job.payload == Array("p\(index)\n".utf8))
        }
        try await bench.settle(one, back.map { Settlement($0, .done) })
        #expect(try await bench.backlog() == 1)
    }

    private func fetchAll(_ bench: QueueBench, _ source: RedisJobSource) async throws -> [FetchedJob] {
        var jobs: [FetchedJob] = []
        for _ in 0..<4 { jobs += try await bench.fetch(source) }
        return jobs
    }

    @Test func oneWorkersParkedJobsComeBackInTheOrderOfTheirStamps() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        let worker = try await bench.worker("w1")
        _ = try await bench.accept("late")
        let late = try #require(try await bench.fetch(worker).first)
        try await pause(bench, .organization, "demo")
        for index in 0..<100 { _ = try await bench.accept("user_\(index)") }
        #expect(try await fetchAll(bench, worker).isEmpty)
        // A retry brings the oldest one behind the others.
        try await bench.settle(worker, [Settlement(late, .retry(afterMilliseconds: 0, attempts: 3))])
        _ = try await bench.loop.run { await worker.promoteOnce() }
        #expect(try await fetchAll(bench, worker).isEmpty)
        #expect(try await parked(bench) == 101)
        try await resume(bench, .organization, "demo")
        try await bench.loop.run { await worker.unparkOnce() }
        let back = try await fetch(bench, worker, until: 101)
        #expect(back.map(\.header.stamp) == back.map(\.header.stamp).sorted())
        #expect(
            back.first?.header
                == {
                    var header = late.header; header.attempts = 3; return header
                }())
    }

    @Test func aPausedOrganizationWaitsAndTheOthersGoOn() async throws {
        let bench = try await QueueBench.make()
        try await pause(bench, .organization, "demo")
        for index in 0..<20 {
            _ = try await bench.accept("user_\(index)")
            _ = try await bench.accept("user_\(index)", organization: "other")
        }
        let worker = try await bench.worker("w1")
        let jobs = try await fetch(bench, worker, until: 20)
        #expect(jobs.allSatisfy { $0.header.organization == "other" } && jobs.count == 20)
        for _ in 0..<2 { #expect(try await bench.fetch(worker).isEmpty) }
        #expect(try await parked(bench) == 20)
        #expect(try await bench.backlog("demo") == 20)
    }

    @Test func retryAndReclaimDoNotSlipPastAPause() async throws {
        let bench = try await QueueBench.make()
        for index in 0..<4 { _ = try await bench.accept("user_\(index)") }
        let dying = try await bench.worker("dying", alive: false)
        let held = try await fetch(bench, dying, until: 4)
        try await bench.settle(
            dying, held.prefix(2).map { Settlement($0, .retry(afterMilliseconds: 0, attempts: 1)) })
        _ = try await bench.loop.run { await dying.promoteOnce() }
        try await pause(bench, .kind, "identify")
        let other = try await bench.worker("other")
        try await bench.loop.run { await other.reclaimOnce() }
        for _ in 0..<3 { #expect(try await bench.fetch(other).isEmpty) }
        #expect(try await parked(bench) == 4)
        // Its first holder was only slow, and settles late: nothing may be there twice.
        try await bench.settle(dying, held.dropFirst(2).map { Settlement($0, .park) })
        #expect(try await parked(bench) == 4)
        try await resume(bench, .kind, "identify")
        try await bench.loop.run { await other.unparkOnce() }
        let back = try await fetch(bench, other, until: 4)
        #expect(back.map(\.header.attempts).sorted() == [0, 0, 1, 1])
    }

    @Test func aJobThatIsParkedAfterThePauseEndedGoesBackIntoItsLane() async throws {
        let bench = try await QueueBench.make()
        _ = try await bench.accept("user_1")
        let worker = try await bench.worker("w1")
        let jobs = try await fetch(bench, worker, until: 1)
        try await bench.settle(worker, jobs.map { Settlement($0, .park) })
        #expect(try await parked(bench) == 0)
        #expect(try await fetch(bench, worker, until: 1).map(\.header) == jobs.map(\.header))
    }

    @Test func whatIsStillPausedDoesNotHideWhatIsNot() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        try await pause(bench, .organization, "demo")
        try await pause(bench, .organization, "other")
        for index in 0..<300 { _ = try await bench.accept("user_\(index)") }
        for index in 0..<5 { _ = try await bench.accept("user_\(index)", organization: "other") }
        let worker = try await bench.worker("w1")
        for _ in 0..<8 { #expect(try await bench.fetch(worker).isEmpty) }
        #expect(try await parked(bench) == 305)
        try await bench.loop.run { await worker.unparkOnce() }
        // Ordered and lifted between two looks: the orders read the same, what was parked does not.
        try await resume(bench, .organization, "other")
        try await bench.loop.run { await worker.unparkOnce() }
        #expect(try await parked(bench) == 300)
        let back = try await fetch(bench, worker, until: 5)
        #expect(back.allSatisfy { $0.header.organization == "other" })
        try await bench.settle(worker, back.map { Settlement($0, .done) })
        try await pause(bench, .organization, "other")
        _ = try await bench.accept("again", organization: "other")
        for _ in 0..<2 { #expect(try await bench.fetch(worker).isEmpty) }
        try await resume(bench, .organization, "other")
        try await bench.loop.run { await worker.unparkOnce() }
        #expect(try await parked(bench) == 300)
        #expect(try await fetch(bench, worker, until: 1).count == 1)
    }

    // MARK: - Ends and wipes

    @Test func aPauseEndsByItselfOnRedisClock() async throws {
        let bench = try await QueueBench.make()
        try await pause(bench, .lane, "write", milliseconds: 3_600_000)
        try await pause(bench, .kind, "identify", milliseconds: 3_600_000)
        let standing = try await orders(bench)
        #expect(standing.map(\.name) == ["kind:identify", "lane:write"])
        #expect(standing.allSatisfy { $0.until == $0.at + 3_600_000 && $0.owner == "ops" })
        #expect(standing.first?.reason == "incident \"7\"")
        _ = try await bench.accept("user_1")
        _ = try await bench.accept("user_2", lane: .writeLive)
        let worker = try await bench.worker("w1")
        for _ in 0..<2 { #expect(try await bench.fetch(worker).isEmpty) }
        #expect(try await parked(bench, .writeLive) == 1)
        try await runOut(bench, "lane:write")
        try await runOut(bench, "kind:identify")
        #expect(try await orders(bench).isEmpty)
        try await bench.loop.run { await worker.unparkOnce() }
        #expect(try await fetch(bench, worker, until: 2).count == 2)
    }

    @Test func aShortPauseRunsOut() async throws {
        let bench = try await QueueBench.make()
        let until = try #require(try await pause(bench, .lane, "write", milliseconds: 500).until)
        _ = try await bench.accept("user_1")
        let worker = try await bench.worker("w1")
        #expect(try await fetch(bench, worker, until: 1).count == 1)
        let now = try await bench.command(["TIME"]).elements?.compactMap { $0.text.flatMap { Int64($0) } } ?? []
        #expect(now[0] * 1000 + now[1] / 1000 >= until)
    }

    @Test func anOrderThatCannotBeReadStandsUntilItIsLifted() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        _ = try await bench.accept("user_1")
        _ = try await bench.command(["HSET", .text(bench.keys.meta(0)), "pause:lane:write", "{junk"])
        let worker = try await bench.worker("w1")
        #expect(try await bench.fetch(worker).isEmpty)
        #expect(try await orders(bench).map(\.name) == ["lane:write"])
        #expect(try await resume(bench, .lane, "write"))
        #expect(try await fetch(bench, worker, until: 1).count == 1)
    }

    @Test func aSeedBringsOrdersBackAndNothingThatWasLiftedAfterIt() async throws {
        let bench = try await QueueBench.make(seeded: false)
        let order = QueueOrder(scope: .lane, target: "write", owner: "ops", reason: "r", at: 5, until: nil)
        let seed = QueueSeed(client: bench.client, keys: bench.keys)
        try await bench.loop.run { try await seed.seed(orders: [order]) }
        #expect(try await orders(bench) == [order])
        try await resume(bench, .lane, "write")
        // A second writer that read Postgres before the lifting.
        try await bench.loop.run { try await seed.seed(orders: [order]) }
        #expect(try await orders(bench).isEmpty)
    }

    @Test func everyChangeIsNotedOnceUntilItIsCopied() async throws {
        let bench = try await QueueBench.make(partitions: 4)
        let queue = QueueOrders(client: bench.client, keys: bench.keys)
        try await pause(bench, .organization, "demo", milliseconds: 1_000_000)
        try await resume(bench, .organization, "demo")
        #expect(try await resume(bench, .lane, "verify") == false)
        let changes = try await bench.loop.run { try await queue.changes() }
        #expect(changes.map(\.action) == [.pause, .resume, .resume])
        #expect(changes.map(\.order.name) == ["organization:demo", "organization:demo", "lane:verify"])
        #expect(changes.first?.order.until == (changes.first?.order.at ?? 0) + 1_000_000)
        try await bench.loop.run { try await queue.forget(changes[0]) }
        #expect(try await bench.loop.run { try await queue.changes() } == Array(changes.dropFirst()))
    }

    @Test func ordersAreBounded() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        for index in 0..<QueueOrders.mostOrders { try await pause(bench, .organization, "o\(index)") }
        await #expect(throws: QueueOrders.TooMany.self) { try await pause(bench, .organization, "more") }
        try await pause(bench, .organization, "o1", milliseconds: 1_000)
        #expect(try await orders(bench).count == QueueOrders.mostOrders)
    }
}
