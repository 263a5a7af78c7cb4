import EventLoop
import Foundation
import Redis
import Synchronization
import TestSupport
import Testing

@Suite struct RedisClientTests {
    @Test func repliesComeInTheOrderOfTheCommands() async throws {
        let server = try await TestRedis.shared()
        let key = server.keyPrefix() + "counter"
        try await withClient(server.address) { client in
            let results = await client.pipeline((1...500).map { _ in ["INCR", .text(key)] })
            let numbers = try results.map { try $0.get().int64 }
            #expect(numbers == (1...500).map { Int64($0) })
        }
    }

    @Test func everyByteSurvivesTheRoundTrip() async throws {
        let server = try await TestRedis.shared()
        let key = server.keyPrefix() + "bytes"
        let payload = (0..<70_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 / 256) } + [0, 13, 10, 0]
        try await withClient(server.address) { client in
            _ = try await client.command(["SET", .text(key), .bytes(payload)])
            #expect(try await client.command(["GET", .text(key)]) == .bulk(payload))
        }
    }

    @Test func nestedArraysAndEveryKindOfReplyAreTold() async throws {
        let server = try await TestRedis.shared()
        try await withClient(server.address) { client in
            let script =
                "return {1, 'two', {3, {4, {}}}, false, redis.status_reply('FINE'), redis.error_reply('MY bad')}"
            let reply = try await client.command(["EVAL", .text(script), 0])
            #expect(
                reply
                    == .array([
                        .integer(1), .bulk(Array("two".utf8)),
                        .array([.integer(3), .array([.integer(4), .array([])])]),
                        .null, .simple("FINE"), .error(RedisServerError(message: "MY bad")),
                    ]))
        }
    }
}

/// A client on a loop of its own, connected, and closed afterwards; the body runs on the loop.
func withClient<Result: Sendable>(
    _ address: RedisAddress, _ configuration: RedisClientConfiguration = RedisClientConfiguration(),
    _ body: @escaping @Sendable (RedisClient) async throws -> Result
) async throws -> Result {
    let loop = EventLoop(name: "redis-test")
    let client = RedisClient(loop: loop, address: address, configuration: configuration)
    do {
        let result = try await loop.run {
            guard await client.waitUntilConnected(milliseconds: 20_000) else {
                throw TestRedis.Failure(description: "no connection: \(client.state)")
            }
            return try await body(client)
        }
        await client.close()
        loop.stop()
        return result
    } catch {
        await client.close()
        loop.stop()
        throw error
    }
}
