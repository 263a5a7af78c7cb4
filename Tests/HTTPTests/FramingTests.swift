import HTTP
import TestSupport
import Testing

/// What a request may look like: each probe goes over a real socket and must be refused, with its connection, or be
/// understood in the one way there is.
@Suite(.timeLimit(.minutes(3))) struct FramingTests {
    @Test(arguments: FramingProbes.refused)
    func isRefusedAndTheConnectionClosed(_ probe: FramingProbes.Refused) async throws {
        try await ServerFixture.run { fixture in
            let response = try await fixture.refusal(probe.text)
            #expect(response.status == probe.status, "\(response.text)")
            let counters = try await fixture.counters()
            #expect(counters.requests == 0)
            #expect(counters.badRequests == 1)
        }
    }

    @Test(arguments: FramingProbes.accepted)
    func isUnderstood(_ probe: FramingProbes.Accepted) async throws {
        try await ServerFixture.run { fixture in
            for bytewise in [false, true] {
                let client = try await fixture.connect()
                if bytewise {
                    for byte in probe.text.utf8 { try await client.send([byte]) }
                } else {
                    try await client.send(probe.text)
                }
                let response = try await client.readResponse()
                #expect(response.status == 200)
                #expect(response.first("x-path") == probe.path)
                #expect(response.text == probe.body)
                #expect(response.first("connection") == (probe.closes ? "close" : nil))
                if probe.closes {
                    let rest = try await client.readToEnd()
                    #expect(rest.isEmpty)
                }
            }
        }
    }

    @Test func aRequestSmuggledInABodyIsNeverServed() async throws {
        try await ServerFixture.run { fixture in
            let inner = "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"
            let text =
                "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: \(inner.utf8.count)\r\n"
                + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n\(inner)"
            let response = try await fixture.refusal(text)
            let counters = try await fixture.counters()
            #expect(response.status == 400)
            #expect(counters.requests == 0)
        }
    }
}
