internal import EventLoop
package import Postgres
internal import Store

/// A schema of its own on the server that all tests share.
package struct TestStore: Sendable {
    package let schema: String

    /// Takes a schema that stands, or will.
    package init(schema: String) { self.schema = schema }

    /// With all migrations.
    package static func make() async throws -> TestStore {
        let store = TestStore(schema: try TestPostgres.shared.get().schema())
        _ = try await store.withConnection { connection in try await Migrator.migrate(connection) }
        return store
    }

    /// Runs a body with a connection and a loop of its own.
    package func withConnection<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresConnection) async throws -> Value
    ) async throws -> Value {
        let configuration = try TestPostgres.shared.get().configuration(schema: schema)
        let loop = EventLoop(name: "test-store")
        defer { loop.stop() }
        return try await loop.run {
            let connection = try await PostgresConnection.connect(configuration, on: loop)
            defer { connection.close() }
            return try await body(connection)
        }
    }
}
