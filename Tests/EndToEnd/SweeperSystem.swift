import Bytes
import EventLoop
import Foundation
import Postgres
import Store
import TestSupport
import Wire

/// Sweepers as processes, a schema of tokens, and a local server in Apple's place.
final class SweeperSystem: Sendable {
    let database: TestPostgres
    let schema: String
    let sweepers: [RatchetProcess]
    let apple: FakeAdServices
    let loop = EventLoop(name: "sweeper-test")
    private let folder = "/tmp/ratchet-sweep-\(UUID().uuidString.prefix(8))"
    private static let secret = String(repeating: "s", count: 32)

    /// - Parameter timeScale: what the sweepers divide a token's delays by.
    init(
        sweepers count: Int, timeScale: Int, concurrency: Int = 32, database: TestPostgres? = nil,
        _ apple: FakeAdServices
    ) async throws {
        self.apple = apple
        let database = try database ?? TestPostgres.shared.get()
        let schema = database.schema()
        self.database = database
        self.schema = schema
        sweepers = (0..<count).map { [folder] number in
            RatchetProcess(
                "ratchet-sweeper",
                environment: [
                    "RATCHET_MODE": "development", "RATCHET_SECRET": Self.secret, "RATCHET_PG": database.conninfo,
                    "RATCHET_PG_SCHEMA": schema, "RATCHET_RUN_DIR": "\(folder)/\(number)",
                    "RATCHET_ADSERVICES_URL": apple.url, "RATCHET_ADSERVICES_TIME_SCALE": String(timeScale),
                    "RATCHET_ADSERVICES_CONCURRENCY": String(concurrency),
                ])
        }
        try await query { connection in _ = try await Migrator.migrate(connection) }
    }

    func start() async throws { for sweeper in sweepers { try await sweeper.start() } }

    /// - Returns: the exit codes.
    @discardableResult
    func stop() async -> [Int32] {
        var codes: [Int32] = []
        for sweeper in sweepers { codes.append(await sweeper.stop()) }
        await apple.stop()
        loop.stop()
        try? FileManager.default.removeItem(atPath: folder)
        return codes
    }

    func query<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresConnection) async throws -> Value
    ) async throws -> Value {
        let configuration = PostgresConfiguration(
            conninfo: database.conninfo, schema: schema, queryDeadlineMilliseconds: 300_000)
        return try await loop.run { [loop] in
            let connection = try await PostgresConnection.connect(configuration, on: loop)
            defer { connection.close() }
            return try await body(connection)
        }
    }

    /// Adds tokens `t0`…, due now, each with its install's id as its text.
    func receive(_ numbers: Range<Int>) async throws {
        let sealer = AdServicesToken.sealer(secret: Array(Self.secret.utf8))
        let now = SystemTime().wallMicroseconds
        let subjects = numbers.map { "t\($0)" }
        var sealed = PostgresArray(of: .bytes, capacity: subjects.count)
        for subject in subjects {
            let context = AdServicesToken.context(organization: "o", bundleID: "b", subject: subject)
            sealed.append(bytes: sealer.seal(Array(subject.utf8), context: context))
        }
        let texts = sealed.parameter
        try await query { connection in
            _ = try await connection.query(
                """
                INSERT INTO adservices_tokens (
                    organization, bundle_id, subject_kind, subject, stamp, sealed_token, due_at, environment, attested)
                SELECT 'o', 'b', 'install', subject, $3, token, $3, 'Production', false
                FROM unnest($1::text[], $2::bytea[]) AS n(subject, token)
                """, [.texts(subjects), texts, .int64(now)])
        }
    }

    func pending() async throws -> Int {
        try await query { connection in
            Int(
                try await connection.query(
                    "SELECT count(*) AS n FROM adservices_tokens WHERE state = 'pending' AND stamp > 1000000000"
                ).first?.int64("n") ?? -1)
        }
    }

    /// Returns once nothing is pending, or fails.
    func waitUntilAllHaveEnded(seconds: Int64) async throws {
        let end = loop.time.monotonicNanoseconds + seconds * 1_000_000_000
        while try await pending() > 0 {
            guard loop.time.monotonicNanoseconds < end else {
                let tails = sweepers.map { $0.lines.suffix(5).joined(separator: "\n") }.joined(separator: "\n")
                throw RatchetProcess.Failure(
                    description: "tokens are pending for ever: \(try await pending())\n\(tails)")
            }
            await loop.sleep(milliseconds: 100)
        }
    }

    /// Tokens by state.
    func states() async throws -> [String: Int] {
        try await query { connection in
            var states: [String: Int] = [:]
            for row in try await connection.query(
                "SELECT state, count(*) AS n FROM adservices_tokens GROUP BY state"
            ).rows { states[try row.string("state")] = Int(try row.int64("n")) }
            return states
        }
    }
}
