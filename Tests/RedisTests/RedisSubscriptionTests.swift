import EventLoop
import Foundation
import Redis
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(1))) struct RedisSubscriptionTests {
    @Test func messagesArriveInOrderAsTheyWereSent() async throws {
        let server = try await TestRedis.shared()
        let channel = server.keyPrefix() + "channel"
        try await withClient(server.address) { client in
            let stream = client.subscribe(channel)
            #expect(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
            let sent: [[UInt8]] = (0..<300).map { [0, 13, 10, UInt8($0 & 255), UInt8($0 >> 8)] }
            let results = await client.pipeline(sent.map { ["PUBLISH", .text(channel), .bytes($0)] })
            #expect(results.allSatisfy { $0.value == .integer(1) })
            #expect(await stream.first(300) == sent)
        }
    }

    @Test func aStreamEndsWhenItsClientIsLetGo() async throws {
        let address = try await TestRedis.shared().address
        let loop = EventLoop(name: "redis-test")
        defer { loop.stop() }
        let stream = try await loop.run {
            RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration()).subscribe("c")
        }
        for await _ in stream { Issue.record("nobody has published") }
    }

    @Test func channelsAreKeptApart() async throws {
        let server = try await TestRedis.shared()
        let prefix = server.keyPrefix()
        try await withClient(server.address) { client in
            let a = client.subscribe(prefix + "a")
            let b = client.subscribe(prefix + "b")
            #expect(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
            _ = try await client.command(["PUBLISH", .text(prefix + "b"), "for b"])
            _ = try await client.command(["PUBLISH", .text(prefix + "a"), "for a"])
            #expect(await a.first(1) == [Array("for a".utf8)])
            #expect(await b.first(1) == [Array("for b".utf8)])
        }
    }

    @Test func aSubscriptionSurvivesTheLossOfItsConnection() async throws {
        try await withServer { server in
            try await withClient(server.address) { client in
                let stream = client.subscribe("c")
                #expect(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
                _ = try await client.command(["PUBLISH", "c", "before"])
                #expect(await stream.first(1) == [Array("before".utf8)])
                #expect(try await client.command(["CLIENT", "KILL", "TYPE", "pubsub"]) == .integer(1))
                // Its end of stream was queued before the answer, but on another socket.
                try await client.untilUnsubscribed()
                #expect(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
                #expect(try await client.command(["PUBLISH", "c", "after"]) == .integer(1))
                #expect(await stream.first(1) == [Array("after".utf8)])
            }
        }
    }

    @Test func endingTheIterationUnsubscribes() async throws {
        try await withServer { server in
            try await withClient(server.address) { client in
                let reader = Task(executorPreference: client.loop) {
                    for await _ in client.subscribe("c") { break }
                }
                try await eventually("somebody listens") {
                    try await client.command(["PUBLISH", "c", "x"]) != .integer(0)
                }
                await reader.value
                try await eventually("nobody listens") {
                    try await client.command(["PUBSUB", "NUMSUB", "c"]).elements?.last == .integer(0)
                }
            }
        }
    }

    @Test func closingTheClientEndsTheStream() async throws {
        let server = try await TestRedis.shared()
        let channel = server.keyPrefix() + "channel"
        try await withClient(server.address) { client in
            let stream = client.subscribe(channel)
            #expect(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
            await client.close()
            #expect(await stream.first(1).isEmpty)
            #expect(await client.subscribe(channel).first(1).isEmpty)
        }
    }

    @Test func aFrozenServerLosesTheSubscriptionAndGetsItBack() async throws {
        try await withServer { server in
            let configuration = RedisClientConfiguration(
                connectTimeoutMilliseconds: 500, subscriptionPingMilliseconds: 50)
            try await withClient(server.address, configuration) { client in
                let stream = client.subscribe("c")
                #expect(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
                server.freeze()
                try await client.untilUnsubscribed()
                server.thaw()
                #expect(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
                try await client.requireConnection()
                try await eventually("the subscriber is back") {
                    try await client.command(["PUBLISH", "c", "back"]) != .integer(0)
                }
                #expect(await stream.first(1) == [Array("back".utf8)])
            }
        }
    }
}

extension RedisClient {
    func untilUnsubscribed() async throws {
        try await eventually("the loss of the subscription is seen") {
            if isSubscribed { await loop.sleep(milliseconds: 1) }
            return !isSubscribed
        }
    }
}

extension AsyncStream<[UInt8]> {
    /// The next so many messages, fewer when the stream ends.
    func first(_ count: Int) async -> [[UInt8]] {
        var iterator = makeAsyncIterator()
        var messages: [[UInt8]] = []
        while messages.count < count, let message = await iterator.next() { messages.append(message) }
        return messages
    }
}
