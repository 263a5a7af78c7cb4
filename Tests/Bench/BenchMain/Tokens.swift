import Bytes
import EventLoop
import Postgres
import Store
import Wire

/// Fills the table of AdServices tokens. `--postgres CONNINFO --schema NAME` a database, migrated here; `--secret TEXT`
/// the sweeper's; `--due N` sealed tokens of 384 bytes that are due now; `--later N` that are never due; `--overdue N`
/// that are due and can't be opened.
enum Tokens: Subcommand {
    static let name = "tokens"

    static func run(_ options: Options) async throws -> [String: Double] {
        let due = try options.number("due", default: 0)
        let later = try options.number("later", default: 0)
        let overdue = try options.number("overdue", default: 0)
        let secret = options.text("secret", default: "")
        let configuration = PostgresConfiguration(
            conninfo: try options.text("postgres"), schema: try options.text("schema"),
            queryDeadlineMilliseconds: 600_000)
        let loop = EventLoop(name: "tokens")
        defer { loop.stop() }
        return try await loop.run {
            let connection = try await PostgresConnection.connect(configuration, on: loop)
            defer { connection.close() }
            _ = try await Migrator.migrate(connection)
            _ = try await connection.execute("TRUNCATE adservices_tokens")
            _ = try await connection.execute("SET synchronous_commit = off")
            try await fill(later, "'l' || n", due: "9000000000000000", connection)
            try await fill(overdue, "'o' || n", due: "n", connection)
            for start in stride(from: 0, to: due, by: 5_000) {
                try await receive(start..<min(start + 5_000, due), secret, connection)
            }
            _ = try await connection.execute("VACUUM ANALYZE adservices_tokens")
            return ["tokens": Double(due + later + overdue)]
        }
    }

    private static func fill(
        _ count: Int, _ subject: String, due: String, _ connection: PostgresConnection
    ) async throws {
        guard count > 0 else { return }
        _ = try await connection.query(
            """
            INSERT INTO adservices_tokens (
                organization, bundle_id, subject_kind, subject, stamp, sealed_token, due_at, environment, attested)
            SELECT 'o', 'b', 'install', \(subject), n, decode(repeat('ab', 412), 'hex'), \(due), 'Production', false
            FROM generate_series(1::bigint, \(count)::bigint) AS n
            """)
    }

    /// As the writer leaves them: sealed each with its own install.
    private static func receive(
        _ numbers: Range<Int>, _ secret: String, _ connection: PostgresConnection
    ) async throws {
        let sealer = AdServicesToken.sealer(secret: Array(secret.utf8))
        let subjects = numbers.map { "t\($0)" }
        var sealed = PostgresArray(of: .bytes, capacity: subjects.count)
        for subject in subjects {
            let text = subject + String(repeating: "x", count: 384 - subject.utf8.count)
            let context = AdServicesToken.context(organization: "o", bundleID: "b", subject: subject)
            sealed.append(bytes: sealer.seal(Array(text.utf8), context: context))
        }
        _ = try await connection.query(
            """
            INSERT INTO adservices_tokens (
                organization, bundle_id, subject_kind, subject, stamp, sealed_token, due_at, environment, attested)
            SELECT 'o', 'b', 'install', subject, $3, token, $3, 'Production', false
            FROM unnest($1::text[], $2::bytea[]) AS n(subject, token)
            """, [.texts(subjects), sealed.parameter, .int64(SystemTime().wallMicroseconds)])
    }
}
