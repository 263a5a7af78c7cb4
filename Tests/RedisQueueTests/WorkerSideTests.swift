import EventLoop
import Jobs
import Redis
import TestSupport
import Testing

@testable import RedisQueue

@Suite(.onEachRedis) struct WorkerSideTests {
    @Test func aDoneJobLeavesNothingBehind() async throws {
        let bench = try await QueueBench.make()
        for index in 0..<10 { _ = try await bench.accept("user_\(index)") }
        let worker = try await bench.worker("w1")
        var jobs: [FetchedJob] = []
        while jobs.count < 10 { jobs += try await bench.fetch(worker) }
        #expect(try await bench.backlog() == 10)
        try await bench.settle(worker, jobs.map { Settlement($0, .done) })
        #expect(try await bench.length(.write) == 0)
        #expect(try await bench.backlog() == 0)
    }

    @Test func forwardMovesTheJobWithItsStamp() async throws {
        let bench = try await QueueBench.make()
        _ = try await bench.accept("user_1", lane: .verify, kind: .attribute)
        let verifier = try await bench.worker("v1", stage: .verify)
        let job = try #require(try await bench.fetch(verifier).first)
        let forward = Settlement(job, .forward(to: .write, payload: Array("proved".utf8)))
        try await bench.settle(verifier, [forward])
        // The worker that lost its answer settles again: nothing may be there twice.
        try await bench.settle(verifier, [forward])
        #expect(try await bench.length(.verify) == 0)
        #expect(try await bench.length(.write) == 1)
        #expect(try await bench.backlog() == 1)
        let writer = try await bench.worker("w1")
        let moved = try #require(try await bench.fetch(writer).first)
        #expect(moved.header == job.header)
        #expect(moved.payload == Array("proved".utf8))
    }

    @Test func aRetryWaitsItsTimeAndComesBackWithItsAttempts() async throws {
        let bench = try await QueueBench.make()
        _ = try await bench.accept("user_1", payload: "line\nfeed")
        let worker = try await bench.worker("w1")
        let job = try #require(try await bench.fetch(worker).first)
        try await bench.settle(worker, [Settlement(job, .retry(afterMilliseconds: 3_600_000, attempts: 4))])
        #expect(try await bench.length(.write) == 0)
        #expect(try await bench.delayed(.write) == 1)
        // An hour is not over: a delayed job is not in flight and nobody promotes it.
        _ = try await bench.loop.run { await worker.promoteOnce() }
        #expect(try await bench.delayed(.write) == 1)
        _ = try await bench.command([
            "ZADD", .text(bench.keys.due(job.partition, .write)), "1", .integer(job.header.stamp),
        ])
        _ = try await bench.loop.run { await worker.promoteOnce() }
        let again = try #require(try await bench.fetch(worker).first)
        #expect(again.header.attempts == 4)
        #expect(again.header.stamp == job.header.stamp)
        #expect(again.payload == Array("line\nfeed".utf8))
        #expect(try await bench.delayed(.write) == 0)
    }

    @Test func aDeadLetterKeepsEverything() async throws {
        let bench = try await QueueBench.make()
        _ = try await bench.accept("user_1", payload: "bad")
        let worker = try await bench.worker("w1")
        let job = try #require(try await bench.fetch(worker).first)
        try await bench.settle(
            worker, [Settlement(job, .dead(reason: "malformed", text: String(repeating: "x", count: 5000)))])
        #expect(try await bench.dead(.write) == 1)
        #expect(try await bench.backlog() == 0)
        let entry = try await bench.command(["XRANGE", .text(bench.keys.dead(job.partition, .write)), "-", "+"])
        let fields = entry.elements?.first?.elements?[1].elements?.map { $0.text ?? "" } ?? []
        #expect(fields[1] == job.header.encoded)
        #expect(fields[3] == "bad")
        #expect(fields[5] == "malformed")
        #expect(fields[7].utf8.count == 1024)
    }

    @Test func whatADeadWorkerHeldIsFinishedByAnother() async throws {
        let bench = try await QueueBench.make()
        for index in 0..<20 { _ = try await bench.accept("user_\(index)") }
        let dying = try await bench.worker("dying", alive: false)
        var held: [FetchedJob] = []
        while held.count < 20 { held += try await bench.fetch(dying) }
        let other = try await bench.worker("other")
        try await bench.loop.run { await other.reclaimOnce() }
        var jobs: [FetchedJob] = []
        while jobs.count < 20 { jobs += try await bench.fetch(other) }
        #expect(Set(jobs.map(\.header.stamp)) == Set(held.map(\.header.stamp)))
        #expect(jobs.allSatisfy { $0.deliveries == 2 })
        try await bench.settle(other, jobs.map { Settlement($0, .done) })
        // The dead one was only slow, and settles late: nothing may come back to life.
        try await bench.settle(dying, held.map { Settlement($0, .retry(afterMilliseconds: 0, attempts: 1)) })
        try await bench.settle(dying, held.map { Settlement($0, .dead(reason: "late", text: "")) })
        #expect(try await bench.length(.write) == 0)
        #expect(try await bench.delayed(.write) == 0)
        #expect(try await bench.dead(.write) == 0)
        #expect(try await bench.backlog() == 0)
    }

