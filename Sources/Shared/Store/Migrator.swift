internal import EventLoop
package import Postgres

/// Brings a schema forward, one numbered migration after the other; there is no way back.
package enum Migrator {
    /// A migration may rewrite tables; ten minutes bound even that.
    private static let deadlineMilliseconds: Int64 = 600_000

    /// Creates the connection's schema if it is absent, and applies what is missing, each migration in its own
    /// transaction under an advisory lock of that schema: programs that start together wait for each other and apply
    /// nothing twice.
    /// - Parameter progress: told of each migration once it is committed.
    /// - Returns: the numbers applied by this call.
    /// - Throws: `.migrationChanged` or `.migrationSkipped` before anything is done, for people to look at; `.database`
    ///   with the failing migration rolled back.
    @discardableResult
    package static func migrate(
        _ connection: PostgresConnection, to migrations: [Migration] = Migration.all,
        progress: @Sendable (Int) -> Void = { _ in }
    ) async throws(StoreError) -> [Int] {
        guard let schema = connection.configuration.schema else {
            throw StoreError(.noSchema, "the connection names no schema to migrate")
        }
        var applied: [Int] = []
        do {
            while let number = try await step(connection, schema, migrations) {
                applied.append(number)
                progress(number)
            }
        } catch let error as StoreError {
            throw error
        } catch let error as PostgresError {
            throw StoreError(error)
        } catch {
            throw StoreError(.database, "\(error)")
        }
        return applied
    }

    /// Why this program can't work on the schema now, for an operator; nil when it can. Call from any task.
    package static func problem(_ postgres: PostgresClient) async -> String? {
        do {
            let state: MigrationState = try await postgres.loop.run {
                try await postgres.withConnection { connection throws(PostgresError) in
                    try await Migrator.state(connection)
                }
            }
            return state.fits
                ? nil : "the schema is at \(state.current), this program needs \(state.needed): run ratchet migrate"
        } catch let error as PostgresError {
            return error.code == .connection ? "postgres is away" : error.message
        } catch {
            return "postgres: \(error)"
        }
    }

    /// Compares the schema with what this program needs. Changes nothing; an absent schema has `current` 0.
    package static func state(
        _ connection: PostgresConnection, against migrations: [Migration] = Migration.all
    ) async throws(PostgresError) -> MigrationState {
        let table = try await connection.query("SELECT to_regclass('schema_migrations') IS NOT NULL AS present").first
        let present = try table?.bool("present") ?? false
        return compare(present ? try await applied(connection) : [:], migrations)
    }

    private static func applied(_ connection: PostgresConnection) async throws(PostgresError) -> [Int: String] {
        var checksums: [Int: String] = [:]
        for row in try await connection.query("SELECT number, checksum FROM schema_migrations").rows {
            checksums[Int(try row.int64("number"))] = try row.string("checksum")
        }
        return checksums
    }

    private static func compare(_ applied: [Int: String], _ migrations: [Migration]) -> MigrationState {
        let known = Set(migrations.map(\.number))
        return MigrationState(
            current: applied.keys.max() ?? 0, needed: known.max() ?? 0,
            missing: migrations.map(\.number).filter { applied[$0] == nil },
            unknown: applied.keys.filter { !known.contains($0) }.sorted(),
            changed: migrations.filter { applied[$0.number] != nil && applied[$0.number] != $0.checksum }
                .map(\.number))
    }

    /// Applies the next missing migration; nil when there is none.
    private static func step(
        _ connection: PostgresConnection, _ schema: String, _ migrations: [Migration]
    ) async throws -> Int? {
        var refusal: StoreError?
        let number = try await connection.transaction(deadlineMilliseconds: deadlineMilliseconds) {
            () async throws(PostgresError) -> Int? in
            // No lock_timeout while waiting for another migrator; then a short one, since a statement that queues for
            // a table's lock makes every writer queue behind it.
            try await connection.execute(
                "SET LOCAL statement_timeout = \(deadlineMilliseconds); SET LOCAL lock_timeout = 0",
                deadlineMilliseconds: deadlineMilliseconds)
            _ = try await connection.query(
                "SELECT pg_advisory_xact_lock(hashtextextended('ratchet.migrate.' || $1, 0))", [.text(schema)],
                deadlineMilliseconds: deadlineMilliseconds)
            try await connection.execute("SET LOCAL lock_timeout = 5000")
            let exists = try await connection.query(
                "SELECT FROM pg_namespace WHERE nspname = $1", [.text(schema)])
            // Not IF NOT EXISTS alone: that asks for the right to create even when there is nothing to do.
            if exists.count == 0 { try await connection.execute("CREATE SCHEMA \"\(schema)\"") }
            try await connection.execute(
                """
                CREATE TABLE IF NOT EXISTS schema_migrations (
                    number bigint PRIMARY KEY,
                    checksum text NOT NULL,
                    applied_at timestamptz NOT NULL DEFAULT now()
                )
                """)
            let state = compare(try await applied(connection), migrations)
            if let changed = state.changed.first {
                refusal = StoreError(
                    .migrationChanged, "migration \(changed) was applied with another text than this program holds")
                return nil
            }
            guard let next = migrations.first(where: { state.missing.contains($0.number) }) else { return nil }
            if next.number < state.current {
                refusal = StoreError(
                    .migrationSkipped, "migration \(next.number) is missing though \(state.current) was applied")
                return nil
            }
            try await connection.execute(next.sql, deadlineMilliseconds: deadlineMilliseconds)
            _ = try await connection.query(
                "INSERT INTO schema_migrations (number, checksum) VALUES ($1, $2)",
                [.int64(Int64(next.number)), .text(next.checksum)])
            return next.number
        }
        if let refusal { throw refusal }
        return number
    }
}
