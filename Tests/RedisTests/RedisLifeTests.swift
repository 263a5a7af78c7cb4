import EventLoop
import Foundation
import Redis
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(1))) struct RedisLifeTests {
    @Test func closingFailsWhatIsPendingAndWhatComesLater() async throws {
        let server = try await TestRedis.shared()
        let key = server.keyPrefix() + "empty"
        try await withClient(server.address) { client in
            let id = try await client.connectionID()
            async let blocked = client.failure(["BLPOP", .text(key), 0])
            async let pipelined = client.pipeline([["PING"], ["PING"]])
            try await server.untilBlocked(id)
            await client.close()
            #expect(await blocked?.code == .closed)
            #expect(await pipelined.allSatisfy { $0.error?.code == .closed })
            #expect(await client.failure(["PING"])?.code == .closed)
            #expect(await client.waitUntilConnected(milliseconds: 60_000) == false)
            #expect(client.state == .closed)
            await client.close()
        }
    }

    @Test func waitingForAConnectionEndsWithItsTimeOrTheClient() async throws {
        let nowhere = RedisAddress(endpoint: .unix(path: "/tmp/no-such-redis"))
        try await withClient(nowhere, waits: false) { client in
            #expect(await client.waitUntilConnected(milliseconds: 20) == false)
            async let waiting = client.waitUntilConnected(milliseconds: 60_000)
            client.loop.execute { Task { await client.close() } }
            #expect(await waiting == false)
        }
    }

    @Test func aClosedClientIsFreed() async throws {
        let server = try await TestRedis.shared()
        let loop = EventLoop(name: "redis-test")
        defer { loop.stop() }
        weak var freed: RedisClient?
        do {
            let client = RedisClient(loop: loop, address: server.address)
            freed = client
            try await loop.run {
                try await client.requireConnection()
                let states = client.states()
                let stream = client.subscribe("c")
                #expect(await client.waitUntilSubscribed(milliseconds: patienceMilliseconds))
                withExtendedLifetime(stream) {}
                _ = try await client.command(["PING"])
                _ = await client.pipeline([["PING"]])
                #expect(states.all.isEmpty)
            }
            await client.close()
        }
        // What the loop still holds of it goes with the work queued so far.
        try await loop.run {}
        #expect(freed == nil)
    }

    @Test func aClientDroppedWithoutClosingLeavesNoConnection() async throws {
        try await withServer { server in
            let loop = EventLoop(name: "redis-test")
            defer { loop.stop() }
            do {
                let configuration = RedisClientConfiguration(clientName: "dropped")
                let client = RedisClient(loop: loop, address: server.address, configuration: configuration)
                try await loop.run {
                    try await client.requireConnection()
                    #expect(try await client.command(["CLIENT", "GETNAME"]).text == "dropped")
                }
            }
            try await eventually("the server sees the client go") {
                try await server.command(["CLIENT", "LIST"]).text?.contains("name=dropped") == false
            }
        }
    }

    @Test func loginAndDatabaseAreChosenAtEachConnection() async throws {
        try await withServer(TestRedis.Options(tcp: true, arguments: ["--requirepass", "secret"])) { server in
            var address = server.tcpAddress
            address.password = "secret"
            address.database = 3
            try await withClient(address) { client in
                let states = client.states()
                _ = try await client.command(["SET", "k", "v"])
                #expect(try await client.command(["CLIENT", "INFO"]).text?.contains("db=3") == true)
                _ = await client.failure(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"])
                #expect(await states.nextLoss() != nil)
                try await client.requireConnection()
                #expect(try await client.command(["GET", "k"]).text == "v")
            }
        }
    }

    @Test(arguments: [nil, "wrong"])
    func aRefusedLoginIsToldAndTriedAgain(_ password: String?) async throws {
        try await withServer(TestRedis.Options(arguments: ["--requirepass", "secret"])) { server in
            var address = server.address
            address.password = password
            try await withClient(address, waits: false) { client in
                let states = client.states()
                let first = await states.nextLoss()?.message ?? ""
                #expect(first.contains(password == nil ? "NOAUTH" : "WRONGPASS"))
                #expect(!first.contains("secret"))
                let refused = await client.failure(["PING"])
                #expect(refused?.code == .unavailable)
                _ = await states.nextLoss()
            }
        }
    }

    @Test func aNameIsResolvedOffTheLoop() async throws {
        try await withServer(TestRedis.Options(tcp: true)) { server in
            let address = RedisAddress(endpoint: .tcp(host: "localhost", port: UInt16(server.port)))
            try await withClient(address) { client in
                let reply = try await client.command(["PING"])
                #expect(reply == .simple("PONG"))
            }
        }
    }

    @Test func aPeerThatNeverTakesTheConnectionIsGivenUp() async throws {
        let full = try FullListener()
        defer { full.stop() }
        let address = RedisAddress(endpoint: .tcp(host: "127.0.0.1", port: full.port))
        try await withClient(address, RedisClientConfiguration(connectTimeoutMilliseconds: 50), waits: false) {
            client in
            let states = client.states()
            #expect(await states.nextLoss()?.message.contains("connecting takes too long") == true)
            #expect(await states.nextLoss()?.message.contains("connecting takes too long") == true)
        }
    }

    @Test func aNameThatDoesNotExistIsTold() async throws {
        let address = RedisAddress(endpoint: .tcp(host: "no-such-host.invalid", port: 6379))
        try await withClient(address, waits: false) { client in
            let states = client.states()
            let loss = await states.nextLoss()
            #expect(loss?.message.contains("no-such-host.invalid") == true)
        }
    }
}
