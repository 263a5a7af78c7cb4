import Bytes
import EventLoop
import Jobs
import Redis
import RedisQueue
import TestSupport
import Testing

@Suite(.onEachRedis) struct IntakeTests {
    @Test func anAcceptedJobIsFetchedWithItsHeaderAndPayload() async throws {
        let bench = try await QueueBench.make()
        guard case .accepted(let stamp) = try await bench.accept("user_1", payload: #"{"a":1}"#) else {
            Issue.record("not accepted")
            return
        }
        let jobs = try await bench.fetch(try await bench.worker("w1"))
        #expect(jobs.count == 1)
        #expect(jobs[0].header.kind == .identify)
        #expect(jobs[0].header.stamp == stamp)
        #expect(jobs[0].header.organization == "demo")
        #expect(jobs[0].header.attempts == 0)
        #expect(jobs[0].header.enqueuedMilliseconds == stamp / 1000)
        #expect(jobs[0].payload == Array(#"{"a":1}"#.utf8))
        #expect(jobs[0].deliveries == 1)
        #expect(jobs[0].partition == bench.keys.partition(organization: "demo", subject: "user_1"))
    }

    @Test func stampsOfAPartitionNeverTieOrInvert() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        var stamps: [Int64] = []
        for _ in 0..<20 {
            let results = try await bench.loop.run {
                await withTaskGroup(of: AcceptResult.self) { group in
                    for _ in 0..<50 {
                        group.addTask {
                            await bench.sink.accept(
                                NewJob(
                                    kind: .identify, lane: .write, organization: "demo", subject: "u", payload: [1]))
                        }
                    }
                    return await group.reduce(into: []) { $0.append($1) }
                }
            }
            stamps += results.compactMap { if case .accepted(let stamp) = $0 { stamp } else { nil } }
        }
        #expect(stamps.count == 1000)
        #expect(Set(stamps).count == 1000)
        let jobs = try await fetchAll(bench)
        #expect(jobs.map(\.header.stamp) == jobs.map(\.header.stamp).sorted())
    }

    private func fetchAll(_ bench: QueueBench) async throws -> [FetchedJob] {
        let worker = try await bench.worker("w1")
        var jobs: [FetchedJob] = []
        while jobs.count < 1000 { jobs += try await bench.fetch(worker, atMost: 256) }
        return jobs
    }

    @Test func writesOfOneTurnShareACallPerPartition() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        let calls = try await bench.loop.run {
            await withTaskGroup(of: Void.self) { group in
                for index in 0..<40 {
                    group.addTask {
                        _ = await bench.sink.accept(
                            NewJob(
                                kind: .identify, lane: .write, organization: "demo", subject: "u\(index)",
                                payload: []))
                    }
                }
            }
            return bench.sink.calls
        }
        #expect(calls == 1)
    }

    @Test func withoutASeedIntakeAndFetchRefuse() async throws {
        let bench = try await QueueBench.make(seeded: false)
        guard case .unavailable = try await bench.accept("user_1") else {
            Issue.record("a queue that forgot its orders took a write")
            return
        }
        #expect(try await bench.length(.write) == 0)
        let worker = try await bench.worker("w1")
        #expect(try await bench.fetch(worker).isEmpty)
        try await bench.loop.run { try await QueueSeed(client: bench.client, keys: bench.keys).seed() }
        guard case .accepted = try await bench.accept("user_1") else {
            Issue.record("not accepted after the seed")
            return
        }
        #expect(try await bench.fetch(worker).count == 1)
    }

    @Test func aQueueOfAnotherShapeIsRefused() async throws {
        let bench = try await QueueBench.make(partitions: 2)
        await #expect(throws: QueueSeed.Mismatch.self) {
            try await bench.loop.run {
                let other = QueueKeys(prefix: bench.keys.prefix, partitions: 4)
                try await QueueSeed(client: bench.client, keys: other).seed()
            }
        }
        // Also by those that only use it, at their start.
        await #expect(throws: QueueSeed.Mismatch.self) {
            try await bench.loop.run {
                let other = QueueKeys(prefix: bench.keys.prefix, partitions: 4)
                try await QueueSeed(client: bench.client, keys: other).checkShape()
            }
        }
        try await bench.loop.run {
            try await QueueSeed(client: bench.client, keys: bench.keys).checkShape()
            let unseeded = QueueKeys(prefix: bench.keys.prefix + "none:", partitions: 4)
            try await QueueSeed(client: bench.client, keys: unseeded).checkShape()
        }
    }

    @Test func theThirtyFirstWriteAtOnceIsLimitedWithWholeSeconds() async throws {
        let bench = try await QueueBench.make()
        let limit = RateLimit(subject: SHA256Digest(ofParts: ["device"]), perMinute: 30)
        // In one turn of the loop, so in one call: at once, however busy the machine is.
        let results = try await bench.loop.run {
            await withTaskGroup(of: AcceptResult.self) { group in
                for _ in 0..<31 {
                    group.addTask {
                        await bench.sink.accept(
                            NewJob(
                                kind: .identify, lane: .write, organization: "demo", subject: "user_1", payload: [],
                                limit: limit))
                    }
                }
                return await group.reduce(into: []) { $0.append($1) }
            }
        }
        let seconds = results.compactMap { if case .limited(let seconds) = $0 { seconds } else { nil } }
        #expect(seconds.count == 1)
        #expect(seconds.allSatisfy { (1...60).contains($0) })
        #expect(try await bench.length(.write) == 30)
        // Another device of the same partition is not concerned.
        let other = RateLimit(subject: SHA256Digest(ofParts: ["other"]), perMinute: 30)
        guard case .accepted = try await bench.accept("user_1", limit: other) else {
            Issue.record("another device was limited")
            return
        }
    }

    /// On a cluster it lies on another node than most of the writes.
    @Test func aSharedLimitIsExactWhereverItsWritesGo() async throws {
        let bench = try await QueueBench.make(partitions: 8)
        let limit = RateLimit(subject: SHA256Digest(ofParts: ["organization"]), perMinute: 40, isShared: true)
        let results = try await bench.loop.run {
            await withTaskGroup(of: AcceptResult.self) { group in
                // More than one call carries.
                for index in 0..<200 {
                    group.addTask {
                        await bench.sink.accept(
                            NewJob(
                                kind: .identify, lane: .write, organization: "demo", subject: "user_\(index)",
                                payload: [], limit: limit))
                    }
                }
                return await group.reduce(into: []) { $0.append($1) }
            }
        }
        let limited = results.count { if case .limited = $0 { true } else { false } }
        #expect(limited == 160)
        #expect(try await bench.length(.write) == 40)
    }

    @Test func anOrganizationsBacklogIsCapped() async throws {
        var configuration = RedisJobSink.Configuration()
        configuration.organizationBacklog = 3
        let bench = try await QueueBench.make(partitions: 1, configuration: configuration)
        for _ in 0..<3 { _ = try await bench.accept("user_1") }
        #expect(try await bench.accept("user_1") == .shed)
        guard case .accepted = try await bench.accept("user_1", organization: "other") else {
            Issue.record("one tenant's backlog shed another's write")
            return
        }
        let worker = try await bench.worker("w1")
        let jobs = try await bench.fetch(worker)
        try await bench.settle(worker, jobs.map { Settlement($0, .done) })
        #expect(try await bench.backlog() == 0)
        guard case .accepted = try await bench.accept("user_1") else {
            Issue.record("ended jobs still counted")
            return
        }
    }

    @Test func atMaxmemoryIntakeRefusesWhileSettlingGoesOn() async throws {
        let server = try await TestRedis.start()
        do {
            let bench = try await QueueBench.make(redis: server)
            _ = try await bench.accept("user_1")
            let worker = try await bench.worker("w1")
            _ = try await bench.command(["CONFIG", "SET", "maxmemory-policy", "noeviction"])
            _ = try await bench.command(["CONFIG", "SET", "maxmemory", "1"])
            guard case .unavailable = try await bench.accept("user_2") else {
                Issue.record("a write was taken at maxmemory")
                await server.remove()
                return
            }
            let jobs = try await bench.fetch(worker)
            #expect(jobs.count == 1)
            try await bench.settle(
                worker, jobs.map { Settlement($0, .retry(afterMilliseconds: 0, attempts: 1)) })
            #expect(try await bench.delayed(.write) == 1)
            _ = try await bench.command(["CONFIG", "SET", "maxmemory", "0"])
            guard case .accepted = try await bench.accept("user_2") else {
                Issue.record("intake did not recover by itself")
                await server.remove()
                return
            }
        }
        await server.remove()
    }

    @Test func anOverloadedQueueShedsIdentifyBeforeAttributeAndLiveCallsNever() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        func accept(_ shedding: NewJob.Shedding) async throws -> AcceptResult {
            try await bench.loop.run {
                await bench.sink.accept(
                    NewJob(
                        kind: .identify, lane: .write, organization: "demo", subject: "u", payload: [],
                        shedding: shedding))
            }
        }
        for (level, refused) in [
            (0, []), (1, [NewJob.Shedding.impressions]), (2, [.impressions, .identify]),
            (3, [.impressions, .identify, .attribute]),
        ] {
            _ = try await bench.command(["HSET", .text(bench.keys.meta(0)), "shed", .integer(Int64(level))])
            for shedding in NewJob.Shedding.allCases {
                let result = try await accept(shedding)
                #expect((result == .shed) == refused.contains(shedding), "\(shedding) at level \(level)")
            }
        }
    }

    @Test func theLevelFollowsMemoryAndAge() {
        func level(_ memory: Double, _ minutes: Int64) -> NewJob.Shedding {
            ShedLevel.level(ShedLevel.Load(memory: memory, oldestMilliseconds: minutes * 60_000))
        }
        #expect(level(0.5, 0) == .never)
        #expect(level(0.8, 0) == .impressions)
        #expect(level(0.9, 0) == .identify)
        #expect(level(0.95, 0) == .attribute)
        #expect(level(0.1, 10) == .impressions)
        #expect(level(0.1, 30) == .identify)
        #expect(level(0.1, 10_000) == .identify)
        #expect(level(0.96, 30) == .attribute)
    }

    @Test func aFullRedisRaisesTheLevelAndAnEmptiedOneLowersIt() async throws {
        let server = try await TestRedis.start()
        let bench = try await QueueBench.make(redis: server)
        let shed = ShedLevel(client: bench.client, keys: bench.keys)
        let used = Int64(2_000_000)
        #expect(try await bench.loop.run { try await shed.update() } == .never)
        _ = try await bench.command(["CONFIG", "SET", "maxmemory", .integer(used)])
        let full = try await bench.loop.run { try await shed.load() }
        _ = try await bench.command(["CONFIG", "SET", "maxmemory", .integer(Int64(full.memory * Double(used) / 0.92))])
        #expect(try await bench.loop.run { try await shed.update() } == .identify)
        #expect(try await bench.command(["HGET", .text(bench.keys.meta(1)), "shed"]).text == "2")
        _ = try await bench.command(["CONFIG", "SET", "maxmemory", "0"])
        #expect(try await bench.loop.run { try await shed.update() } == .never)
        #expect(try await bench.command(["HGET", .text(bench.keys.meta(1)), "shed"]).text == "0")
        await server.remove()
    }

    @Test func inReplicatedModeAWriteCountsOnlyOnceEnoughReplicasHaveIt() async throws {
        let primary = try await TestRedis.start(
            TestRedis.Options(tcp: true, arguments: ["--repl-diskless-sync-delay", "0"]))
        let replica = try await TestRedis.start(
            TestRedis.Options(arguments: ["--replicaof", "127.0.0.1", "\(primary.port)"]))
        var configuration = RedisJobSink.Configuration()
        configuration.replicas = 1
        let bench = try await QueueBench.make(redis: primary, configuration: configuration)
        // The first answers may come before the replica has caught up.
        var result = try await bench.accept("user_1")
        for _ in 0..<20 {
            if case .accepted = result { break }
            result = try await bench.accept("user_1")
        }
        guard case .accepted = result else {
            Issue.record("not accepted although a replica is there: \(result)")
            return
        }
        await replica.stop()
        guard case .unavailable = try await bench.accept("user_2") else {
            Issue.record("accepted without a replica")
            return
        }
        await replica.remove()
        await primary.remove()
    }

    private static let noDelay = ["--repl-diskless-sync-delay", "0"]

    /// A primary with a replica in step.
    private func withReplica(_ body: (TestRedis, TestRedis) async throws -> Void) async throws {
        let primary = try await TestRedis.start(TestRedis.Options(tcp: true, arguments: Self.noDelay))
        let replica = try await TestRedis.start(
            TestRedis.Options(arguments: ["--replicaof", "127.0.0.1", "\(primary.port)"]))
        do {
            try await primary.eventually("its replica is in step") {
                try await primary.pipeline([["SET", "any", "1"], ["WAIT", 1, 100]])[1].get().int64 == 1
            }
            try await body(primary, replica)
        } catch {
            Issue.record(error)
        }
        await replica.remove()
        await primary.remove()
    }

    @Test func aWriteWhosePrimaryWasLostBeforeItsReplicasAnsweredIsNotAccepted() async throws {
        let lost = try await TestRedis.start()
        let proxy = try CuttingProxy(to: lost.socketPath)
        try await withReplica { successor, _ in
            var configuration = RedisJobSink.Configuration()
            configuration.replicas = 1
            let bench = try await QueueBench.make(redis: lost)
            _ = try await bench.accept("makes the script known")
            let client = RedisClient(
                loop: bench.loop, address: proxy.address,
                configuration: RedisClientConfiguration(connectionWaitMilliseconds: 5000))
            let result = try await bench.loop.run { [configuration] in
                try #require(await client.waitUntilConnected(milliseconds: 5000))
                // The line breaks behind the script's answer, and leads to the new primary from then on.
                proxy.cut(afterReplyBytes: "*1\r\n$16\r\n1234567890123456\r\n".utf8.count, thenTo: successor.socketPath)
                let sink = RedisJobSink(
                    loop: bench.loop, client: client, keys: bench.keys, configuration: configuration)
                return await sink.accept(
                    NewJob(kind: .identify, lane: .write, organization: "demo", subject: "u", payload: []))
            }
            await client.close()
            #expect(try await bench.length(.write) == 2)
            guard case .unavailable = result else {
                Issue.record("acknowledged what the new primary does not have")
                return
            }
        }
        proxy.stop()
        await lost.remove()
    }

    @Test func aWriteWhoseScriptHadToBeSentAgainWaitsForTheReplicasOfTheSecondTry() async throws {
        try await withReplica { primary, replica in
            var configuration = RedisJobSink.Configuration()
            configuration.replicas = 1
            let bench = try await QueueBench.make(redis: primary, configuration: configuration)
            try await primary.command(["SCRIPT", "FLUSH"])
            // It had everything when it stopped.
            try await primary.eventually("its replica is in step") {
                try await primary.pipeline([["SET", "any", "2"], ["WAIT", 1, 100]])[1].get().int64 == 1
            }
            replica.freeze()
            let result = try await bench.accept("user_1")
            replica.thaw()
            #expect(try await bench.length(.write) == 1)
            guard case .unavailable = result else {
                Issue.record("acknowledged what no replica had")
                return
            }
        }
    }

    @Test func aRedisThatIsAwayIsAnAnswerNotALoss() async throws {
        let server = try await TestRedis.start()
        var configuration = RedisJobSink.Configuration()
        configuration.timeoutMilliseconds = 300
        let bench = try await QueueBench.make(redis: server, configuration: configuration)
        server.freeze()
        guard case .unavailable = try await bench.accept("user_1") else {
            Issue.record("a frozen Redis accepted")
            return
        }
        server.thaw()
        await server.stop()
        guard case .unavailable = try await bench.accept("user_1") else {
            Issue.record("a dead Redis accepted")
            return
        }
        await server.remove()
    }
}
