import EventLoop
import Foundation
import Redis
import Synchronization
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(1))) struct RedisCommandTests {
    @Test func repliesComeInTheOrderOfTheCommands() async throws {
        let server = try await TestRedis.shared()
        let key = server.keyPrefix() + "counter"
        try await withClient(server.address) { client in
            let results = await client.pipeline((1...500).map { _ in ["INCR", .text(key)] })
            let numbers = results.map { $0.value?.int64 }
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
            #expect(try await client.command(["STRLEN", .text(key)]) == .integer(70_004))
            #expect(try await client.command(["ECHO", .bytes([])]) == .bulk([]))
        }
    }

    @Test(arguments: [0, 9, 10, -1, 1_234_567_890, Int64.max, Int64.min])
    func integerArgumentsAreSentInDecimal(_ number: Int64) async throws {
        let server = try await TestRedis.shared()
        try await withClient(server.address) { client in
            let reply = try await client.command(["ECHO", .integer(number)])
            #expect(reply.text == "\(number)")
            #expect(reply.int64 == number)
        }
    }

    @Test func nestedArraysAndEveryKindOfReplyAreTold() async throws {
        let server = try await TestRedis.shared()
        try await withClient(server.address) { client in
            let script =
                "return {1, 'two', {3, {4, {}}}, false, redis.status_reply('FINE'), redis.error_reply('MY bad')}"
            let reply = try await client.command(["EVAL", .text(script), 0])
            let error = RedisServerError(message: "MY bad")
            #expect(
                reply
                    == .array([
                        .integer(1), .bulk(Array("two".utf8)),
                        .array([.integer(3), .array([.integer(4), .array([])])]),
                        .null, .simple("FINE"), .error(error),
                    ]))
            #expect(error.prefix == "MY")
        }
    }

    @Test func aReplyLargerThanTheSocketBuffersPassesBothWays() async throws {
        let server = try await TestRedis.shared()
        let key = server.keyPrefix() + "large"
        let payload = [UInt8](unsafeUninitializedCapacity: 24 << 20) { buffer, count in
            for index in 0..<(24 << 20) { buffer[index] = UInt8(truncatingIfNeeded: index >> 4) }
            count = 24 << 20
        }
        try await withClient(server.address) { client in
            _ = try await client.command(["SET", .text(key), .bytes(payload)])
            let read = try await client.command(["GET", .text(key)])
            #expect(read.bytes == payload)
            _ = try await client.command(["DEL", .text(key)])
        }
    }

    @Test func anErrorReplyIsThrownAndTheConnectionStays() async throws {
        let server = try await TestRedis.shared()
        let key = server.keyPrefix() + "list"
        try await withClient(server.address) { client in
            let before = try await client.connectionID()
            _ = try await client.command(["RPUSH", .text(key), "a"])
            let results = await client.pipeline([["GET", .text(key)], ["LLEN", .text(key)], ["NOSUCH"]])
            #expect(results[0].error?.code == .server("WRONGTYPE"))
            #expect(results[0].error?.isRetryable == false)
            #expect(results[1].value == .integer(1))
            #expect(results[2].error?.code == .server("ERR"))
            #expect(try await client.connectionID() == before)
        }
    }

    @Test func commandsOfOneTurnLeaveInOneWrite() async throws {
        let fake = try FakeRedis { _, command in .bytes(command == ["PING"] ? "+PONG\r\n" : "$1\r\nx\r\n") }
        defer { fake.stop() }
        try await withClient(fake.address) { client in
            let loop = client.loop
            let greeting = fake.reads(of: 0).count
            await withTaskGroup(of: RedisValue?.self) { group in
                for number in 0..<200 {
                    group.addTask(executorPreference: loop) {
                        try? await client.command(["GET", .integer(Int64(number))])
                    }
                }
                for await value in group { #expect(value?.text == "x") }
            }
            // The reader is on another thread and would see most of 200 writes one by one.
            #expect(fake.reads(of: 0).count - greeting == 1)
            #expect(fake.commands.dropFirst().map { $0[1] } == (0..<200).map { "\($0)" })
        }
    }

    @Test func aHundredThousandCommandsFromManyTasksEachGetTheirOwnReply() async throws {
        let server = try await TestRedis.shared()
        try await withClient(server.address) { client in
            let loop = client.loop
            let right = await withTaskGroup(of: Int.self) { group in
                for task in 0..<100 {
                    group.addTask(executorPreference: loop) {
                        var right = 0
                        for round in 0..<1_000 {
                            let number = Int64(task * 1_000 + round)
                            if try! await client.command(["ECHO", .integer(number)]).int64 == number { right += 1 }
                        }
                        return right
                    }
                }
                return await group.reduce(0, +)
            }
            #expect(right == 100_000)
            #expect(client.inFlight == 0)
        }
    }

    @Test func moreInFlightThanAllowedFailsAtOnce() async throws {
        let server = try await TestRedis.shared()
        try await withClient(server.address, RedisClientConfiguration(maxInFlight: 4)) { client in
            let results = await client.pipeline(Array(repeating: ["PING"], count: 5))
            #expect(results.count == 5)
            #expect(results.allSatisfy { $0.error?.code == .unavailable })
            let fitting = await client.pipeline(Array(repeating: ["PING"], count: 4))
            #expect(fitting.allSatisfy { $0.value == .simple("PONG") })
        }
    }

    @Test func aFullOutputBufferFailsCommandsInsteadOfGrowing() async throws {
        let fake = try FakeRedis { _, command in
            if command == ["PING"] { return .bytes("+PONG\r\n") }
            Thread.sleep(forTimeInterval: 0.2)
            return .bytes("+OK\r\n")
        }
        defer { fake.stop() }
        try await withClient(fake.address, RedisClientConfiguration(maxUnsentBytes: 1 << 20)) { client in
            let loop = client.loop
            let payload = [UInt8](repeating: 65, count: 1 << 20)
            let codes = await withTaskGroup(of: RedisError.Code?.self) { group in
                for _ in 0..<8 {
                    group.addTask(executorPreference: loop) {
                        await client.failure(["SET", "k", .bytes(payload)])?.code
                    }
                }
                return await group.reduce(into: []) { $0.append($1) }
            }
            #expect(codes.filter { $0 == .unavailable }.count == 7)
            #expect(codes.filter { $0 == nil }.count == 1)
        }
    }

    @Test func aScriptTheServerForgotRunsFromItsSource() async throws {
        let script = RedisScript(name: "sum", source: "return redis.call('INCRBY', KEYS[1], ARGV[1])")
        try await withServer { server in
            try await withClient(server.address) { client in
                #expect(try await client.evaluate(script, keys: ["k"], arguments: [2]) == .integer(2))
                #expect(try await client.evaluate(script, keys: ["k"], arguments: [3]) == .integer(5))
                _ = try await client.command(["SCRIPT", "FLUSH"])
                #expect(try await client.evaluate(script, keys: ["k"], arguments: [4]) == .integer(9))
                #expect(try await client.command(["SCRIPT", "LOAD", .text(script.source)]).text == script.sha1)
                let calls = try await client.command(["INFO", "commandstats"]).text ?? ""
                // Once when the server was new and once after the flush.
                #expect(calls.contains("cmdstat_eval:calls=2,"))
                #expect(calls.contains("cmdstat_evalsha:calls=3,"))
            }
        }
    }

    @Test func anErrorOfAScriptIsThrownOnce() async throws {
        let server = try await TestRedis.shared()
        let script = RedisScript(name: "wrong", source: "return redis.error_reply('LIMIT too much')")
        try await withClient(server.address) { client in
            var thrown: RedisError?
            do throws(RedisError) {
                _ = try await client.evaluate(script, keys: [], arguments: [])
            } catch { thrown = error }
            #expect(thrown?.code == .server("LIMIT"))
        }
    }

    @Test func memoryRefusalPassesThroughAndTheConnectionStays() async throws {
        try await withServer(TestRedis.Options(maxMemory: "2mb")) { server in
            try await withClient(server.address) { client in
                let before = try await client.connectionID()
                let payload = [UInt8](repeating: 1, count: 100_000)
                let results = await client.pipeline((0..<30).map { ["SET", .integer($0), .bytes(payload)] })
                let refused = results.compactMap { $0.error }
                #expect(!refused.isEmpty)
                #expect(refused.allSatisfy { $0.code == .server("OOM") && $0.isRetryable })
                #expect(try await client.connectionID() == before)
            }
        }
    }
}