    @Test func aLivingWorkersJobsAreLeftAlone() async throws {
        let bench = try await QueueBench.make()
        _ = try await bench.accept("user_1")
        let busy = try await bench.worker("busy")
        #expect(try await bench.fetch(busy).count == 1)
        let other = try await bench.worker("other")
        try await bench.loop.run { await other.reclaimOnce() }
        #expect(try await bench.fetch(other).isEmpty)
    }

    @Test func aLateSettleOfATakenOverJobTouchesNothingWhileTheOtherWorks() async throws {
        let bench = try await QueueBench.make()
        _ = try await bench.accept("user_1")
        let slow = try await bench.worker("slow", alive: false)
        let job = try #require(try await bench.fetch(slow).first)
        let other = try await bench.worker("other")
        try await bench.loop.run { await other.reclaimOnce() }
        let taken = try #require(try await bench.fetch(other).first)
        try await bench.settle(slow, [Settlement(job, .dead(reason: "late", text: ""))])
        #expect(try await bench.dead(.write) == 0)
        #expect(try await bench.length(.write) == 1)
        try await bench.settle(other, [Settlement(taken, .done)])
        #expect(try await bench.length(.write) == 0)
    }

    @Test func aStoppingWorkerGivesBackWhatItHeldAsIfNeverDelivered() async throws {
        let bench = try await QueueBench.make()
        for index in 0..<5 { _ = try await bench.accept("user_\(index)") }
        let stopping = try await bench.worker("stopping")
        var held = 0
        while held < 5 { held += try await bench.fetch(stopping).count }
        try await bench.loop.run { await stopping.release() }
        let other = try await bench.worker("other")
        try await bench.loop.run { await other.reclaimOnce() }
        var jobs: [FetchedJob] = []
        while jobs.count < 5 { jobs += try await bench.fetch(other) }
        #expect(jobs.allSatisfy { $0.deliveries == 1 })
    }

    @Test func anEntryWhoseDeliveryGotLostIsTakenInHandByItsOwnConsumer() async throws {
        let bench = try await QueueBench.make()
        _ = try await bench.accept("user_1")
        let worker = try await bench.worker("w1")
        let partition = bench.keys.partition(organization: "demo", subject: "user_1")
        // The reply to this read never reaches the worker.
        _ = try await bench.command([
            "XGROUP", "CREATE", .text(bench.keys.lane(partition, .write)), "workers", "0",
        ])
        _ = try await bench.command([
            "XREADGROUP", "GROUP", "workers", "w1", "STREAMS", .text(bench.keys.lane(partition, .write)), ">",
        ])
        try await bench.loop.run {
            await worker.refreshHeld()
            await worker.refreshHeld()
        }
        #expect(try await bench.fetch(worker).count == 1)
    }

