import EventLoop
import HTTP
import TestSupport
import Testing

/// Connections above the limits, descriptors that run out, and the end of a server.
@Suite(.timeLimit(.minutes(3))) struct LimitTests {
    @Test func connectionsAboveTheWholeLimitAreAnswered503() async throws {
        try await ServerFixture.run(configure: { $0.maxConnections = 2 }) { fixture in
            let first = try await fixture.connect()
            let second = try await fixture.connect()
            try await fixture.wait { $0.connections == 2 }
            let third = try await fixture.connect()
            let refusal = try await third.exchange(ConnectionTests.get)
            #expect(refusal.status == 503)
            #expect(refusal.first("retry-after") == "1")
            #expect(refusal.first("connection") == "close")
            let rest = try await third.readToEnd()
            #expect(rest.isEmpty)
            let counters = try await fixture.counters()
            #expect(counters.refused == 1)
            #expect(counters.requests == 0)
            // Those that were there are served, and a place that is given back is taken.
            let response = try await first.exchange(ConnectionTests.get)
            #expect(response.status == 200)
            second.endSending()
            try await fixture.wait { $0.connections <= 2 }
            _ = try await second.readToEnd()
            while true {
                let next = try await fixture.connect()
                if try await next.exchange(ConnectionTests.get).status == 200 { break }
            }
        }
    }

    @Test func connectionsOfOneAddressAreCountedApart() async throws {
        try await ServerFixture.run(configure: { $0.maxConnectionsPerAddress = 2 }) { fixture in
            var clients: [RawHTTPClient] = []
            for _ in 0..<2 {
                clients.append(try await fixture.connect())
                let response = try await clients[clients.count - 1].exchange(ConnectionTests.get)
                #expect(response.status == 200)
            }
            let third = try await fixture.connect()
            let refusal = try await third.readResponse()
            #expect(refusal.status == 503)
            clients[0].endSending()
            _ = try await clients[0].readToEnd()
            try await fixture.wait { $0.connections <= 2 }
            let fourth = try await fixture.connect()
            let response = try await fourth.exchange(ConnectionTests.get)
            #expect(response.status == 200)
        }
    }

    @Test func aFloodAboveTheLimitLeavesNothingBehind() async throws {
        try await ServerFixture.run(configure: { $0.maxConnections = 1 }) { fixture in
            let first = try await fixture.connect()
            _ = try await first.exchange(ConnectionTests.get)
            for round in 1...3 {
                var flood: [RawHTTPClient] = []
                for _ in 0..<200 { flood.append(try await fixture.connect()) }
                // One that lingers, and 128 at most: the rest was closed at once.
                try await fixture.wait { $0.refused == 200 * round && $0.connections <= 129 }
                flood.removeAll()
                try await fixture.wait { $0.connections == 1 }
            }
            let counters = try await fixture.counters()
            #expect(counters.refused == 600)
            let response = try await first.exchange(ConnectionTests.get)
            #expect(response.status == 200)
        }
    }

    /// In a process of its own, whose descriptors it may use up.
    @Test func runningOutOfDescriptorsPausesAcceptingInsteadOfSpinning() async throws {
        await #expect(processExitsWith: .success) {
            try await ServerFixture.run { fixture in
                // Whatever the runtime opens lazily is open after this.
                let first = try await fixture.connect()
                let response = try await first.exchange(ConnectionTests.get)
                #expect(response.status == 200)
                var filler = DescriptorFiller(limit: 256)
                filler.fill()
                filler.free(1)
                // The one descriptor left is the client's: the server has none to accept with.
                let second = try await fixture.connect()
                let clock = ContinuousClock()
                try await fixture.wait { $0.acceptPauses >= 1 }
                let start = clock.now
                try await fixture.wait { $0.acceptPauses >= 4 }
                #expect(clock.now - start >= .milliseconds(250))
                // Open connections go on meanwhile, and the waiting one is served once there is room.
                let meanwhile = try await first.exchange(ConnectionTests.get)
                #expect(meanwhile.status == 200)
                filler.free(8)
                let late = try await second.exchange(ConnectionTests.get)
                #expect(late.status == 200)
                filler.free(.max)
            }
        }
    }

    @Test func shutdownFinishesWhatWasAcceptedAndRefusesTheRest() async throws {
        let door = Door()
        let loop = EventLoop(name: "shutdown")
        // A busy machine may stop the client for longer than a header may take.
        var configuration = HTTPServerConfiguration()
        configuration.headerTimeoutMilliseconds = 600_000
        configuration.bodyTimeoutMilliseconds = 600_000
        let server = HTTPServer(loop: loop, configuration: configuration) { request in
            await door.pass()
            return await ServerFixture.echo(request)
        }
        let port = try server.listen(host: "127.0.0.1", port: 0)
        let busy = try await RawHTTPClient.connect(port: port)
        let halfway = try await RawHTTPClient.connect(port: port)
        let idle = try await RawHTTPClient.connect(port: port)
        try await busy.send(ConnectionTests.get + ConnectionTests.get)
        let head = "POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
        try await halfway.send(head + "ab")
        await door.arrived()
        let expected = Int64(head.utf8.count + 2 + 2 * ConnectionTests.get.utf8.count)
        while try await loop.run({ server.counters.receivedBytes }) < expected {}
        async let ended: Void = server.shutdown(graceMilliseconds: 60_000)
        // The idle one is closed first, which tells that the shutdown has begun.
        let silence = try await idle.readToEnd()
        #expect(silence.isEmpty)
        await #expect(throws: RawHTTPClient.Problem.self) { _ = try await RawHTTPClient.connect(port: port) }
        try await halfway.send("cd")
        await door.open()
        let first = try await busy.readResponse()
        #expect(first.status == 200)
        #expect(first.first("connection") == nil)
        let second = try await busy.readResponse()
        #expect(second.first("connection") == "close")
        let half = try await halfway.readResponse()
        #expect(half.text == "abcd")
        #expect(half.first("connection") == "close")
        _ = try await busy.readToEnd()
        _ = try await halfway.readToEnd()
        busy.endSending()
        halfway.endSending()
        await ended
        let connections = try await loop.run { server.counters.connections }
        #expect(connections == 0)
        loop.stop()
    }

    @Test func shutdownClosesEverythingAtItsDeadline() async throws {
        let time = ManualTime()
        let door = Door()
        let loop = EventLoop(name: "shutdown", time: time)
        let server = HTTPServer(loop: loop) { request in
            await door.pass()
            return await ServerFixture.echo(request)
        }
        let port = try server.listen(host: "127.0.0.1", port: 0)
        let client = try await RawHTTPClient.connect(port: port)
        try await client.send(ConnectionTests.get)
        await door.arrived()
        async let ended: Void = server.shutdown(graceMilliseconds: 5_000)
        async let again: Void = server.shutdown(graceMilliseconds: 5_000)
        await #expect(throws: RawHTTPClient.Problem.self) {
            while true { _ = try await RawHTTPClient.connect(port: port) }
        }
        time.advance(milliseconds: 5_000)
        await ended
        await again
        let rest = try await client.readToEnd()
        #expect(rest.isEmpty)
        await door.open()
        loop.stop()
    }

    @Test func aServerIsFreedAfterItsShutdown() async throws {
        weak var gone: HTTPServer?
        let loop = EventLoop(name: "freed", time: ManualTime())
        do {
            let server = HTTPServer(loop: loop, handler: ServerFixture.echo)
            gone = server
            let port = try server.listen(host: "127.0.0.1", port: 0)
            let client = try await RawHTTPClient.connect(port: port)
            _ = try await client.exchange(ConnectionTests.get)
            await server.shutdown(graceMilliseconds: 1_000)
        }
        loop.stop()
        #expect(gone == nil)
    }

    @Test func listeningSaysWhyItFails() async throws {
        try await ServerFixture.run { fixture in
            func code(_ host: String, _ port: Int) -> HTTPServerError.Code? {
                do {
                    _ = try fixture.server.listen(host: host, port: port)
                    return nil
                } catch { return error.code }
            }
            #expect(code("127.0.0.1", fixture.port) == .addressInUse)
            #expect(code("localhost", 0) == .addressInvalid)
            #expect(code("192.0.2.1", 0) == .addressInvalid)
            #expect(code("127.0.0.1", 70_000) == .addressInvalid)
            #expect(code("127.0.0.1", -1) == .addressInvalid)
        }
    }

    @Test func twoServersShareAPort() async throws {
        let loops = ["one", "two"].map { EventLoop(name: $0, time: ManualTime()) }
        let servers = loops.map { HTTPServer(loop: $0, handler: ServerFixture.echo) }
        let port = try servers[0].listen(host: "127.0.0.1", port: 0, reusePort: true)
        let same = try servers[1].listen(host: "127.0.0.1", port: port, reusePort: true)
        #expect(same == port)
        for _ in 0..<20 {
            let client = try await RawHTTPClient.connect(port: port)
            let response = try await client.exchange(ConnectionTests.get)
            #expect(response.status == 200)
        }
        for server in servers { await server.shutdown(graceMilliseconds: 1_000) }
        for loop in loops { loop.stop() }
    }
}
