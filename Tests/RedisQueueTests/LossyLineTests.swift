import EventLoop
import Jobs
import Redis
import TestSupport
import Testing

@testable import RedisQueue

/// Lines that lose what Redis answers. cases/queue.md 7 and 43.
@Suite(.timeLimit(.minutes(2))) struct LossyLineTests {
    /// One way through the queue for every job: delayed once, passed on, then done or buried. Everything goes over a line
    /// that loses answers: of what was done there, nobody is told.
    private struct Journey {
        let bench: QueueBench
        let proxy: CuttingProxy
        let client: RedisClient
        let waiter: RedisClient
        let sink: RedisJobSink
        let source: RedisJobSource

        /// - Parameter closing: whether a line that lost an answer is cut, or stays open and silent.
        static func make(_ server: TestRedis, closing: Bool) async throws -> Journey {
            let bench = try await QueueBench.make()
            let proxy = try CuttingProxy(to: server.socketPath)
            // Short, so that many losses fit into a test: a silent line is left after its timeout.
            let configuration = RedisClientConfiguration(
                connectTimeoutMilliseconds: 500, commandTimeoutMilliseconds: closing ? 5000 : 150,
                connectionWaitMilliseconds: 5000, minBackoffMilliseconds: 1, maxBackoffMilliseconds: 5)
            let loop = bench.loop
            let keys = bench.keys
            var intake = RedisJobSink.Configuration()
            intake.timeoutMilliseconds = configuration.commandTimeoutMilliseconds
            return try await loop.run { [intake] in
                let client = RedisClient(loop: loop, address: proxy.address, configuration: configuration)
                let waiter = RedisClient(
                    loop: loop, address: closing ? proxy.address : server.address,
                    configuration: RedisClientConfiguration(
                        connectionWaitMilliseconds: 5000, minBackoffMilliseconds: 1, maxBackoffMilliseconds: 5))
                await LiveProcess(name: "w1", loop: loop, client: bench.client, keys: keys).beat()
                return Journey(
                    bench: bench, proxy: proxy, client: client, waiter: waiter,
                    sink: RedisJobSink(loop: loop, client: client, keys: keys, configuration: intake),
                    source: RedisJobSource(
                        loop: loop, client: client, waiter: waiter, keys: keys, stage: .write, consumer: "w1"))
            }
        }

        /// As a phone does: again until it is told that the write was taken.
        func accept(_ subject: String) async throws {
            for _ in 0..<200 {
                let result = try await bench.loop.run {
                    await sink.accept(
                        NewJob(
                            kind: .identify, lane: .write, organization: "demo", subject: subject,
                            payload: Array(subject.utf8)))
                }
                if case .accepted = result { return }
                await bench.loop.sleep(milliseconds: 1)
            }
            Issue.record("never taken: \(subject)")
        }

        /// What a worker does in a turn.
        func work(_ see: (FetchedJob) -> Void) async throws {
            // Few, since what is longer than a line lives never comes through.
            let jobs = try await bench.fetch(source, atMost: 16)
            jobs.forEach(see)
            try await bench.settle(source, jobs.map { Settlement($0, Self.next($0)) })
            _ = try await bench.loop.run {
                _ = await source.promoteOnce()
                await source.refreshHeld()
            }
        }

        private static func next(_ job: FetchedJob) -> Settlement.Action {
            if job.lane == .write {
                return job.header.attempts == 0
                    ? .retry(afterMilliseconds: 0, attempts: 1) : .forward(to: .writeLive, payload: job.payload)
            }
            return job.header.stamp % 7 == 0 ? .dead(reason: "r", text: "t") : .done
        }

        func close() async {
            await client.close()
            await waiter.close()
            proxy.stop()
        }
    }

    /// 3 to 5 of 50,000 jobs were lost on shaky links, between a pop and the push that should have followed.
    @Test(arguments: [true, false]) func noJobIsLostOrMovedTwiceByALineThatLosesAnswers(closing: Bool) async throws {
        let journey = try await Journey.make(try await TestRedis.shared(), closing: closing)
        let bench = journey.bench
        let subjects = (0..<300).map { "user_\($0)" }
        journey.proxy.loseAnswers(oneOf: 2...25, closing: closing, seed: 7)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for subject in subjects { group.addTask { try await journey.accept(subject) } }
            try await group.waitForAll()
        }
        var seen: Set<String> = []
        for _ in 0..<1_000 where try await bench.backlog() > 0 {
            try await journey.work { seen.insert(String(decoding: $0.payload, as: UTF8.self)) }
        }
        #expect(journey.proxy.lost > 10, "\(journey.proxy.lost) answers were lost")
        print("queue: \(journey.proxy.lost) answers were lost on a line that was \(closing ? "cut" : "left open")")
        journey.proxy.loseAnswers(oneOf: nil)
        #expect(seen == Set(subjects))
        var counts: [String: Int64] = [:]
        for partition in 0..<bench.keys.partitions {
            let stats = try await bench.command(["HGETALL", .text(bench.keys.stats(partition))]).elements ?? []
            for index in stride(from: 0, to: stats.count - 1, by: 2) {
                counts[stats[index].text ?? "", default: 0] += stats[index + 1].int64 ?? 0
            }
            for lane in Lane.allCases {
                for (verb, key) in [
                    ("XLEN", bench.keys.lane(partition, lane)), ("ZCARD", bench.keys.due(partition, lane)),
                    ("HLEN", bench.keys.later(partition, lane)),
                ] {
                    #expect(try await bench.command([.text(verb), .text(key)]).int64 == 0, "\(verb) \(key)")
                }
            }
        }
        // Some were taken twice: a phone that was not told sends again. Whatever was taken moved once in each step.
        let taken = counts["accepted:write"] ?? 0
        #expect(taken >= 300)
        #expect(counts["retry:write"] == taken && counts["forward:write"] == taken, "\(counts)")
        let buried = counts["dead:write.live"] ?? 0
        #expect(buried > 0 && (counts["done:write.live"] ?? 0) + buried == taken, "\(counts)")
        #expect(try await bench.dead(.writeLive) == buried)
        await journey.close()
    }

    /// A read that should have ended after its BLOCK went on for ever.
    @Test func aBlockingReadThatRedisDoesNotEndHoldsUpAFetchForNoLongerThanItsDeadline() async throws {
        let server = try await TestRedis.shared()
        let bench = try await QueueBench.make()
        let proxy = try CuttingProxy(to: server.socketPath)
        let (loop, keys, client) = (bench.loop, bench.keys, bench.client)
        let name = keys.prefix + "waiter"
        let (waiter, source) = try await loop.run {
            let waiter = RedisClient(
                loop: loop, address: proxy.address,
                configuration: RedisClientConfiguration(
                    commandTimeoutMilliseconds: 1_500, connectionWaitMilliseconds: 5000, clientName: name))
            _ = await waiter.waitUntilConnected(milliseconds: 20_000)
            return (
                waiter,
                RedisJobSource(loop: loop, client: client, waiter: waiter, keys: keys, stage: .write, consumer: "w1")
            )
        }
        async let first = bench.fetch(source)
        var waits = false
        while !waits {
            let list = try await bench.command(["CLIENT", "LIST"]).text ?? ""
            waits = list.split(whereSeparator: \.isNewline).contains {
                $0.contains("name=\(name)") && $0.contains("cmd=xread") && $0.contains("flags=b")
            }
        }
        proxy.swallowAnswers()
        let began = ContinuousClock.now
        _ = try await bench.accept("user_1")
        var jobs = try await first
        while jobs.isEmpty && ContinuousClock.now - began < .seconds(30) { jobs = try await bench.fetch(source) }
        #expect(jobs.count == 1)
        #expect(ContinuousClock.now - began < .seconds(20))
        await waiter.close()
        proxy.stop()
    }

    @Test(arguments: [("7.0.15", true), ("7.2.0", true), ("10.1", true), ("6.2.14", false), ("5", false), ("", false)])
    func aRedisTooOldForTheScriptsIsKnownByItsVersion(version: String, isNewEnough: Bool) async throws {
        #expect(RedisRequirements.isNewEnough(version: version) == isNewEnough)
    }

    @Test(.onEachRedis) func noServerOfTheTestsIsTooOld() async throws {
        let bench = try await QueueBench.make()
        #expect(try await bench.loop.run { try await RedisRequirements.oldVersions(bench.client) }.isEmpty)
    }
}