    @Test func anEntryOfAnotherFormIsBuriedAndTheOthersGoOn() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        _ = try await bench.command(["XADD", .text(bench.keys.lane(0, .write)), "*", "h", "junk", "p", "x"])
        _ = try await bench.command(["XADD", .text(bench.keys.lane(0, .write)), "*", "other", "1"])
        _ = try await bench.accept("user_1")
        let worker = try await bench.worker("w1")
        #expect(try await bench.fetch(worker).count == 1)
        #expect(try await bench.dead(.write) == 2)
        #expect(try await bench.loop.run { worker.counters.malformed } == [.write: 2])
    }

    @Test func liveJobsComeBeforeABulkBacklog() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        for index in 0..<40 { _ = try await bench.accept("user_\(index)") }
        let worker = try await bench.worker("w1")
        #expect(try await bench.fetch(worker, atMost: 16).count == 16)
        _ = try await bench.accept("live", lane: .writeLive)
        #expect(try await bench.fetch(worker, atMost: 16).first?.lane == .writeLive)
    }

    @Test func afterAWipeAWorkerGoesOnWithoutARestart() async throws {
        let server = try await TestRedis.start()
        let bench = try await QueueBench.make(redis: server)
        let worker = try await bench.worker("w1")
        _ = try await bench.accept("user_1")
        #expect(try await bench.fetch(worker).count == 1)
        _ = try await bench.command(["FLUSHALL"])
        _ = try await bench.command(["SCRIPT", "FLUSH"])
        #expect(try await bench.fetch(worker).isEmpty)
        try await bench.loop.run { try await QueueSeed(client: bench.client, keys: bench.keys).seed() }
        _ = try await bench.accept("user_2")
        var jobs: [FetchedJob] = []
        for _ in 0..<5 where jobs.isEmpty { jobs = try await bench.fetch(worker) }
        #expect(jobs.count == 1)
        await server.remove()
    }

    @Test func aPartitionThatRefusesTakesNoJobOfAnotherAway() async throws {
        let bench = try await QueueBench.make(partitions: 16)
        var subjects: [String] = []
        for index in 0..<100 where bench.keys.partition(organization: "demo", subject: "u\(index)") != 5 {
            subjects.append("u\(index)")
        }
        for subject in subjects { _ = try await bench.accept(subject) }
        _ = try await bench.command(["HDEL", .text(bench.keys.meta(5)), "seeded"])
        let worker = try await bench.worker("w1")
        var stamps: Set<Int64> = []
        for _ in 0..<4 { stamps.formUnion(try await bench.fetch(worker, atMost: 1000).map(\.header.stamp)) }
        #expect(stamps.count == subjects.count)
    }

    @Test func aWaitingFetchWakesForANewJob() async throws {
        let bench = try await QueueBench.make()
        let worker = try await bench.worker("w1")
        #expect(try await bench.fetch(worker).isEmpty)
        async let jobs = bench.fetch(worker)
        _ = try await bench.accept("user_1")
        #expect(try await jobs.count == 1)
    }

    @Test func anIdleWorkerStartsAJobOfAnyPartitionAtOnce() async throws {
        let bench = try await QueueBench.make(partitions: 16)
        let worker = try await bench.worker("w1")
        // The first job of a partition makes its group and its blocking read's connection.
        for index in 0..<60 { _ = try await bench.accept("warm_\(index)") }
        var warm = 0
        while warm < 60 {
            let jobs = try await bench.fetch(worker)
            warm += jobs.count
            try await bench.settle(worker, jobs.map { Settlement($0, .done) })
        }
        var waits: [Duration] = []
        for index in 0..<40 {
            async let jobs = fetchOne(bench, worker)
            // Long enough for the worker to wait, never as long as its wait.
            try await Task.sleep(for: .milliseconds(20))
            let began = ContinuousClock.now
            _ = try await bench.accept("user_\(index)")
            let fetched = try await jobs
            waits.append(ContinuousClock.now - began)
            try await bench.settle(worker, fetched.map { Settlement($0, .done) })
        }
        let median = waits.sorted()[waits.count / 2]
        print("queue: an idle worker has a job \(median) after it was sent (median of 40, 16 partitions)")
        #expect(median < .milliseconds(100))
    }

    private func fetchOne(_ bench: QueueBench, _ worker: RedisJobSource) async throws -> [FetchedJob] {
        while true {
            let jobs = try await bench.fetch(worker)
            if !jobs.isEmpty { return jobs }
        }
    }

    @Test func aStoppedFetchLeavesNoWaitBehind() async throws {
        let bench = try await QueueBench.make(partitions: 16)
        let worker = try await bench.worker("w1")
        async let jobs = bench.fetch(worker)
        try await eventually("the worker waits") { try await waitingReads(bench) > 0 }
        try await bench.loop.run { await worker.stopFetching() }
        #expect(try await jobs.isEmpty)
        try await eventually("no read is left") { try await waitingReads(bench) == 0 }
    }

    private func eventually(_ claim: String, _ condition: () async throws -> Bool) async throws {
        for _ in 0..<500 {
            if try await condition() { return }
            try await Task.sleep(for: .milliseconds(10))
        }
        Issue.record("never came true: \(claim)")
    }

    /// This bench's connections that wait in a blocking read, on any server.
    private func waitingReads(_ bench: QueueBench) async throws -> Int {
        let servers = try await bench.loop.run { try await bench.client.everyPrimary(["CLIENT", "LIST"]) }
        return try servers.reduce(0) { sum, server in
            let lines = (try server.reply.get().text ?? "").split(whereSeparator: \.isNewline)
            return sum + lines.count { $0.contains("name=\(bench.keys.prefix)") && $0.contains("flags=b") }
        }
    }

    @Test func anEmptyDeadConsumerIsForgottenAndAHoldingOneIsNot() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        let empty = try await bench.worker("empty", alive: false)
        _ = try await bench.accept("user_1")
        let job = try #require(try await bench.fetch(empty).first)
        let other = try await bench.worker("other")
        try await bench.settle(empty, [Settlement(job, .done)])
        try await bench.loop.run { await other.reclaimOnce() }
        let consumers = try await bench.command([
            "XINFO", "CONSUMERS", .text(bench.keys.lane(0, .write)), "workers",
        ])
        #expect(consumers.elements?.isEmpty == true)
    }
}
