import EventLoop
import HTTP
import TestSupport
import Testing

/// Keep-alive, pipelining, 100-continue, answers large and odd, and clients that leave.
@Suite(.timeLimit(.minutes(3))) struct ConnectionTests {
    static let get = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"

    @Test func aConnectionServesManyRequests() async throws {
        try await ServerFixture.run { fixture in
            let client = try await fixture.connect()
            for number in 0..<50 {
                let body = String(repeating: "b", count: number * 40)
                let response = try await client.exchange(
                    "POST /\(number) HTTP/1.1\r\nHost: a\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
                #expect(response.first("x-path") == "/\(number)")
                #expect(response.text == body)
                #expect(response.first("connection") == nil)
            }
            let counters = try await fixture.counters()
            #expect(counters.accepted == 1)
            #expect(counters.requests == 50)
            #expect(counters.connections == 1)
        }
    }

    @Test(arguments: HTTPMethod.allCases) func everyMethodReachesTheHandler(_ method: HTTPMethod) async throws {
        try await ServerFixture.run { fixture in
            let client = try await fixture.connect()
            let isHead = method == .head
            let response = try await client.exchange(
                "\(method.rawValue) /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", toHEAD: isHead)
            #expect(response.status == 200)
            #expect(response.first("x-method") == method.rawValue)
            // HEAD tells the length of what it leaves out.
            #expect(response.first("content-length") == "2")
            #expect(response.text == (isHead ? "" : "hi"))
            // Nothing was left on the connection that the next answer would be mistaken for.
            let next = try await client.exchange(Self.get)
            #expect(next.first("x-path") == "/x")
        }
    }

    @Test func handlersSeeHeadersQueryBodyAndPeer() async throws {
        try await ServerFixture.run(handler: { request in
            var lines = ["\(request.peer)", "\(request.peer.isIPv4)", "\(request.headers.count)"]
            for index in 0..<request.headers.count {
                let field = request.headers[index]
                lines.append("\(field.name)=\(field.value)")
            }
            lines.append(request.headers.all("x-a").joined(separator: "|"))
            lines.append(request.headers.first("X-A") ?? "nil")
            lines.append(request.headers.first("x-none") ?? "nil")
            lines.append("\(request.headers.contains("x-empty"))")
            return HTTPResponse(status: 200, body: Array(lines.joined(separator: "\n").utf8))
        }) { fixture in
            let client = try await fixture.connect()
            let response = try await client.exchange(
                "GET / HTTP/1.1\r\nHost: a\r\nX-A:\t one  two \t\r\nX-Empty:  \r\nx-a:2\r\n\r\n")
            #expect(
                response.text == """
                    127.0.0.1
                    true
                    4
                    host=a
                    x-a=one  two
                    x-empty=
                    x-a=2
                    one  two|2
                    nil
                    nil
                    true
                    """)
        }
    }

    @Test func pipelinedRequestsAreAnsweredInOrderEvenWhenTheFirstIsSlow() async throws {
        let door = Door()
        try await ServerFixture.run(handler: { request in
            if request.path == "/slow" { await door.pass() }
            return await ServerFixture.echo(request)
        }) { fixture in
            let client = try await fixture.connect()
            let rest = (0..<40).map { "GET /\($0) HTTP/1.1\r\nHost: a\r\n\r\n" }.joined()
            try await client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n" + rest)
            while await door.arrivals == 0 { await Task.yield() }
            await door.open()
            var paths: [String?] = []
            for _ in 0..<41 { paths.append(try await client.readResponse().first("x-path")) }
            #expect(paths == ["/slow"] + (0..<40).map { "/\($0)" })
        }
    }

    @Test func readingPausesWhenThePipelineIsFull() async throws {
        let door = Door()
        let one = "GET /slow HTTP/1.1\r\nHost: a\r\nX-Fill: \(String(repeating: "f", count: 4000))\r\n\r\n"
        try await ServerFixture.run(
            configure: { $0.maxPipelined = 4 },
            handler: { request in
                await door.pass()
                return await ServerFixture.echo(request)
            }
        ) { fixture in
            let client = try await fixture.connect(timeoutMilliseconds: 300)
            // More than the sockets' buffers hold, so that the sender comes to a stop if the server does.
            let flood = Array(String(repeating: one, count: 8000).utf8)
            await #expect(throws: RawHTTPClient.Problem.timedOut) { try await client.send(flood) }
            let counters = try await fixture.counters()
            #expect(counters.receivedBytes < 1_000_000)
            #expect(counters.requests == 1)
            await door.open()
        }
    }

    @Test func anErrorIsAnsweredAfterTheRequestsBeforeIt() async throws {
        let door = Door()
        try await ServerFixture.run(handler: { request in
            await door.pass()
            return await ServerFixture.echo(request)
        }) { fixture in
            let client = try await fixture.connect()
            try await client.send(Self.get + Self.get + "GET  / HTTP/1.1\r\n\r\n" + Self.get)
            while await door.arrivals == 0 { await Task.yield() }
            await door.open()
            let statuses = [
                try await client.readResponse().status, try await client.readResponse().status,
                try await client.readResponse().status,
            ]
            #expect(statuses == [200, 200, 400])
            let rest = try await client.readToEnd()
            #expect(rest.isEmpty)
        }
    }

    @Test func nothingIsServedAfterARequestThatCloses() async throws {
        try await ServerFixture.run { fixture in
            let client = try await fixture.connect()
            try await client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + Self.get)
            let response = try await client.readResponse()
            #expect(response.first("connection") == "close")
            let rest = try await client.readToEnd()
            #expect(rest.isEmpty)
            let counters = try await fixture.counters()
            #expect(counters.requests == 1)
        }
    }

    @Test func continueIsSentWhenTheBodyIsAwaitedAndOnlyThen() async throws {
        try await ServerFixture.run { fixture in
            let head = "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n"
            let client = try await fixture.connect()
            let interim = try await client.exchange(head)
            #expect(interim.status == 100)
            let response = try await client.exchange("hi")
            #expect(response.status == 200)
            #expect(response.text == "hi")
            // The body came along: nothing to wait for.
            let whole = try await client.exchange(head + "ho")
            #expect(whole.status == 200)
            #expect(whole.text == "ho")
            let chunked = try await client.exchange(
                "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
            #expect(chunked.status == 100)
            let answer = try await client.exchange("1\r\na\r\n0\r\n\r\n")
            #expect(answer.text == "a")
        }
    }

    @Test func aBodyOverTheLimitIsRefusedInsteadOfAwaited() async throws {
        try await ServerFixture.run(configure: { $0.bodyLimit = { $0.path == "/big" ? 100 : 10 } }) { fixture in
            func post(_ path: String) -> String {
                "POST \(path) HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 50\r\n\r\n"
            }
            let refused = try await fixture.refusal(post("/small"))
            #expect(refused.status == 413)
            let client = try await fixture.connect()
            let interim = try await client.exchange(post("/big"))
            #expect(interim.status == 100)
        }
    }

    @Test func anExpectationOfHTTP10IsIgnored() async throws {
        try await ServerFixture.run { fixture in
            let client = try await fixture.connect()
            try await client.send("POST /x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            try await fixture.wait { $0.receivedBytes > 0 }
            let response = try await client.exchange("hi")
            #expect(response.status == 200)
        }
    }

    @Test func continueWaitsForTheAnswersBeforeIt() async throws {
        let door = Door()
        try await ServerFixture.run(handler: { request in
            if request.path == "/slow" { await door.pass() }
            return await ServerFixture.echo(request)
        }) { fixture in
            let client = try await fixture.connect()
            try await client.send(
                "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"
                    + "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            while await door.arrivals == 0 { await Task.yield() }
            await door.open()
            let first = try await client.readResponse()
            #expect(first.first("x-path") == "/slow")
            let interim = try await client.readResponse()
            #expect(interim.status == 100)
            let last = try await client.exchange("hi")
            #expect(last.text == "hi")
        }
    }

    @Test func aSlowReaderGetsALargeAnswerWhole() async throws {
        var generator = SystemRandomNumberGenerator()
        let large = (0..<(1 << 19)).flatMap { _ in withUnsafeBytes(of: generator.next()) { Array($0) } }
        try await ServerFixture.run(handler: { _ in HTTPResponse(status: 200, body: large) }) { fixture in
            let client = try await fixture.connect(receiveBufferBytes: 4096)
            try await client.send(Self.get + Self.get)
            for _ in 0..<2 {
                let response = try await client.readResponse()
                #expect(response.body == large)
            }
        }
    }

    @Test func unsentAnswersPauseTheHandling() async throws {
        let count = 32
        try await ServerFixture.run(
            configure: { $0.maxBufferedBytes = 64 * 1024 },
            handler: { _ in HTTPResponse(status: 200, body: [UInt8](repeating: 7, count: 1 << 19)) }
        ) { fixture in
            let client = try await fixture.connect(receiveBufferBytes: 4096)
            try await client.send(String(repeating: Self.get, count: count))
            try await fixture.wait { $0.requests >= 1 }
            // Handlers here finish at once: unpaused, all of them would be through in a few turns of the loop. What the
            // kernel's own buffers take is a handful.
            for _ in 0..<200 { _ = try await fixture.counters() }
            let handled = try await fixture.counters().requests
            #expect(handled < 16)
            for _ in 0..<count {
                let response = try await client.readResponse()
                #expect(response.body.count == 1 << 19)
            }
        }
    }

    @Test func aHalfClosedClientGetsItsAnswers() async throws {
        let door = Door()
        try await ServerFixture.run(handler: { request in
            await door.pass()
            return await ServerFixture.echo(request)
        }) { fixture in
            let client = try await fixture.connect()
            try await client.send(Self.get + Self.get)
            client.endSending()
            while await door.arrivals == 0 { await Task.yield() }
            // A turn of the loop: the end of the stream is seen before the answers are given.
            await fixture.loop.sleep(milliseconds: 0)
            await door.open()
            let first = try await client.readResponse()
            let second = try await client.readResponse()
            #expect(first.status == 200)
            #expect(second.first("connection") == "close")
            let rest = try await client.readToEnd()
            #expect(rest.isEmpty)
            try await fixture.wait { $0.connections == 0 }
        }
    }

    @Test(arguments: ["GE", "GET / HTTP/1.1\r\nHo", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhi"])
    func anEndInsideARequestIsAnsweredAndClosed(_ text: String) async throws {
        try await ServerFixture.run { fixture in
            let client = try await fixture.connect()
            try await client.send(text)
            client.endSending()
            let response = try await client.readResponse()
            #expect(response.status == 400)
            try await fixture.wait { $0.connections == 0 }
        }
    }

    @Test func anEndBetweenRequestsIsSilent() async throws {
        try await ServerFixture.run { fixture in
            let client = try await fixture.connect()
            _ = try await client.exchange(Self.get)
            try await client.send("\r\n")
            client.endSending()
            let rest = try await client.readToEnd()
            #expect(rest.isEmpty)
            try await fixture.wait { $0.connections == 0 }
            let counters = try await fixture.counters()
            #expect(counters.badRequests == 0)
        }
    }

    @Test func aResetDuringHandlingIsSurvived() async throws {
        let door = Door()
        try await ServerFixture.run(handler: { request in
            await door.pass()
            return await ServerFixture.echo(request)
        }) { fixture in
            for _ in 0..<20 {
                let client = try await fixture.connect()
                try await client.send(Self.get + Self.get + "POST")
                try await fixture.wait { $0.connections == 1 && $0.receivedBytes > 0 }
                client.reset()
                try await fixture.wait { $0.connections == 0 }
            }
            await door.open()
            let client = try await fixture.connect()
            let response = try await client.exchange(Self.get)
            #expect(response.status == 200)
        }
    }

    @Test func aHandlersTextCannotEndTheHeader() async throws {
        let bad: [(String, String)] = [
            ("X-A", "b\r\nSet-Cookie: c"), ("X-A", "b\nc"), ("X-A", "b\0"), ("X-A\r\nX", "b"), ("X A", "b"), ("", "b"),
        ]
        for header in bad {
            try await ServerFixture.run(handler: { _ in
                HTTPResponse(status: 200, headers: [("X-First", "1"), header], text: "hello")
            }) { fixture in
                let response = try await fixture.refusal(Self.get)
                #expect(response.status == 500)
                #expect(response.first("x-first") == nil)
                #expect(response.first("set-cookie") == nil)
            }
        }
    }

    @Test(arguments: [0, 100, 199, 600, -1]) func aStatusThatIsNoneIsAnswered500(_ status: Int) async throws {
        try await ServerFixture.run(handler: { _ in HTTPResponse(status: status) }) { fixture in
            let response = try await fixture.refusal(Self.get)
            #expect(response.status == 500)
        }
    }

    @Test func framingFieldsAreTheServersOwn() async throws {
        try await ServerFixture.run(handler: { request in
            let headers = [
                ("Content-Length", "5"), ("transfer-encoding", "chunked"), ("Date", "now"), ("Keep-Alive", "1"),
                ("Connection", request.path == "/x" ? "upgrade" : "Close"),
            ]
            return HTTPResponse(status: 200, headers: headers, body: Array("hello, you".utf8))
        }) { fixture in
            let client = try await fixture.connect()
            let response = try await client.exchange(Self.get)
            #expect(response.headers.map(\.name).sorted() == ["content-length", "date"])
            #expect(response.first("content-length") == "10")
            let last = try await client.exchange("GET /last HTTP/1.1\r\nHost: a\r\n\r\n" + Self.get)
            #expect(last.headers.map(\.name).sorted() == ["connection", "content-length", "date"])
            let rest = try await client.readToEnd()
            #expect(rest.isEmpty)
        }
    }

    @Test(arguments: [204, 304]) func answersWithoutContentHaveNoLength(_ status: Int) async throws {
        try await ServerFixture.run(handler: { _ in HTTPResponse(status: status, body: [1, 2, 3]) }) { fixture in
            let client = try await fixture.connect()
            for _ in 0..<2 {
                let response = try await client.exchange(Self.get)
                #expect(response.status == status)
                #expect(response.first("content-length") == nil)
            }
        }
    }

    @Test func theDateIsTheClocks() async throws {
        let time = ManualTime()
        try await ServerFixture.run(time: time) { fixture in
            let client = try await fixture.connect()
            let first = try await client.exchange(Self.get)
            #expect(first.first("date") == "Mon, 30 Nov 2026 00:00:00 GMT")
            time.advance(milliseconds: 1999)
            let second = try await client.exchange(Self.get)
            #expect(second.first("date") == "Mon, 30 Nov 2026 00:00:01 GMT")
        }
    }

    @Test func theFailureHookWritesTheAnswersBodyAndHeaders() async throws {
        try await ServerFixture.run(configure: { configuration in
            configuration.failure = { failure, head in
                HTTPResponse(
                    status: failure.status, headers: [("Access-Control-Allow-Origin", "*")],
                    body: Array("{\"at\":\"\(head?.path ?? "")\"}".utf8))
            }
        }) { fixture in
            let malformed = try await fixture.refusal("GET / HTTP/1.1\r\n\r\n")
            #expect(malformed.text == #"{"at":""}"#)
            let large = try await fixture.refusal("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n")
            #expect(large.status == 413)
            #expect(large.text == #"{"at":"/a"}"#)
            #expect(large.first("access-control-allow-origin") == "*")
        }
    }

    @Test func aFailureHookThatBreaksTheHeaderIsReplaced() async throws {
        try await ServerFixture.run(configure: { configuration in
            configuration.failure = { _, _ in HTTPResponse(status: 400, headers: [("X", "a\r\nb")]) }
        }) { fixture in
            let response = try await fixture.refusal("nonsense\r\n\r\n")
            #expect(response.status == 400)
            #expect(response.first("x") == nil)
        }
    }
}
