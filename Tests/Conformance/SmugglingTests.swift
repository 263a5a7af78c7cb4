import EventLoop
import HTTP
import TestSupport
import Testing

/// The server beside nginx, which is what stands in front of it: whatever nginx refuses is refused here, and what is
/// served here is the same number of requests there. So no message means one thing to one and another to the other.
@Suite(.timeLimit(.minutes(3))) struct SmugglingTests {
    /// Sent behind each probe: where it is answered tells where the reader thought that the probe ended.
    static let canary = "GET /canary HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

    /// The statuses of all answers to a probe and the canary, until the server closes or waits for more.
    static func statuses(_ text: String, port: Int) async throws -> [Int] {
        let client = try await RawHTTPClient.connect(port: port, timeoutMilliseconds: 100)
        var statuses: [Int] = []
        var hasBeenRead = false
        do {
            try await client.send(text + canary)
            while true {
                do {
                    let response = try await client.readResponse()
                    if response.status >= 200 { statuses.append(response.status) }
                    hasBeenRead = false
                } catch RawHTTPClient.Problem.timedOut where !hasBeenRead {
                    // Silence alone says nothing on a busy machine.
                    try await waitUntilLaterOnesAreServed(port)
                    hasBeenRead = true
                }
            }
        } catch is RawHTTPClient.Problem {
            return statuses
        }
    }

    private struct Unserved: Error {
        let problem: RawHTTPClient.Problem
    }

    /// Returns once requests that came later were served, as many one after the other as any probe has: each server is one
    /// loop, so it has taken up all that came before.
    private static func waitUntilLaterOnesAreServed(_ port: Int) async throws {
        for _ in 0..<4 {
            do {
                _ = try await RawHTTPClient.connect(port: port).exchange(canary)
            } catch let problem as RawHTTPClient.Problem {
                throw Unserved(problem: problem)
            }
        }
    }

    struct Verdict: Sendable {
        let name: String
        /// HTTP/1.0 is answered and closed here, while nginx offers it to keep the connection.
        let endsHere: Bool
        let nginx: [Int]
        let ours: [Int]
    }

    private static func compare(
        _ probes: [(name: String, text: String)], with nginx: NginxServer
    ) async throws -> [Verdict] {
        let loop = EventLoop(name: "conformance")
        let server = HTTPServer(loop: loop) { _ in HTTPResponse(status: 200, text: "served") }
        let port = try server.listen(host: "127.0.0.1", port: 0)
        let nginxPort = nginx.port
        let verdicts = try await withThrowingTaskGroup(of: Verdict.self) { group in
            var verdicts: [Verdict] = []
            for (index, (name, text)) in probes.enumerated() {
                // Some probes end in waiting, so many run at once; not all, or a busy machine would make all wait.
                if index >= 32, let verdict = try await group.next() { verdicts.append(verdict) }
                group.addTask {
                    async let theirs = statuses(text, port: nginxPort)
                    async let ours = statuses(text, port: port)
                    return try await Verdict(
                        name: name, endsHere: text.contains(" HTTP/1.0\r\n"), nginx: theirs, ours: ours)
                }
            }
            return try await group.reduce(into: verdicts) { $0.append($1) }
        }
        await server.shutdown(graceMilliseconds: 0)
        loop.stop()
        return verdicts
    }

    /// Probes that come from reports about other servers; several end in a request that must not be served.
    static let smuggling: [(name: String, text: String)] = {
        let post = "POST /x HTTP/1.1\r\nHost: a\r\n"
        let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
        var probes: [(name: String, text: String)] = []
        for value in [
            "chunked", " chunked", "\tchunked", "chunked ", "chunked,", ",chunked", "chunked;q=1", "\"chunked\"",
            "chunkeD",
            "chunked\u{b}", "chunked\0", "ch\u{212a}nked", "identity, chunked", "chunked, identity", "x", "chunke d",
        ] {
            probes.append(("transfer encoding '\(value)'", "\(post)Transfer-Encoding:\(value)\r\n\r\n0\r\n\r\n"))
            probes.append(
                (
                    "transfer encoding '\(value)' beside a length",
                    "\(post)Content-Length: 5\r\nTransfer-Encoding:\(value)\r\n\r\n0\r\n\r\n\(hidden)"
                ))
        }
        for name in [
            "Transfer-Encoding ", " Transfer-Encoding", "Transfer_Encoding", "Transfer-Encoding\t",
            "X: y\nTransfer-Encoding",
            "X: y\rTransfer-Encoding", "Transfer\0-Encoding",
        ] {
            probes.append(
                ("field name '\(name)'", "\(post)Content-Length: 5\r\n\(name): chunked\r\n\r\n0\r\n\r\n\(hidden)"))
        }
        for value in [
            "5", "05", "+5", "-5", "5 ", "5,5", "5, 6", "5;", "0x5", "5.0", "5e0", "5_0", "", " ", "\u{0665}",
            "18446744073709551621", "9223372036854775808", "5\t", "5\u{b}", "'5'",
        ] {
            probes.append(("length '\(value)'", "\(post)Content-Length: \(value)\r\n\r\nhello"))
        }
        let chunked = "\(post)Transfer-Encoding: chunked\r\n\r\n"
        for size in ["5", "05", "0x5", "5 ", " 5", "5;", "5;a=b", "5 ;a", "5\t", "+5", "-5", "5h", "", "5\r", "5;\n"] {
            probes.append(("chunk size '\(size)'", "\(chunked)\(size)\r\nhello\r\n0\r\n\r\n"))
        }
        for end in ["\r\n", "\n", "\r", "", "xx", "\r\n\r\n", "\n\r\n"] {
            probes.append(("chunk end '\(end)'", "\(chunked)5\r\nhello\(end)0\r\n\r\n"))
            probes.append(("last chunk end '\(end)'", "\(chunked)5\r\nhello\r\n0\(end)\r\n"))
        }
        for host in ["a", "a:80", "a:", "", "a b", "a/b", "a@b", "a,b", "[::1]", "[::1", "a\0b", "a\r\nHost: b"] {
            probes.append(("host '\(host)'", "GET /x HTTP/1.1\r\nHost: \(host)\r\n\r\n"))
        }
        for line in [
            "GET /x HTTP/1.1", "GET /x  HTTP/1.1", "GET  /x HTTP/1.1", "GET /x HTTP/1.1 ", "GET\t/x HTTP/1.1", "GET /x",
            "GET /x HTTP/1.0", "GET /x HTTP/0.9", "GET /x HTTP/1.2", "GET /x HTTP/2.0", "GET /x HTTP/1.", "GET /x HTTP",
            "GET /x HTTP/1.1.1", "GET x HTTP/1.1", "G\0T /x HTTP/1.1", "GET /x\0 HTTP/1.1", "GET /x\u{1} HTTP/1.1",
            "get /x HTTP/1.1", "GET /x http/1.1", "GET /a b HTTP/1.1", " GET /x HTTP/1.1", "GET /%zz HTTP/1.1",
        ] {
            probes.append(("line '\(line)'", "\(line)\r\nHost: a\r\n\r\n"))
        }
        return probes
    }()

    @Test func whatNginxRefusesIsRefusedAndWhatIsServedIsServedAsOften() async throws {
        let nginx: NginxServer
        do {
            nginx = try await NginxServer()
        } catch NginxServer.Problem.notInstalled {
            Issue.record("nginx is not installed: the comparison was left out", severity: .warning)
            return
        }
        let known =
            FramingProbes.refused.map { (name: $0.name, text: $0.text) }
            + FramingProbes.accepted.map { (name: $0.name, text: $0.text) }
        let verdicts = try await Self.compare(known + Self.smuggling, with: nginx)
        #expect(verdicts.count > 200)
        var stricter = 0
        for verdict in verdicts {
            let note = Comment(rawValue: "\(verdict.name): nginx \(verdict.nginx), here \(verdict.ours)")
            let isServedThere = verdict.nginx.first.map { $0 < 400 } ?? false
            let isServedHere = verdict.ours.first.map { $0 < 400 } ?? false
            #expect(!isServedHere || isServedThere, note)
            // Served by both: the canary was found at the same place.
            if isServedHere { #expect(verdict.ours == (verdict.endsHere ? [200] : verdict.nginx), note) }
            if isServedThere && !isServedHere { stricter += 1 }
        }
        // Both kinds of agreement were seen, or the comparison would say nothing.
        #expect(verdicts.contains { ($0.ours.first ?? 0) == 200 && $0.nginx == [200, 200] })
        #expect(verdicts.contains { ($0.ours.first ?? 0) == 400 && ($0.nginx.first ?? 0) == 400 })
        #expect(stricter > 0)
    }
}
