import EventLoop
import HTTP
import TestSupport
import Testing

/// Deadlines under a clock that the test moves: the server has seen the bytes before the time passes.
@Suite(.timeLimit(.minutes(3))) struct TimeoutTests {
    static func configure(_ configuration: inout HTTPServerConfiguration) {
        configuration.headerTimeoutMilliseconds = 10_000
        configuration.bodyTimeoutMilliseconds = 20_000
        configuration.idleTimeoutMilliseconds = 30_000
        configuration.writeTimeoutMilliseconds = 40_000
        configuration.lingerTimeoutMilliseconds = 5_000
    }

    /// Moves the clock, and lets the loop see it.
    static func pass(_ milliseconds: Int64, _ time: ManualTime, _ fixture: ServerFixture) async throws {
        // A timer that is due at once runs in the next turn. An answer reaches the client in the middle of a turn, which
        // sets the next deadline before it ends.
        await fixture.loop.sleep(milliseconds: 0)
        time.advance(milliseconds: milliseconds)
        await fixture.loop.sleep(milliseconds: 0)
    }

    @Test func aSilentConnectionIsClosedWithoutAWord() async throws {
        let time = ManualTime()
        try await ServerFixture.run(time: time, configure: Self.configure) { fixture in
            let client = try await fixture.connect()
            try await fixture.wait { $0.connections == 1 }
            try await Self.pass(9_999, time, fixture)
            let before = try await fixture.counters()
            #expect(before.connections == 1)
            try await Self.pass(1, time, fixture)
            let after = try await fixture.counters()
            #expect(after.connections == 0)
            #expect(after.timeouts == 1)
            let rest = try await client.readToEnd()
            #expect(rest.isEmpty)
        }
    }

    @Test func aDrippingHeaderIsAnswered408AtItsDeadline() async throws {
        let time = ManualTime()
        try await ServerFixture.run(time: time, configure: Self.configure) { fixture in
            let client = try await fixture.connect()
            try await fixture.wait { $0.connections == 1 }
            // A byte a second, as slowloris does: none of them buys time.
            for (number, byte) in "GET /slow ".utf8.enumerated() {
                try await client.send([byte])
                try await fixture.wait { $0.receivedBytes == number + 1 }
                let counters = try await fixture.counters()
                #expect(counters.timeouts == 0)
                try await Self.pass(1_000, time, fixture)
            }
            let response = try await client.readResponse()
            #expect(response.status == 408)
            let counters = try await fixture.counters()
            #expect(counters.timeouts == 1)
            let rest = try await client.readToEnd()
            #expect(rest.isEmpty)
        }
    }

    @Test func theHeaderOfALaterRequestHasItsOwnDeadline() async throws {
        let time = ManualTime()
        try await ServerFixture.run(time: time, configure: Self.configure) { fixture in
            let client = try await fixture.connect()
            _ = try await client.exchange(ConnectionTests.get)
            try await Self.pass(29_000, time, fixture)
            let received = try await fixture.counters().receivedBytes
            try await client.send("GET /x HTTP/1.1\r\n")
            try await fixture.wait { $0.receivedBytes > received }
            try await Self.pass(9_999, time, fixture)
            let counters = try await fixture.counters()
            #expect(counters.timeouts == 0)
            try await Self.pass(1, time, fixture)
            let response = try await client.readResponse()
            #expect(response.status == 408)
        }
    }

    @Test func aDrippingBodyIsAnswered408AtItsDeadline() async throws {
        let time = ManualTime()
        try await ServerFixture.run(time: time, configure: Self.configure) { fixture in
            let client = try await fixture.connect()
            let head = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 90\r\n\r\n"
            try await client.send(head)
            for number in 0..<20 {
                try await fixture.wait { $0.receivedBytes == head.utf8.count + number }
                let counters = try await fixture.counters()
                #expect(counters.timeouts == 0)
                try await Self.pass(999, time, fixture)
                try await client.send("b")
            }
            try await fixture.wait { $0.receivedBytes == head.utf8.count + 20 }
            try await Self.pass(20, time, fixture)
            let response = try await client.readResponse()
            #expect(response.status == 408)
        }
    }

    @Test func anIdleConnectionIsClosedAndEachRequestStartsItsTimeAnew() async throws {
        let time = ManualTime()
        try await ServerFixture.run(time: time, configure: Self.configure) { fixture in
            let client = try await fixture.connect()
            for _ in 0..<3 {
                let response = try await client.exchange(ConnectionTests.get)
                #expect(response.status == 200)
                try await Self.pass(29_999, time, fixture)
            }
            let before = try await fixture.counters()
            #expect(before.connections == 1)
            try await Self.pass(1, time, fixture)
            let rest = try await client.readToEnd()
            #expect(rest.isEmpty)
            let after = try await fixture.counters()
            #expect(after.connections == 0)
            #expect(after.timeouts == 1)
        }
    }

    @Test func aHandlerMayTakeAsLongAsItWants() async throws {
        let time = ManualTime()
        let door = Door()
        try await ServerFixture.run(
            time: time, configure: Self.configure,
            handler: { request in
                await door.pass()
                return await ServerFixture.echo(request)
            }
        ) { fixture in
            let client = try await fixture.connect()
            try await client.send(ConnectionTests.get)
            while await door.arrivals == 0 { await Task.yield() }
            try await Self.pass(1_000_000, time, fixture)
            await door.open()
            let response = try await client.readResponse()
            #expect(response.status == 200)
        }
    }

    @Test func aClientThatReadsNothingIsCutOff() async throws {
        let time = ManualTime()
        try await ServerFixture.run(
            time: time, configure: Self.configure,
            handler: { _ in HTTPResponse(status: 200, body: [UInt8](repeating: 1, count: 16 << 20)) }
        ) { fixture in
            let client = try await fixture.connect(receiveBufferBytes: 4096)
            try await client.send(ConnectionTests.get)
            try await fixture.wait { $0.requests == 1 }
            // The deadline moves only while the kernel takes bytes, which it soon stops doing.
            for _ in 0..<2000 where try await fixture.counters().connections == 1 {
                try await Self.pass(39_999, time, fixture)
            }
            let counters = try await fixture.counters()
            #expect(counters.connections == 0)
            #expect(counters.timeouts == 1)
        }
    }

    @Test func anAnswerToAClientThatSendsOnIsNotLostToAReset() async throws {
        try await ServerFixture.run { fixture in
            for _ in 0..<20 {
                let client = try await fixture.connect()
                let body = String(repeating: "b", count: 300_000)
                try await client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n\(body)")
                let response = try await client.readResponse()
                #expect(response.status == 413)
            }
        }
    }

    @Test func lingeringHasAnEnd() async throws {
        let time = ManualTime()
        try await ServerFixture.run(time: time, configure: Self.configure) { fixture in
            let client = try await fixture.connect()
            let response = try await client.exchange("nonsense\r\n\r\n")
            #expect(response.status == 400)
            // The client neither closes nor stops.
            try await client.send("more")
            try await fixture.wait { $0.receivedBytes >= 16 }
            try await Self.pass(4_999, time, fixture)
            let before = try await fixture.counters()
            #expect(before.connections == 1)
            try await Self.pass(1, time, fixture)
            let after = try await fixture.counters()
            #expect(after.connections == 0)
            #expect(after.timeouts == 0)
        }
    }
}
