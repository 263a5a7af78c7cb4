package import EventLoop

/// A holder of one connection that opens it when needed, opens a new one after a loss, and lends it to one caller at a
/// time, in the order they asked.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone, which each entry point checks.
package final class PostgresClient: @unchecked Sendable {
    package let configuration: PostgresConfiguration
    package let loop: EventLoop
    private var connection: PostgresConnection?
    private var lent = false
    private var waiting: [UnsafeContinuation<Void, Never>] = []
    private var firstWaiting = 0
    private var failures = 0
    private var lastFailure: PostgresError?
    private var nextTry: Int64 = 0
    private var closed = false

    /// Milliseconds before the second try of a failed connect; doubles up to the cap.
    private static let backoffBase: Int64 = 100
    /// With its jitter shorter than the pause of a worker's breaker (2 s): were it as long, every other try of the
    /// breaker could come too early, and a database that is back be noticed only after two pauses.
    private static let backoffCap: Int64 = 1_000

    package init(_ configuration: PostgresConfiguration, on loop: EventLoop) {
        self.configuration = configuration
        self.loop = loop
    }

    /// True when a connection is open now.
    package var isConnected: Bool {
        loop.preconditionInLoop()
        return connection?.isOpen ?? false
    }

    /// Lends the connection. Call on the loop.
    ///
    /// After a failed connect, calls fail at once with its error until the back-off (100 ms doubling to 1 s, up to
    /// 20 % more) has passed: the caller's breaker decides how to wait.
    package func withConnection<Value>(
        _ body: (PostgresConnection) async throws(PostgresError) -> Value
    ) async throws(PostgresError) -> Value {
        loop.preconditionInLoop()
        await borrow()
        defer { giveBack() }
        let connection = try await opened()
        return try await body(connection)
    }

    /// Closes the connection and refuses further calls. A running call fails with `.connection`.
    package func close() {
        loop.preconditionInLoop()
        closed = true
        connection?.close()
        connection = nil
    }

    private func opened() async throws(PostgresError) -> PostgresConnection {
        guard !closed else { throw PostgresError(.connection, "the client is closed") }
        if let connection, connection.isOpen { return connection }
        connection = nil
        if let lastFailure, loop.time.monotonicNanoseconds < nextTry { throw lastFailure }
        do throws(PostgresError) {
            let opened = try await PostgresConnection.connect(configuration, on: loop)
            guard !closed else {
                opened.close()
                throw PostgresError(.connection, "the client is closed")
            }
            connection = opened
            failures = 0
            lastFailure = nil
            return opened
        } catch {
            let base = min(Self.backoffCap, Self.backoffBase << Int64(min(failures, 10)))
            // Upward only: never sooner than the base, and not all processes at once.
            let delay = base + Int64.random(in: 0...(base / 5))
            failures += 1
            lastFailure = error
            nextTry = loop.time.monotonicNanoseconds + delay * 1_000_000
            throw error
        }
    }

    private func borrow() async {
        guard lent else {
            lent = true
            return
        }
        await withUnsafeContinuation { waiting.append($0) }
    }

    private func giveBack() {
        guard firstWaiting < waiting.count else {
            waiting.removeAll(keepingCapacity: true)
            firstWaiting = 0
            lent = false
            return
        }
        let next = waiting[firstWaiting]
        firstWaiting += 1
        next.resume()
    }
}
