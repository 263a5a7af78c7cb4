import EventLoop
import Postgres
import Store

/// Fills the table of customers: one identify of each user, by the writer's own statement. `--postgres CONNINFO
/// --schema NAME` a database, migrated here; `--users N --organizations N`.
enum Customers: Subcommand {
    static let name = "customers"

    static func run(_ options: Options) async throws -> [String: Double] {
        let users = try options.number("users", default: 10_000)
        let sample = SampleJobs(
            users: users, organizations: try options.number("organizations", default: 10), attributeEvery: 0)
        let configuration = PostgresConfiguration(
            conninfo: try options.text("postgres"), schema: try options.text("schema"),
            queryDeadlineMilliseconds: 600_000)
        let loop = EventLoop(name: "customers")
        defer { loop.stop() }
        return try await loop.run {
            let connection = try await PostgresConnection.connect(configuration, on: loop)
            defer { connection.close() }
            _ = try await Migrator.migrate(connection)
            // What is only there to be measured against need not survive a crash.
            _ = try await connection.execute("SET synchronous_commit = off")
            let stamp = SystemTime().wallMicroseconds - 60_000_000
            for start in stride(from: 0, to: users, by: 4_096) {
                let writes = (start..<min(start + 4_096, users)).map { sample.write($0, stamp: stamp) }
                _ = try await SDKWrites.apply(writes, connection)
            }
            _ = try await connection.execute("VACUUM ANALYZE customers")
            return ["users": Double(users)]
        }
    }
}
