import EventLoop
import HTTP
import TestSupport
import Testing

/// A real server on a loop of its own, for the length of one test.
struct ServerFixture: Sendable {
    let loop: EventLoop
    let server: HTTPServer
    let port: Int

    /// Answers what it was asked, so that a test sees what the server understood.
    static let echo: @Sendable (HTTPRequest) async -> HTTPResponse = { request in
        let query = request.query.map { "?\($0)" } ?? ""
        return HTTPResponse(
            status: 200, headers: [("X-Method", request.method.rawValue), ("X-Path", request.path + query)],
            body: request.body)
    }

    static func run(
        time: any TimeSource = SystemTime(), configure: (inout HTTPServerConfiguration) -> Void = { _ in },
        handler: @escaping @Sendable (HTTPRequest) async -> HTTPResponse = echo,
        _ body: (ServerFixture) async throws -> Void
    ) async throws {
        var configuration = HTTPServerConfiguration()
        // A busy machine may stop a test for long: no deadline but those a test sets itself may end its connections.
        configuration.headerTimeoutMilliseconds = 600_000
        configuration.bodyTimeoutMilliseconds = 600_000
        configuration.idleTimeoutMilliseconds = 600_000
        configuration.writeTimeoutMilliseconds = 600_000
        configuration.lingerTimeoutMilliseconds = 600_000
        configure(&configuration)
        let loop = EventLoop(name: "http-test", time: time)
        let server = HTTPServer(loop: loop, configuration: configuration, handler: handler)
        let port = try server.listen(host: "127.0.0.1", port: 0)
        let fixture = ServerFixture(loop: loop, server: server, port: port)
        let result = await Result { try await body(fixture) }
        await server.shutdown(graceMilliseconds: 0)
        loop.stop()
        try result.get()
    }

    func connect(timeoutMilliseconds: Int = 60_000, receiveBufferBytes: Int? = nil) async throws -> RawHTTPClient {
        try await RawHTTPClient.connect(
            port: port, timeoutMilliseconds: timeoutMilliseconds, receiveBufferBytes: receiveBufferBytes)
    }

    func counters() async throws -> HTTPServerCounters { try await loop.run { server.counters } }

    /// Waits until the counters say something: the server has seen what the test did.
    func wait(until condition: @Sendable @escaping (HTTPServerCounters) -> Bool) async throws {
        let clock = ContinuousClock()
        let deadline = clock.now + .seconds(60)
        while try await !condition(counters()) {
            try #require(clock.now < deadline, "the server never came to the expected state")
        }
    }

    /// Sends bytes on a new connection, reads one answer, and checks that the server then ends the connection.
    func refusal(_ bytes: [UInt8]) async throws -> RawHTTPClient.Response {
        let client = try await connect()
        try await client.send(bytes)
        let response = try await client.readResponse()
        #expect(response.first("connection") == "close")
        let rest = try await client.readToEnd()
        #expect(rest.isEmpty)
        return response
    }

    func refusal(_ text: String) async throws -> RawHTTPClient.Response { try await refusal(Array(text.utf8)) }
}

extension Result where Failure == any Error {
    init(_ body: () async throws -> Success) async {
        do { self = .success(try await body()) } catch { self = .failure(error) }
    }
}

/// A door a handler waits at until the test opens it.
actor Door {
    private var isOpen = false
    private var waiting: [CheckedContinuation<Void, Never>] = []
    private var watching: [CheckedContinuation<Void, Never>] = []
    private(set) var arrivals = 0

    func pass() async {
        arrivals += 1
        for continuation in watching { continuation.resume() }
        watching = []
        if isOpen { return }
        await withCheckedContinuation { waiting.append($0) }
    }

    /// Returns once somebody has come to the door.
    func arrived() async {
        if arrivals == 0 { await withCheckedContinuation { watching.append($0) } }
    }

    func open() {
        isOpen = true
        for continuation in waiting { continuation.resume() }
        waiting = []
    }
}
