import EventLoop
import Jobs
import Redis
import TestSupport
import Testing

@testable import RedisQueue

/// Who has a job in hand, and who may take it over. cases/queue.md 14, 22, 32 and 65.
@Suite(.onEachRedis) struct TakeoverTests {
    private func lane(_ bench: QueueBench) -> RedisArgument { .text(bench.keys.lane(0, .write)) }

    /// Lets an entry seem untouched for a minute.
    private func age(_ bench: QueueBench, _ job: FetchedJob, _ consumer: String) async throws {
        _ = try await bench.command([
            "XCLAIM", lane(bench), .text(QueueKeys.group), .text(consumer), "0", .text(job.entryID), "IDLE", "60000",
            "JUSTID",
        ])
    }

    private func pending(_ bench: QueueBench) async throws -> Int64? {
        try await bench.command(["XPENDING", lane(bench), .text(QueueKeys.group)]).elements?.first?.int64
    }

    private func reclaimed(_ bench: QueueBench, _ worker: RedisJobSource) async throws -> Int64 {
        try await bench.loop.run { worker.counters.reclaimed }
    }

    /// A job longer than its reservation was started again while it ran.
    @Test func aLongJobOfALivingWorkerIsLeftWithIt() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        _ = try await bench.accept("user_1")
        let busy = try await bench.worker("busy")
        let job = try #require(try await bench.fetch(busy).first)
        let other = try await bench.worker("other")
        try await age(bench, job, "busy")
        try await bench.loop.run {
            await busy.refreshHeld()
            await other.reclaimOnce()
            await other.reclaimIdle()
        }
        #expect(try await reclaimed(bench, other) == 0)
        #expect(try await bench.fetch(other).isEmpty)
        // It was not handed out again either: that would count as a delivery.
        let held = try await bench.command(["XPENDING", lane(bench), .text(QueueKeys.group), "-", "+", "1"])
        #expect(held.elements?.first?.elements?[1].text == "busy" && held.elements?.first?.elements?[3].int64 == 1)
        // A worker that seems alive and does not say that it works on it has lost it after half a minute.
        try await age(bench, job, "busy")
        try await bench.loop.run { await other.reclaimIdle() }
        #expect(try await bench.fetch(other).map(\.entryID) == [job.entryID])
        // What it settles now touches nothing; the other's counts.
        try await bench.settle(busy, [Settlement(job, .retry(afterMilliseconds: 0, attempts: 1))])
        #expect(try await bench.delayed(.write) == 0)
        #expect(try await bench.length(.write) == 1)
    }

    /// Several claimers of the same idle entries all got them.
    @Test func workersThatTakeOverAtOnceShareWhatADeadOneHeld() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        for index in 0..<100 { _ = try await bench.accept("user_\(index)") }
        let dying = try await bench.worker("dying", alive: false)
        var held: [FetchedJob] = []
        while held.count < 100 { held += try await bench.fetch(dying) }
        for job in held { try await age(bench, job, "dying") }
        var heirs: [RedisJobSource] = []
        for index in 0..<3 { heirs.append(try await bench.worker("heir_\(index)")) }
        // In both ways at once, each of them twice.
        try await withThrowingTaskGroup(of: Void.self) { group in
            for heir in heirs {
                for _ in 0..<2 {
                    group.addTask { try await bench.loop.run { await heir.reclaimIdle() } }
                    group.addTask { try await bench.loop.run { await heir.reclaimOnce() } }
                }
            }
            try await group.waitForAll()
        }
        var taken: [String] = []
        for heir in heirs {
            let count = Int(try await reclaimed(bench, heir))
            var jobs: [FetchedJob] = []
            for _ in 0..<10 where jobs.count < count { jobs += try await bench.fetch(heir) }
            taken += jobs.map(\.entryID)
        }
        #expect(taken.count == 100)
        #expect(Set(taken) == Set(held.map(\.entryID)))
    }

    /// Redis answered errors under load: jobs stayed in flight that nobody knew of, for ever.
    @Test func jobsHandedOutInACallThatFailedAreTakenInHand() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        for index in 0..<40 { _ = try await bench.accept("user_\(index)") }
        let worker = try await bench.worker("w1")
        // The script reads 32 at a time: the first 32 are handed out, then it fails.
        let script = QueueScripts.fetch.source.replacing("left = left - count", with: "error('fault')")
        await #expect(throws: RedisError.self) {
            _ = try await bench.command([
                "EVAL", .text(script), "2", .text(bench.keys.meta(0)), lane(bench), .text(QueueKeys.group), "w1", "40",
                "write", "524288",
            ])
        }
        #expect(try await pending(bench) == 32)
        try await bench.loop.run {
            await worker.refreshHeld()
            await worker.refreshHeld()
        }
        var jobs: [FetchedJob] = []
        for _ in 0..<10 where jobs.count < 40 { jobs += try await bench.fetch(worker) }
        #expect(Set(jobs.map(\.entryID)).count == 40)
        try await bench.settle(worker, jobs.map { Settlement($0, .done) })
        #expect(try await bench.length(.write) == 0)
        #expect(try await bench.backlog() == 0)
    }

    /// The other way round: a job in flight whose entry is gone is let go of and told as lost, whoever looks first.
    @Test(arguments: ["dead", "idle"]) func anEntryThatIsGoneWhilePendingIsLetGoOfAndTold(way: String) async throws {
        let bench = try await QueueBench.make(partitions: 1)
        for index in 0..<3 { _ = try await bench.accept("user_\(index)") }
        let holder = try await bench.worker("holder", alive: way == "idle")
        let held = try await bench.fetch(holder)
        #expect(held.count == 3)
        for job in held { try await age(bench, job, "holder") }
        _ = try await bench.command(["XDEL", lane(bench), .text(held[1].entryID)])
        let other = try await bench.worker("other")
        try await bench.loop.run {
            if way == "dead" { await other.reclaimOnce() } else { await other.reclaimIdle() }
        }
        #expect(try await bench.loop.run { other.counters.lostWhilePending } == 1)
        #expect(try await pending(bench) == 2)
        #expect(try await bench.fetch(other).map(\.entryID) == [held[0].entryID, held[2].entryID])
        // Once is enough.
        try await bench.loop.run {
            await other.reclaimOnce()
            await other.reclaimIdle()
        }
        #expect(try await bench.loop.run { other.counters.lostWhilePending } == 1)
    }

    /// Deploys that ended workers used up the retries of their jobs, and the one try of those that have no more.
    @Test func deploysCostAJobNeitherAttemptsNorSuspicionAndCrashesNoAttempts() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        _ = try await bench.accept("user_1")
        let first = try await bench.worker("first")
        let job = try #require(try await bench.fetch(first).first)
        // Its last try.
        try await bench.settle(first, [Settlement(job, .retry(afterMilliseconds: 0, attempts: 19))])
        _ = try await bench.loop.run { await first.promoteOnce() }
        for deploy in 0..<25 {
            let worker = try await bench.worker("deploy_\(deploy)")
            try await bench.loop.run { await worker.reclaimOnce() }
            let held = try #require(try await bench.fetch(worker).first)
            #expect(held.header.attempts == 19 && held.deliveries == 1, "deploy \(deploy)")
            try await bench.loop.run {
                await worker.stopFetching()
                await worker.release()
            }
        }
        for crash in 0..<3 {
            let worker = try await bench.worker("crash_\(crash)", alive: false)
            try await bench.loop.run { await worker.reclaimOnce() }
            let held = try #require(try await bench.fetch(worker).first)
            #expect(held.header.attempts == 19 && held.deliveries == crash + 1, "crash \(crash)")
        }
        #expect(try await bench.dead(.write) == 0)
    }

    /// A start that ended nobody is taken back, and the note goes with the last one.
    @Test func aStartAloneThatEndedNobodyIsForgotten() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        _ = try await bench.accept("user_1")
        let worker = try await bench.worker("w1")
        let job = try #require(try await bench.fetch(worker).first)
        let starts = try await bench.loop.run {
            var starts = [await worker.startAlone(job)]
            await worker.forgetStart(job)
            starts.append(await worker.startAlone(job))
            await worker.forgetStart(job)
            return starts
        }
        #expect(starts == [1, 1])
        #expect(try await bench.command(["EXISTS", .text(bench.keys.alone(0))]).int64 == 0)
    }
}
