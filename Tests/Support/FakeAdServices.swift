internal import EventLoop
internal import Glibc
internal import Synchronization

/// A local server that speaks Apple's side of the AdServices exchange, with answers scripted for each token, and faults
/// that no honest server has: resets, answers that break off, pages of HTML, delays.
///
/// It keeps connections open and notes who asked what and when. `@unchecked Sendable`: the sockets are touched on its
/// loop alone; the rest is behind the mutex.
package final class FakeAdServices: @unchecked Sendable {
    /// What the server does about one ask.
    package indirect enum Step: Sendable {
        case answer(status: Int, body: String, headers: [String] = [])
        /// The connection is reset.
        case reset
        /// Half of an answer, and the end of the connection.
        case brokenOff
        case later(milliseconds: Int64, Step)
        /// Once `release` is called.
        case released(Step)
        /// No answer, ever.
        case never

        package static let organic = Step.answer(status: 200, body: #"{"attribution":false}"#)
        package static let notYet = Step.answer(status: 404, body: "")
        package static let invalid = Step.answer(status: 400, body: "")
        package static let broken = Step.answer(status: 500, body: "")
        package static let html = Step.answer(
            status: 200, body: "<html>sign in</html>", headers: ["Content-Type: text/html"])
        package static let placeholder = Step.answer(
            status: 200, body: #"{"attribution":true,"orgId":1234567890,"campaignId":1234567890,"adId":1234567890}"#)

        package static func tooMany(retryAfter seconds: Int?) -> Step {
            .answer(status: 429, body: "", headers: seconds.map { ["Retry-After: \($0)"] } ?? [])
        }

        /// An answer as Apple's documentation shows it, without a keyword.
        package static func attributed(campaign: Int64) -> Step {
            .answer(
                status: 200,
                body: """
                    {"attribution":true,"orgId":40669820,"campaignId":\(campaign),"conversionType":"Download",\
                    "clickDate":"2026-01-05T10:22Z","claimType":"Click","adGroupId":542317095,\
                    "countryOrRegion":"US","adId":542317136}
                    """)
        }
    }

    private struct State {
        var scripts: [String: [Step]] = [:]
        var asks: [String: [Int64]] = [:]
        var total = 0
        var connections = 0
        /// Tokens whose asker waits for an answer, by connection.
        var open: [String: Int32] = [:]
        var overlaps: [String] = []
        var oddities: [String] = []
        var waiters: [(count: Int, continuation: UnsafeContinuation<Void, Never>)] = []
    }

    private final class Connection {
        let fd: Int32
        var watch: EventLoop.WatchToken?
        var received: [UInt8] = []
        var unsent: [UInt8] = []
        var endsWhenSent = false
        init(fd: Int32) { self.fd = fd }
    }

    package let port: Int
    private let loop = EventLoop(name: "fake-adservices")
    private let listener: Int32
    private var connections: [Int32: Connection] = [:]
    private var kept: [() -> Void] = []
    private let state = Mutex(State())
    private let byDefault: @Sendable (_ token: String, _ ask: Int) -> Step
    private let clock: @Sendable () -> Int64

    package var url: String { "http://127.0.0.1:\(port)/api/v1/" }

    /// - Parameters:
    ///   - clock: what the asks are noted with.
    ///   - byDefault: about tokens without a script; asks are counted from 1.
    package init(
        clock: @escaping @Sendable () -> Int64 = { SystemTime().wallMicroseconds },
        byDefault: @escaping @Sendable (_ token: String, _ ask: Int) -> Step = { _, _ in .organic }
    ) throws {
        self.clock = clock
        self.byDefault = byDefault
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        listener = socket(AF_INET, kind, 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let listener = listener
        let result = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { raw in
                bind(listener, raw, length) == 0 && listen(listener, 1_024) == 0
                    ? getsockname(listener, raw, &length) : -1
            }
        }
        guard listener >= 0, result == 0 else { throw RawHTTPClient.Problem.cannotConnect(errno) }
        port = Int(UInt16(bigEndian: address.sin_port))
        loop.execute { [self] in _ = loop.watch(listener, for: .readable) { [self] _ in acceptAll() } }
    }

    /// Ends everything at once, as a machine that is gone.
    package func stop() async {
        _ = try? await loop.run { [self] in
            for connection in connections.values { drop(connection) }
            close(listener)
        }
        loop.stop()
    }

    /// Lets the answers go that wait for it.
    package func release() {
        loop.execute { [self] in
            let ready = kept
            kept = []
            for perform in ready { perform() }
        }
    }

    // MARK: - Scripts and notes

    /// What the asks about a token are answered, one after the other; the last one for ever.
    package func script(_ token: String, _ steps: [Step]) {
        state.withLock { $0.scripts[token] = steps }
    }

    /// When a token was asked about.
    package func asks(_ token: String) -> [Int64] { state.withLock { $0.asks[token] ?? [] } }
    package var total: Int { state.withLock { $0.total } }
    package var connectionsTaken: Int { state.withLock { $0.connections } }
    /// Tokens that were asked about while an earlier asker of theirs still waited.
    package var overlaps: [String] { state.withLock { $0.overlaps } }
    /// Requests that Apple would not understand.
    package var oddities: [String] { state.withLock { $0.oddities } }

    /// Returns once so many asks have come in all.
    package func waitForAsks(_ count: Int) async {
        await withUnsafeContinuation { continuation in
            let isThere = state.withLock { state in
                if state.total >= count { return true }
                state.waiters.append((count, continuation))
                return false
            }
            if isThere { continuation.resume() }
        }
    }

    // MARK: - The loop

    private func acceptAll() {
        while true {
            let fd = accept(listener, nil, nil)
            guard fd >= 0 else { return }
            _ = fcntl(fd, F_SETFL, O_NONBLOCK)
            _ = fcntl(fd, F_SETFD, FD_CLOEXEC)
            var on: Int32 = 1
            setsockopt(fd, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
            let connection = Connection(fd: fd)
            connection.watch = loop.watch(fd, for: .readable) { [self, connection] ready in
                if ready.contains(.writable) { send(connection) }
                if ready.contains(.readable) || ready.contains(.hangup) { receive(connection) }
            }
            connections[fd] = connection
            state.withLock { $0.connections += 1 }
        }
    }

    private func receive(_ connection: Connection) {
        guard connections[connection.fd] === connection else { return }
        var buffer = [UInt8](repeating: 0, count: 16_384)
        let count = recv(connection.fd, &buffer, buffer.count, 0)
        if count < 0, errno == EAGAIN || errno == EINTR { return }
        guard count > 0 else { return drop(connection) }
        connection.received += buffer[..<count]
        while connections[connection.fd] === connection, let token = request(connection) { asked(token, connection) }
    }

    /// The body of the first whole request, which it takes out.
    private func request(_ connection: Connection) -> String? {
        let bytes = connection.received
        var end = 0
        while end + 3 < bytes.count, !(bytes[end] == 13 && bytes[end + 2] == 13) { end += 1 }
        guard end + 3 < bytes.count else { return nil }
        let lines = String(decoding: bytes[..<end], as: UTF8.self).split(separator: "\r\n").map { $0.lowercased() }
        func header(_ name: String) -> String? {
            lines.first { $0.hasPrefix(name + ":") }?.dropFirst(name.count + 1).drop { $0 == " " }.description
        }
        let length = header("content-length").flatMap { Int($0) } ?? 0
        guard bytes.count >= end + 4 + length else { return nil }
        connection.received.removeFirst(end + 4 + length)
        if lines.first?.hasPrefix("post /api/v1/ http/1.1") != true || header("content-type") != "text/plain" {
            state.withLock { $0.oddities.append(lines.joined(separator: "; ")) }
        }
        return String(decoding: bytes[(end + 4)..<(end + 4 + length)], as: UTF8.self)
    }

    private func asked(_ token: String, _ connection: Connection) {
        let now = clock()
        let (step, ready) = state.withLock { state in
            state.total += 1
            state.asks[token, default: []].append(now)
            if state.open[token] != nil { state.overlaps.append(token) }
            state.open[token] = connection.fd
            let number = state.asks[token]?.count ?? 1
            let script = state.scripts[token]
            let step = script.map { $0[min(number, $0.count) - 1] } ?? byDefault(token, number)
            let ready = state.waiters.filter { $0.count <= state.total }.map(\.continuation)
            state.waiters.removeAll { $0.count <= state.total }
            return (step, ready)
        }
        for continuation in ready { continuation.resume() }
        perform(step, token, connection)
    }

    private func perform(_ step: Step, _ token: String, _ connection: Connection) {
        guard connections[connection.fd] === connection else { return }
        switch step {
        case .never: return
        case .later(let milliseconds, let step):
            _ = loop.schedule(afterMilliseconds: milliseconds) { [self] in perform(step, token, connection) }
            return
        case .released(let step):
            kept.append { [self] in perform(step, token, connection) }
            return
        case .reset:
            var linger = linger(l_onoff: 1, l_linger: 0)
            setsockopt(connection.fd, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger)))
            drop(connection)
        case .brokenOff:
            connection.unsent += Array("HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{\"attribution\":false".utf8)
            connection.endsWhenSent = true
            send(connection)
        case .answer(let status, let body, let headers):
            let lines = ["HTTP/1.1 \(status) X", "Content-Length: \(body.utf8.count)"] + headers + ["", body]
            connection.unsent += Array(lines.joined(separator: "\r\n").utf8)
            send(connection)
        }
        state.withLock { if $0.open[token] == connection.fd { $0.open[token] = nil } }
    }

    private func send(_ connection: Connection) {
        while !connection.unsent.isEmpty {
            let count = Glibc.send(connection.fd, connection.unsent, connection.unsent.count, Int32(MSG_NOSIGNAL))
            if count < 0 {
                if errno == EAGAIN {
                    if let watch = connection.watch { loop.rewatch(watch, for: [.readable, .writable]) }
                    return
                }
                return drop(connection)
            }
            connection.unsent.removeFirst(count)
        }
        if let watch = connection.watch { loop.rewatch(watch, for: .readable) }
        if connection.endsWhenSent { drop(connection) }
    }

    private func drop(_ connection: Connection) {
        guard connections[connection.fd] === connection else { return }
        connections[connection.fd] = nil
        if let watch = connection.watch { loop.unwatch(watch) }
        state.withLock { state in
            for (token, fd) in state.open where fd == connection.fd { state.open[token] = nil }
        }
        close(connection.fd)
    }
}
