import EventLoop
import Foundation
import Redis
import Synchronization
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(1))) struct RedisReconnectTests {
    @Test func aKilledConnectionIsReplaced() async throws {
        let server = try await TestRedis.shared()
        try await withClient(server.address) { client in
            let states = client.states()
            let before = try await client.connectionID()
            try await server.command(["CLIENT", "KILL", "ID", .integer(before)])
            #expect(await states.nextLoss()?.code == .unavailable)
            try await client.requireConnection()
            #expect(try await client.connectionID() != before)
        }
    }

    @Test func commandsInFlightAtAKillFailAsUnavailable() async throws {
        let server = try await TestRedis.shared()
        let key = server.keyPrefix() + "empty"
        try await withClient(server.address) { client in
            let id = try await client.connectionID()
            async let blocked = client.failure(["BLPOP", .text(key), 0])
            async let behind = client.failure(["PING"])
            try await server.untilBlocked(id)
            try await server.command(["CLIENT", "KILL", "ID", .integer(id)])
            #expect(await blocked?.code == .unavailable)
            #expect(await behind?.code == .unavailable)
        }
    }

    @Test(arguments: [TestRedis.Ending.killed, .terminated])
    func aRestartedServerIsFoundAgain(_ ending: TestRedis.Ending) async throws {
        try await withServer(TestRedis.Options(appendOnly: true, appendFsync: "always")) { server in
            try await withClient(server.address) { client in
                let states = client.states()
                _ = try await client.command(["SET", "k", "kept"])
                await server.stop(ending)
                #expect(await states.nextLoss()?.code == .unavailable)
                let refused = await client.failure(["GET", "k"])
                #expect(refused?.code == .unavailable)
                #expect(refused?.isRetryable == true)
                try await server.start()
                try await client.requireConnection()
                #expect(try await client.command(["GET", "k"]).text == "kept")
            }
        }
    }

    @Test func aClientMayBeThereBeforeItsServer() async throws {
        try await withServer { server in
            await server.stop()
            try await withClient(server.address, waits: false) { client in
                let states = client.states()
                let loss = await states.nextLoss()
                #expect(loss?.message.contains("No such file") == true || loss?.message.contains("refused") == true)
                #expect(!client.isConnected)
                try await server.start()
                try await client.requireConnection()
                #expect(try await client.command(["PING"]) == .simple("PONG"))
            }
        }
    }

    @Test func aCommandMayWaitForTheConnection() async throws {
        try await withServer { server in
            let configuration = RedisClientConfiguration(connectionWaitMilliseconds: patienceMilliseconds)
            await server.stop()
            try await withClient(server.address, configuration, waits: false) { client in
                let states = client.states()
                async let reply = client.command(["PING"])
                #expect(await states.nextLoss() != nil)
                try await server.start()
                #expect(try await reply == .simple("PONG"))
            }
        }
    }

    @Test func aSleepingServerTimesOutAndIsUsedAgainLater() async throws {
        try await withServer { server in
            try await withClient(server.address) { client in
                let states = client.states()
                let before = try await client.connectionID()
                async let sleeping = client.failure(["DEBUG", "SLEEP", "1"], timeoutMilliseconds: 100)
                async let behind = client.failure(["SET", "k", "v"])
                #expect(await sleeping?.code == .timeout)
                #expect(await behind?.code == .unavailable)
                #expect(await states.nextLoss()?.code == .timeout)
                try await client.requireConnection()
                #expect(try await client.connectionID() != before)
            }
        }
    }

    @Test func aShortTimeoutBehindALongOneIsKept() async throws {
        try await withServer { server in
            try await withClient(server.address) { client in
                async let long = client.failure(["BLPOP", "empty", 0], timeoutMilliseconds: 60_000)
                async let short = client.failure(["PING"], timeoutMilliseconds: 50)
                #expect(await short?.code == .timeout)
                #expect(await long?.code == .unavailable)
            }
        }
    }

    @Test func aFrozenServerTimesOutAndThawsIntoUse() async throws {
        try await withServer { server in
            let configuration = RedisClientConfiguration(
                connectTimeoutMilliseconds: 100, commandTimeoutMilliseconds: 100)
            try await withClient(server.address, configuration) { client in
                let states = client.states()
                server.freeze()
                #expect(await client.failure(["PING"])?.code == .timeout)
                // The kernel still takes connections for a stopped process: the greeting must have a deadline too.
                #expect(await states.nextLoss()?.code == .timeout)
                #expect(await states.nextLoss()?.message.contains("can't connect") == true)
                server.thaw()
                try await client.requireConnection()
                #expect(try await client.command(["PING"], timeoutMilliseconds: 20_000) == .simple("PONG"))
            }
        }
    }

    @Test func aStalledProcessFindsItsRepliesInsteadOfTimingOut() async throws {
        let fake = try FakeRedis { _, command in
            if command == ["PING"] { return .bytes("+PONG\r\n") }
            Thread.sleep(forTimeInterval: 0.05)
            return .bytes("+there\r\n")
        }
        defer { fake.stop() }
        try await withClient(fake.address) { client in
            let loop = client.loop
            async let reply = client.command(["GET", "k"], timeoutMilliseconds: 100)
            // Stalls between the loop's look for events and its look at timers: the reply comes meanwhile.
            var ends: [Int32] = [0, 0]
            socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends)
            let (near, far) = (ends[0], ends[1])
            close(far)
            let stalled = Mutex<EventLoop.WatchToken?>(nil)
            let token = loop.watch(near, for: .readable) { _ in
                usleep(300_000)
                if let token = stalled.withLock({ $0 }) { loop.unwatch(token) }
            }
            stalled.withLock { $0 = token }
            let value = try await reply
            #expect(value.text == "there")
            close(near)
        }
    }

    @Test(arguments: [0, 1, 3, 4, 5, 200, 1_999])
    func aLineCutWithinAPipelineLosesOnlyTheTail(_ passing: Int) async throws {
        let server = try await TestRedis.shared()
        let key = server.keyPrefix() + "counter"
        let proxy = try CuttingProxy(to: server.socketPath)
        defer { proxy.stop() }
        try await withClient(proxy.address) { client in
            let states = client.states()
            // Each reply is `:N\r\n` with N of one digit or more.
            proxy.cut(afterReplyBytes: passing)
            let results = await client.pipeline((0..<1_000).map { _ in ["INCR", .text(key)] })
            let answered = results.prefix { $0.value != nil }
            var whole = 0
            var bytes = 0
            while bytes + ":\(whole + 1)\r\n".utf8.count <= passing {
                whole += 1
                bytes += ":\(whole)\r\n".utf8.count
            }
            #expect(answered.compactMap { $0.value?.int64 } == (1...1_000).prefix(whole).map { Int64($0) })
            #expect(results.dropFirst(whole).allSatisfy { $0.error?.code == .unavailable })
            #expect(await states.nextLoss()?.code == .unavailable)
            try await client.requireConnection()
            #expect(try await client.command(["ECHO", "after"]).text == "after")
        }
    }

    @Test func aReplicaIsLeftAfterAWrite() async throws {
        try await withServer { server in
            try await server.command(["REPLICAOF", "127.0.0.1", "1"])
            try await withClient(server.address) { client in
                let states = client.states()
                let before = try await client.connectionID()
                async let write = client.failure(["SET", "k", "v"])
                async let behind = client.failure(["PING"])
                #expect(await write?.code == .server("READONLY"))
                #expect(await behind?.code == .unavailable)
                #expect(await states.nextLoss()?.code == .server("READONLY"))
                try await server.command(["REPLICAOF", "NO", "ONE"])
                try await client.requireConnection()
                #expect(try await client.connectionID() != before)
                #expect(try await client.command(["SET", "k", "v"]) == .simple("OK"))
            }
        }
    }

    @Test func aBlockedCommandThatLosesItsPrimaryIsToldUnblocked() async throws {
        try await withServer { server in
            try await withClient(server.address) { client in
                let states = client.states()
                let id = try await client.connectionID()
                async let blocked = client.failure(["BLPOP", "empty", 0])
                try await server.untilBlocked(id)
                try await server.command(["REPLICAOF", "127.0.0.1", "1"])
                let error = await blocked
                #expect(error?.code == .server("UNBLOCKED"))
                #expect(error?.isRetryable == true)
                #expect(await states.nextLoss()?.code == .server("UNBLOCKED"))
            }
        }
    }

    @Test func aLoadingServerIsNotConnectedUntilItHasItsData() async throws {
        try await withServer(TestRedis.Options(appendOnly: true, arguments: ["--aof-use-rdb-preamble", "no"])) {
            server in
            _ = try await server.pipeline((0..<3_000).map { ["SET", .integer($0), "v"] })
            await server.stop(.terminated)
            try server.launch(["--key-load-delay", "400"])
            try await withClient(server.address, waits: false) { client in
                let states = client.states()
                try await client.requireConnection()
                #expect(try await client.command(["DBSIZE"]) == .integer(3_000))
                let losses = states.all.compactMap { state -> String? in
                    if case .disconnected(let error) = state { error.message } else { nil }
                }
                #expect(losses.contains { $0.contains("LOADING") })
            }
        }
    }

    /// Redis answers PING, too, with MISCONF then; operators still have to look.
    @Test func aServerThatCannotSaveIsConnectedToAndRefusesWritesAlone() async throws {
        try await withServer { server in
            try await server.command(["SET", "k", "v"])
            let obstacle = server.folder + "/dump.rdb"
            try FileManager.default.createDirectory(atPath: obstacle, withIntermediateDirectories: false)
            try await server.command(["CONFIG", "SET", "save", "86400 1"])
            try await server.command(["BGSAVE"])
            try await eventually("saving fails") {
                try await server.command(["INFO", "persistence"]).text?.contains("last_bgsave_status:err") == true
            }
            try await withClient(server.address) { client in
                let value = try await client.command(["GET", "k"])
                #expect(value.text == "v")
                let error = await client.failure(["SET", "k", "w"])
                #expect(error?.code == .server("MISCONF"))
                #expect(error?.isRetryable == true)
            }
        }
    }

    @Test(arguments: ["LOADING Redis is loading", "MASTERDOWN Link with MASTER is down", "READONLY no"])
    func anAnswerOfTheWrongServerEndsTheConnection(_ line: String) async throws {
        let fake = try FakeRedis { connection, command in
            command == ["PING"] ? .bytes("+PONG\r\n") : .bytes(connection == 0 ? "-\(line)\r\n" : "+OK\r\n")
        }
        defer { fake.stop() }
        try await withClient(fake.address) { client in
            let states = client.states()
            let error = await client.failure(["GET", "k"])
            #expect(error?.message == line)
            #expect(error?.isRetryable == true)
            #expect(await states.nextLoss() == error)
            try await client.requireConnection()
            #expect(try await client.command(["GET", "k"]) == .simple("OK"))
            #expect(fake.connections == 2)
        }
    }

    @Test func pausesBetweenAttemptsDoubleAndAreNeverShorterThanSet() async throws {
        let fake = try FakeRedis { _, _ in .hangUp }
        defer { fake.stop() }
        let configuration = RedisClientConfiguration(minBackoffMilliseconds: 30, maxBackoffMilliseconds: 120)
        try await withClient(fake.address, configuration, waits: false) { client in
            let states = client.states()
            for _ in 0..<6 { _ = await states.nextLoss() }
            let times = fake.acceptTimes
            let gaps = zip(times.dropFirst(), times).map { ($0 - $1) * 1_000 }
            for (gap, least) in zip(gaps, [30.0, 60, 120, 120, 120]) { #expect(gap >= least - 0.5) }
        }
    }

    @Test(arguments: [
        "what is this\r\n", ":12x\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "$-7\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n", "$9999999999999999999999\r\n",
    ])
    func whatIsNoReplyEndsTheConnection(_ bytes: String) async throws {
        let fake = try FakeRedis { connection, command in
            command == ["PING"] ? .bytes("+PONG\r\n") : .bytes(connection == 0 ? bytes : "+OK\r\n")
        }
        defer { fake.stop() }
        try await withClient(fake.address) { client in
            let states = client.states()
            #expect(await client.failure(["GET", "k"])?.code == .protocolViolation)
            _ = await states.nextLoss()
            try await client.requireConnection()
            #expect(try await client.command(["GET", "k"]) == .simple("OK"))
        }
    }

    @Test func aReplyThatNobodyAskedForEndsTheConnection() async throws {
        let fake = try FakeRedis { connection, command in
            .bytes(command == ["PING"] ? "+PONG\r\n" : connection == 0 ? "+OK\r\n+OK\r\n" : "+OK\r\n")
        }
        defer { fake.stop() }
        try await withClient(fake.address) { client in
            let states = client.states()
            _ = try await client.command(["GET", "k"])
            #expect(await states.nextLoss()?.code == .protocolViolation)
        }
    }

    @Test func aReplyBeyondTheLimitEndsTheConnection() async throws {
        let server = try await TestRedis.shared()
        let key = server.keyPrefix() + "large"
        try await withClient(server.address, RedisClientConfiguration(maxReplyBytes: 1 << 20)) { client in
            _ = try await client.command(["SETRANGE", .text(key), .integer(3 << 20), "x"])
            #expect(await client.failure(["GET", .text(key)])?.code == .protocolViolation)
            try await client.requireConnection()
            _ = try await client.command(["DEL", .text(key)])
        }
    }

    @Test func aServerWithTooManyClientsSaysSo() async throws {
        try await withServer(TestRedis.Options(arguments: ["--maxclients", "2"])) { server in
            try await withClient(server.address) { first in
                _ = try await first.command(["PING"])
                try await withClient(server.address) { second in
                    _ = try await second.command(["PING"])
                    try await withClient(server.address, waits: false) { third in
                        let states = third.states()
                        #expect(await states.nextLoss()?.message.contains("max number of clients") == true)
                    }
                }
            }
        }
    }
}

extension TestRedis {
    /// Waits until a connection blocks in a command.
    func untilBlocked(_ id: Int64) async throws {
        try await eventually("connection \(id) blocks") {
            try await command(["CLIENT", "LIST", "ID", .integer(id)]).text?.contains("flags=b") == true
        }
    }
}
