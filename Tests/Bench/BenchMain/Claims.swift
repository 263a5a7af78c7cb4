import Bytes
import EventLoop
import Postgres
import Store

/// What a sweeper's claim takes, call to answer, with the tokens that stand in the table: `--postgres CONNINFO --schema
/// NAME`, `--limit N` tokens a claim, `--claims N`. Milliseconds. Each claim goes on where the one before ended, as the
/// sweep's do while more is due.
enum Claims: Subcommand {
    static let name = "claim"

    static func run(_ options: Options) async throws -> [String: Double] {
        let limit = try options.number("limit", default: 128)
        let claims = try options.number("claims", default: 15)
        let configuration = PostgresConfiguration(
            conninfo: try options.text("postgres"), schema: try options.text("schema"))
        let loop = EventLoop(name: "claims")
        defer { loop.stop() }
        return try await loop.run {
            let connection = try await PostgresConnection.connect(configuration, on: loop)
            defer { connection.close() }
            var times: [Double] = []
            var since: Int64 = 0
            // The first one reads the table into memory and plans the statement.
            for _ in 0...claims {
                let began = loop.time.monotonicNanoseconds
                let claimed = try await AdServicesSweep.claim(
                    limit, lease: Secrets.random(16), leaseEnd: .max / 4, now: 1_500_000, since: since, connection)
                times.append(Double(loop.time.monotonicNanoseconds - began) / 1e6)
                guard claimed.count == limit else { throw Options.Problem(description: "too few tokens are due") }
                since = claimed.last?.dueAt ?? since
            }
            let sorted = times.dropFirst().sorted()
            return ["median": sorted[sorted.count / 2], "min": sorted[0], "max": sorted[sorted.count - 1]]
        }
    }
}
