import EventLoop
import HTTPClient
import TestSupport
import Testing

@Suite struct HTTPCallerTests {
    private func configuration(
        deadlineMilliseconds: Int64 = 20_000, mostConnections: Int = 32
    ) -> HTTPCaller.Configuration {
        var configuration = HTTPCaller.Configuration()
        configuration.deadlineMilliseconds = deadlineMilliseconds
        configuration.connectDeadlineMilliseconds = deadlineMilliseconds
        configuration.mostConnections = mostConnections
        return configuration
    }

    private func withServer(
        _ configuration: HTTPCaller.Configuration? = nil,
        _ body: @Sendable (FakeAdServices, HTTPCaller) async throws -> Void
    ) async throws {
        let server = try FakeAdServices()
        let caller = HTTPCaller(configuration ?? self.configuration())
        try await body(server, caller)
        caller.close()
        await server.stop()
    }

    private func status(_ result: HTTPCallResult) -> Int? {
        if case .answered(let answer) = result { answer.status } else { nil }
    }

    private func code(_ result: HTTPCallResult) -> HTTPCallFailure.Code? {
        if case .failed(let failure) = result { failure.code } else { nil }
    }

    @Test func aTokenIsPostedAsPlainTextAndTheAnswerComesWhole() async throws {
        try await withServer { server, caller in
            server.script("a+b/c==", [.answer(status: 200, body: "{}\n", headers: ["Retry-After: 7"])])
            let result = await caller.post(Array("a+b/c==".utf8), to: server.url)
            guard case .answered(let answer) = result else {
                Issue.record("\(result)")
                return
            }
            #expect(answer.status == 200 && answer.body == Array("{}\n".utf8))
            #expect(answer.retryAfterSeconds == 7 && answer.version == 11 && answer.connected)
            #expect(server.asks("a+b/c==").count == 1 && server.oddities == [])
        }
    }

    @Test func connectionsAreUsedAgain() async throws {
        try await withServer { server, caller in
            for index in 0..<50 {
                #expect(status(await caller.post(Array("t\(index)".utf8), to: server.url)) == 200)
            }
            #expect(server.connectionsTaken == 1)
        }
    }

    @Test func noMoreConnectionsAreOpenedThanAllowed() async throws {
        try await withServer(configuration(mostConnections: 4)) { server, caller in
            await withTaskGroup(of: Int?.self) { group in
                for index in 0..<200 {
                    group.addTask { status(await caller.post(Array("t\(index)".utf8), to: server.url)) }
                }
                for await status in group { #expect(status == 200) }
            }
            #expect((1...4).contains(server.connectionsTaken))
        }
    }

    @Test func aSlowAnswerHoldsNoOtherCallUp() async throws {
        try await withServer(configuration(deadlineMilliseconds: 600_000)) { server, caller in
            server.script("slow", [.never])
            async let slow = caller.post(Array("slow".utf8), to: server.url)
            await server.waitForAsks(1)
            #expect(status(await caller.post(Array("fast".utf8), to: server.url)) == 200)
            caller.close()
            #expect(code(await slow) == .closed)
        }
    }

    @Test func aSlowServerCostsTheDeadlineAndNoMore() async throws {
        try await withServer(configuration(deadlineMilliseconds: 300)) { server, caller in
            server.script("slow", [.never])
            let began = SystemTime().monotonicNanoseconds
            #expect(code(await caller.post(Array("slow".utf8), to: server.url)) == .late)
            // libcurl counts whole milliseconds.
            #expect(SystemTime().monotonicNanoseconds - began >= 295_000_000)
            // What comes after the deadline is nobody's answer.
            server.script("late", [.later(milliseconds: 450, .organic), .answer(status: 404, body: "")])
            #expect(code(await caller.post(Array("late".utf8), to: server.url)) == .late)
            #expect(status(await caller.post(Array("late".utf8), to: server.url)) == 404)
        }
    }

    @Test func resetsAndHalfAnswersAreNoAnswers() async throws {
        try await withServer { server, caller in
            server.script("reset", [.reset])
            server.script("half", [.brokenOff])
            #expect(code(await caller.post(Array("reset".utf8), to: server.url)) == .unreachable)
            #expect(code(await caller.post(Array("half".utf8), to: server.url)) == .unreachable)
            #expect(status(await caller.post(Array("fine".utf8), to: server.url)) == 200)
        }
        let port = try LoopbackPort.free()
        let caller = HTTPCaller(configuration())
        #expect(code(await caller.post([], to: "http://127.0.0.1:\(port)/")) == .unreachable)
        caller.close()
    }

    @Test func anEndlessAnswerIsCutOff() async throws {
        try await withServer { server, caller in
            let fits = String(repeating: "x", count: 65_536)
            server.script("fits", [.answer(status: 200, body: fits)])
            server.script("long", [.answer(status: 200, body: fits + "x")])
            #expect(status(await caller.post(Array("fits".utf8), to: server.url)) == 200)
            #expect(code(await caller.post(Array("long".utf8), to: server.url)) == .tooLong(status: 200))
            #expect(status(await caller.post(Array("fine".utf8), to: server.url)) == 200)
        }
    }

    @Test func redirectsAreNotFollowed() async throws {
        try await withServer { server, caller in
            server.script("moved", [.answer(status: 302, body: "", headers: ["Location: \(server.url)"]), .organic])
            #expect(status(await caller.post(Array("moved".utf8), to: server.url)) == 302)
            #expect(server.asks("moved").count == 1)
        }
    }

    @Test(arguments: ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/", "nonsense", ""])
    func otherSchemesAreRefused(url: String) async {
        let caller = HTTPCaller(configuration())
        #expect(code(await caller.post(Array("x".utf8), to: url)) == .unreachable)
        caller.close()
    }

    @Test func closingEndsWhatIsUnderWay() async throws {
        let server = try FakeAdServices()
        server.script("never", [.never])
        let caller = HTTPCaller(configuration())
        let call = Task { await caller.post(Array("never".utf8), to: server.url) }
        await server.waitForAsks(1)
        #expect(caller.isOpen)
        caller.close()
        #expect(!caller.isOpen)
        #expect(code(await call.value) == .closed)
        #expect(code(await caller.post(Array("more".utf8), to: server.url)) == .closed)
        await server.stop()
    }

    @Test func certificatesAreCheckedAndHTTP2IsTaken() async throws {
        let server = try await SecureServer.start()
        var trusting = configuration()
        trusting.roots = server.certificate
        let caller = HTTPCaller(trusting)
        await withTaskGroup(of: HTTPCallResult.self) { group in
            for _ in 0..<20 { group.addTask { await caller.post(Array("t".utf8), to: server.url) } }
            var connections = 0
            for await result in group {
                guard case .answered(let answer) = result else {
                    Issue.record("\(result)")
                    continue
                }
                #expect(answer.version == 20 && answer.body == Array(#"{"attribution":false}"#.utf8))
                connections += answer.connected ? 1 : 0
            }
            #expect(connections == 1, "calls that start together share one connection")
        }
        caller.close()
        // The system's roots know nothing of it; and the right root doesn't help under another name.
        let strict = HTTPCaller(configuration())
        #expect(code(await strict.post(Array("t".utf8), to: server.url)) == .unreachable)
        strict.close()
        let other = HTTPCaller(trusting)
        let byAnotherName = server.url.replacing("localhost", with: "127.0.0.1")
        #expect(code(await other.post(Array("t".utf8), to: byAnotherName)) == .unreachable)
        other.close()
        await server.stop()
    }
}
