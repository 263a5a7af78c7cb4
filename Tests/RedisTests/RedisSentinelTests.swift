import EventLoop
import Redis
import TestSupport
import Testing

/// The client on a real primary with two replicas and three sentinels.
@Suite(.serialized, .timeLimit(.minutes(2))) struct RedisSentinelTests {
    @Test func thePrimaryIsFoundThoughASentinelIsAwayAndOneKnowsNothing() async throws {
        let system = try await TestRedisSentinel.start()
        let ignorant = try await TestRedis.start(TestRedis.Options(sentinel: []))
        let primary = system.servers[0]
        guard case .sentinel(let name, let sentinels) = system.address.endpoint else { return }
        let hosts =
            [RedisHost(name: "127.0.0.1", port: 1), RedisHost(name: "127.0.0.1", port: UInt16(ignorant.port))]
            + sentinels
        let address = RedisAddress(endpoint: .sentinel(name: name, sentinels: hosts))
        try await withClient(address) { client in
            let port = try await client.command(["CONFIG", "GET", "port"]).elements?.last?.int64
            #expect(port == Int64(primary.port))
        }
        let unknown = RedisAddress(endpoint: .sentinel(name: "other", sentinels: sentinels))
        try await withClient(unknown, waits: false) { client in
            let loss = await client.states().nextLoss()
            #expect(loss?.message.contains("knows no primary named other") == true)
        }
        await ignorant.remove()
        await system.remove()
    }

    @Test func aServerThatSaysItIsNoPrimaryIsNotTaken() async throws {
        let primary = try await TestRedis.start(TestRedis.Options(tcp: true))
        let replica = try await TestRedis.start(
            TestRedis.Options(tcp: true, arguments: ["--replicaof", "127.0.0.1", "\(primary.port)"]))
        // It believes what it was told, as one does that missed a failover.
        let sentinel = try await TestRedis.start(
            TestRedis.Options(sentinel: [
                "sentinel monitor main 127.0.0.1 \(replica.port) 3", "sentinel down-after-milliseconds main 600000",
            ]))
        let host = RedisHost(name: "127.0.0.1", port: UInt16(sentinel.port))
        try await withClient(RedisAddress(endpoint: .sentinel(name: "main", sentinels: [host])), waits: false) {
            client in
            let states = client.states()
            #expect(await states.nextLoss()?.message.contains("is no primary") == true)
            try await replica.command(["REPLICAOF", "NO", "ONE"])
            try await client.requireConnection()
            _ = try await client.command(["SET", "k", "v"])
        }
        for server in [sentinel, replica, primary] { await server.remove() }
    }

    @Test func theNewestElectionIsBelievedAndNotForgotten() async throws {
        let old = try await TestRedis.start(TestRedis.Options(tcp: true))
        let new = try await TestRedis.start(TestRedis.Options(tcp: true))
        // They watch different servers, so that they never meet: as right after a failover.
        func sentinel(_ primary: TestRedis, _ epoch: Int) async throws -> TestRedis {
            try await TestRedis.start(
                TestRedis.Options(sentinel: [
                    "sentinel monitor main 127.0.0.1 \(primary.port) 3",
                    "sentinel down-after-milliseconds main 600000", "sentinel config-epoch main \(epoch)",
                ]))
        }
        let late = try await sentinel(old, 4)
        let leader = try await sentinel(new, 5)
        let hosts = [late, leader].map { RedisHost(name: "127.0.0.1", port: UInt16($0.port)) }
        try await withClient(RedisAddress(endpoint: .sentinel(name: "main", sentinels: hosts))) { client in
            func port() async throws -> Int64? {
                try await client.command(["CONFIG", "GET", "port"]).elements?.last?.int64
            }
            #expect(try await port() == Int64(new.port))
            // The one that knows goes: what it said holds, also for the next connection.
            await leader.stop()
            let states = client.states()
            try await new.command(["CLIENT", "KILL", "TYPE", "normal"])
            _ = await states.nextLoss()
            #expect(await states.nextLoss()?.message.contains("lag behind the last election") == true)
            try await leader.start()
            try await client.requireConnection()
            #expect(try await port() == Int64(new.port))
        }
        for server in [late, leader, old, new] { await server.remove() }
    }

    @Test func aKilledPrimaryIsReplacedAndComesBackAsAReplica() async throws {
        let system = try await TestRedisSentinel.start(downAfterMilliseconds: 1000)
        let old = system.servers[0]
        try await withClient(system.address) { client in
            let messages = client.subscribe("news")
            try #require(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
            _ = try await client.command(["SET", "k", "1"])
            await old.stop()
            #expect(await client.failure(["GET", "k"])?.isRetryable == true)
            try await eventually("another serves") { (try? await client.command(["SET", "k", "2"])) != nil }
            try await old.start()
            try await old.eventually("the old primary copies from the new one") {
                try await old.command(["INFO", "replication"]).text?.contains("master_link_status:up") == true
            }
            #expect(try await client.command(["GET", "k"]).text == "2")
            try #require(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
            _ = try await client.command(["PUBLISH", "news", "back"])
            for await message in messages {
                #expect(message == Array("back".utf8))
                break
            }
        }
        await system.remove()
    }

    @Test func aFrozenPrimaryIsLeftAndNoWriteGoesThereWhenItWakes() async throws {
        let system = try await TestRedisSentinel.start(downAfterMilliseconds: 1000)
        let old = system.servers[0]
        let configuration = RedisClientConfiguration(commandTimeoutMilliseconds: 60_000)
        try await withClient(system.address, configuration) { client in
            old.freeze()
            let began = ContinuousClock.now
            #expect(await client.failure(["SET", "k", "1"])?.code == .unavailable)
            try await eventually("another serves") { (try? await client.command(["SET", "k", "2"])) != nil }
            let waited = ContinuousClock.now - began
            print("sentinel: a frozen primary was left after \(waited)")
            #expect(waited < .seconds(20))
            // It still thinks that it is the primary, for a while.
            old.thaw()
            for index in 0..<50 { _ = try await client.command(["SET", "k", .integer(Int64(index))]) }
            let primary = try await system.primary()
            #expect(primary !== old)
            #expect(try await primary.command(["GET", "k"]).text == "49")
        }
        await system.remove()
    }

    @Test func anOrderedFailoverIsFollowed() async throws {
        let system = try await TestRedisSentinel.start()
        let old = system.servers[0]
        try await withClient(system.address) { client in
            try await system.sentinels[0].command(["SENTINEL", "FAILOVER", .text(TestRedisSentinel.name)])
            try await eventually("another is the primary") { try await system.primary() !== old }
            try await eventually("it serves") {
                guard let port = try? await client.command(["CONFIG", "GET", "port"]).elements?.last?.int64 else {
                    return false
                }
                if port == Int64(old.port) { return false }
                return (try? await client.command(["SET", "k", "1"])) != nil
            }
        }
        await system.remove()
    }
}
