import EventLoop
import Postgres
import Synchronization
import TestSupport

/// Runs a test's body on a loop of its own with a connection to the shared server.
func withConnection<Value: Sendable>(
    schema: String? = nil, queryDeadlineMilliseconds: Int64 = 60_000, time: any TimeSource = SystemTime(),
    _ body: @escaping @Sendable (PostgresConnection) async throws -> Value
) async throws -> Value {
    let configuration = try TestPostgres.shared.get().configuration(
        schema: schema, queryDeadlineMilliseconds: queryDeadlineMilliseconds)
    return try await withLoop(time) { loop in
        let connection = try await PostgresConnection.connect(configuration, on: loop)
        defer { connection.close() }
        return try await body(connection)
    }
}

/// Waits until a backend is in `pg_sleep`.
func waitUntilSleeping(_ backendPID: Int32) async throws {
    try await withConnection { watcher in
        while try await watcher.query(
            "SELECT FROM pg_stat_activity WHERE pid = $1::bigint AND wait_event = 'PgSleep'",
            [.int64(Int64(backendPID))]
        ).count == 0 {}
    }
}

func withLoop<Value: Sendable>(
    _ time: any TimeSource = SystemTime(), _ body: @escaping @Sendable (EventLoop) async throws -> Value
) async throws -> Value {
    let loop = EventLoop(name: "test", time: time)
    defer { loop.stop() }
    return try await loop.run { try await body(loop) }
}

/// The error that an async call ends with, or nil.
func failure(of body: () async throws(PostgresError) -> Void) async -> PostgresError? {
    do throws(PostgresError) {
        try await body()
        return nil
    } catch {
        return error
    }
}

/// Whether the connection still works.
func answersOne(_ connection: PostgresConnection) async throws -> Bool {
    try await connection.query("SELECT 1 AS one").rows.map { try $0.int64("one") } == [1]
}

/// Says once, between tasks, that something has happened.
final class Flag: Sendable {
    private let value = Atomic(false)
    var isRaised: Bool { value.load(ordering: .acquiring) }
    func raise() { value.store(true, ordering: .releasing) }
}
