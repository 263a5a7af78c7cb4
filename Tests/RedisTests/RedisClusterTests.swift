import EventLoop
import TestSupport
import Testing

@testable import Redis

/// The client on a real cluster of three primaries and three replicas.
@Suite(.serialized, .timeLimit(.minutes(2))) struct RedisClusterTests {
    @Test func slotsAreCountedAsRedisDoes() async throws {
        // The value that the specification gives for checking.
        #expect(KeySlot.of("123456789") == 0x31C3)
        let cluster = try await TestRedisCluster.shared()
        var keys = [
            "", "foo", "{user1000}.following", "foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}", "a{b", "a}b{c}d",
        ]
        keys += (0..<200).map { _ in String((0..<Int.random(in: 1...12)).map { _ in "ab{}é:7".randomElement() ?? "x" })
        }
        for key in keys {
            #expect(Int64(KeySlot.of(.text(key))) == (try await cluster.slot(of: key)), "\(key)")
        }
    }

    @Test(
        arguments: [
            (["GET", "k"], "k"), (["XADD", "k", "*", "a", "b"], "k"), (["XINFO", "CONSUMERS", "k", "g"], "k"),
            (["XGROUP", "CREATE", "k", "g", "0"], "k"), (["EVALSHA", "sha", 2, "k", "l", "a"], "k"),
            (["EVAL", "return 1", 0], nil), (["XREAD", "COUNT", "1", "BLOCK", 5, "STREAMS", "k", "l", "0", "0"], "k"),
            (["XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">"], "k"), (["PING"], nil), (["TIME"], nil),
            (["PUBLISH", "channel", "text"], nil), (["CONFIG", "GET", "maxmemory"], nil), (["INFO", "memory"], nil),
        ] as [([RedisArgument], RedisArgument?)])
    func aCommandsKeyIsFound(_ command: [RedisArgument], _ key: RedisArgument?) {
        #expect(CommandKey.of(command) == key)
    }

    @Test func everyCommandReachesTheNodeOfItsKey() async throws {
        let cluster = try await TestRedisCluster.shared()
        let prefix = cluster.keyPrefix()
        try await withClient(cluster.address) { client in
            for index in 0..<60 {
                _ = try await client.command(["SET", .text("\(prefix)\(index)"), .integer(Int64(index))])
            }
            // One pipeline over all nodes: the answers stand in the order of the commands.
            let answers = await client.pipeline((0..<60).map { ["GET", .text("\(prefix)\($0)")] })
            #expect(answers.map { $0.value?.int64 } == (0..<60).map { Int64($0) })
            let script = RedisScript(name: "get", source: "return redis.call('GET', KEYS[1])")
            for index in 0..<60 {
                let value = try await client.evaluate(script, keys: [.text("\(prefix)\(index)")], arguments: [])
                #expect(value.int64 == Int64(index))
            }
        }
        var held: [Int64] = []
        for node in cluster.nodes.prefix(3) { held.append(try await node.command(["DBSIZE"]).int64 ?? 0) }
        #expect(held.allSatisfy { $0 > 0 }, "the keys lie on all nodes: \(held)")
    }

    @Test func errorsOfACommandAreItsOwn() async throws {
        let cluster = try await TestRedisCluster.shared()
        let prefix = cluster.keyPrefix()
        try await withClient(cluster.address) { client in
            let results = await client.pipeline([
                ["SET", .text(prefix + "a"), "x"], ["LPUSH", .text(prefix + "a"), "x"],
                ["MGET", .text(prefix + "b"), .text(prefix + "c")], ["GET", .text(prefix + "a")],
            ])
            #expect(results[0].value == .simple("OK"))
            #expect(results[1].error?.code == .server("WRONGTYPE"))
            #expect(results[2].error?.code == .server("CROSSSLOT"))
            #expect(results[3].value?.text == "x")
        }
    }

    @Test func everyPrimaryIsAskedByName() async throws {
        let cluster = try await TestRedisCluster.shared()
        try await withClient(cluster.address) { client in
            let replies = try await client.everyPrimary(["CONFIG", "GET", "port"])
            for reply in replies {
                #expect(reply.node == "127.0.0.1:\(try reply.reply.get().elements?.last?.text ?? "")")
            }
            #expect(Set(replies.compactMap(\.node)) == Set(cluster.nodes.prefix(3).map { "127.0.0.1:\($0.port)" }))
            // A command without a key goes where a key lies, when that matters.
            #expect(try await client.command(["TIME"], near: "some key").elements?.count == 2)
        }
    }

    @Test func messagesComeFromAnyNodeToAnyNode() async throws {
        let cluster = try await TestRedisCluster.shared()
        let channel = cluster.keyPrefix() + "channel"
        try await withClient(cluster.address) { client in
            let messages = client.subscribe(channel)
            try #require(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
            for index in 0..<3 {
                try await cluster.nodes[index].command(["PUBLISH", .text(channel), .integer(Int64(index))])
            }
            var heard: Set<String> = []
            for await message in messages {
                heard.insert(String(decoding: message, as: UTF8.self))
                if heard.count == 3 { break }
            }
            #expect(heard == ["0", "1", "2"])
        }
    }

    @Test func aClientFindsTheClusterThoughSeedsAreAway() async throws {
        let cluster = try await TestRedisCluster.shared()
        let seeds = [
            RedisHost(name: "127.0.0.1", port: 1), RedisHost(name: "127.0.0.1", port: UInt16(cluster.nodes[5].port)),
        ]
        try await withClient(RedisAddress(endpoint: .cluster(nodes: seeds))) { client in
            let answer = try await client.command(["PING"])
            #expect(answer == .simple("PONG"))
        }
    }

    @Test func aServerThatIsNoClusterIsNamedAsTheProblem() async throws {
        let server = try await TestRedis.start(TestRedis.Options(tcp: true))
        let seed = RedisHost(name: "127.0.0.1", port: UInt16(server.port))
        try await withClient(RedisAddress(endpoint: .cluster(nodes: [seed])), waits: false) { client in
            let loss = await client.states().nextLoss()
            #expect(loss?.message.contains("cluster support disabled") == true)
        }
        await server.remove()
    }

    @Test func aMovingSlotIsFollowedAndThenLearnt() async throws {
        let cluster = try await TestRedisCluster.start()
        let key = "{tag}:key"
        let slot = try await cluster.slot(of: key)
        let source = try await cluster.primary(of: key)
        let target = try #require(cluster.nodes.prefix(3).first { $0 !== source })
        let sourceID = try await source.command(["CLUSTER", "MYID"]).text ?? ""
        let targetID = try await target.command(["CLUSTER", "MYID"]).text ?? ""
        try await withClient(cluster.address) { client in
            _ = try await client.command(["SET", .text(key), "1"])
            // Half way: what is still there is answered there, what is not is asked of the other.
            let number = RedisArgument.integer(slot)
            try await target.command(["CLUSTER", "SETSLOT", number, "IMPORTING", .text(sourceID)])
            try await source.command(["CLUSTER", "SETSLOT", number, "MIGRATING", .text(targetID)])
            #expect(try await client.command(["GET", .text(key)]).text == "1")
            _ = try await client.command(["SET", "{tag}:new", "2"])
            #expect(try await target.pipeline([["ASKING"], ["GET", "{tag}:new"]])[1].value?.text == "2")
            let both = await client.failure(["MGET", .text(key), "{tag}:new"])
            #expect(both?.code == .server("TRYAGAIN"))
            #expect(both?.isRetryable == true)
            // A pipeline across the move.
            let answers = await client.pipeline([["GET", .text(key)], ["GET", "{tag}:new"], ["GET", .text(key)]])
            #expect(answers.map { $0.value?.text } == ["1", "2", "1"])
            try await cluster.move(slot: slot, from: source, to: target)
            #expect(try await client.command(["MGET", .text(key), "{tag}:new"]).elements?.map(\.text) == ["1", "2"])
            // Learnt: the old owner hears no more of it.
            func moves() async throws -> Int64 {
                let text = try await source.command(["INFO", "errorstats"]).text ?? ""
                let line = text.split(whereSeparator: \.isNewline).first { $0.hasPrefix("errorstat_MOVED:") }
                return line.flatMap { Int64($0.split(separator: "=").last ?? "") } ?? 0
            }
            try await eventually("the move is learnt") {
                let before = try await moves()
                for _ in 0..<20 { _ = try await client.command(["GET", .text(key)]) }
                return try await moves() == before
            }
        }
        await cluster.remove()
    }

    @Test func aKilledPrimaryIsReplacedByItsReplicaAndComesBack() async throws {
        let cluster = try await TestRedisCluster.start(nodeTimeoutMilliseconds: 1000)
        let key = "key"
        let victim = try await cluster.primary(of: key)
        let other = try #require(cluster.nodes.prefix(3).first { $0 !== victim })
        let keys = (0..<100).map { "k\($0)" }
        var elsewhere: String?
        for key in keys where elsewhere == nil {
            if try await cluster.primary(of: key) === other { elsewhere = key }
        }
        let unconcerned = try #require(elsewhere)
        try await withClient(cluster.address) { client in
            let channel = client.subscribe("news")
            try #require(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
            _ = try await client.command(["SET", .text(key), "1"])
            await victim.stop()
            // The other nodes' keys are not concerned.
            _ = try await client.command(["SET", .text(unconcerned), "2"])
            let failure = await client.failure(["GET", .text(key)])
            #expect(failure?.isRetryable == true)
            try await eventually("the replica serves") { (try? await client.command(["SET", .text(key), "2"])) != nil }
            try await client.requireConnection()
            try await victim.start()
            try await cluster.waitUntilWhole()
            #expect(try await client.command(["GET", .text(key)]).text == "2")
            try #require(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
            _ = try await client.command(["PUBLISH", "news", "back"])
            for await message in channel {
                #expect(message == Array("back".utf8))
                break
            }
        }
        await cluster.remove()
    }

    @Test func aFrozenPrimaryIsLeftOnceTheOthersHaveReplacedIt() async throws {
        let cluster = try await TestRedisCluster.start(nodeTimeoutMilliseconds: 1000)
        let key = "key"
        let victim = try await cluster.primary(of: key)
        // Far longer than what is allowed here: only the others' word can end the wait.
        let configuration = RedisClientConfiguration(commandTimeoutMilliseconds: 60_000)
        try await withClient(cluster.address, configuration) { client in
            victim.freeze()
            let began = ContinuousClock.now
            let failure = await client.failure(["SET", .text(key), "1"])
            #expect(failure?.code == .unavailable)
            try await eventually("the replica serves") { (try? await client.command(["SET", .text(key), "2"])) != nil }
            let waited = ContinuousClock.now - began
            print("cluster: a frozen primary was left after \(waited)")
            #expect(waited < .seconds(20))
            victim.thaw()
            try await cluster.waitUntilWhole()
            #expect(try await client.command(["GET", .text(key)]).text == "2")
        }
        await cluster.remove()
    }

    @Test func anOrderedFailoverIsFollowed() async throws {
        let cluster = try await TestRedisCluster.start()
        let victim = cluster.nodes[0]
        let replica = cluster.nodes[3]
        try await withClient(cluster.address) { client in
            let keys = (0..<30).map { "k\($0)" }
            // Redis drops the order when it isn't done in five seconds, as on a machine with much else to do.
            var ordered = ContinuousClock.now
            try await replica.command(["CLUSTER", "FAILOVER"])
            try await eventually("the replica took over") {
                if ContinuousClock.now - ordered > .seconds(6) {
                    ordered = .now
                    try await replica.command(["CLUSTER", "FAILOVER"])
                }
                return try await replica.command(["INFO", "replication"]).text?.contains("role:master") == true
            }
            for key in keys { _ = try await client.command(["SET", .text(key), "1"]) }
            try await eventually("the old primary is left") {
                try await client.everyPrimary(["PING"]).allSatisfy { $0.node != "127.0.0.1:\(victim.port)" }
            }
        }
        await cluster.remove()
    }
}
