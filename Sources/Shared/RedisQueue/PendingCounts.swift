package import Redis

/// Counts by name on their way from the ingress to Postgres, in a hash: dropped writes by bundle, steps of enrolments.
/// They are hints: one whose answer was lost may count twice, and a wiped Redis forgets a second's worth.
package struct PendingCounts: Sendable {
    private let client: RedisClient
    private let key: String

    /// Names kept at the most: strangers choose some of them.
    private static let mostNames = 10_000
    /// What counts of names beyond that are kept under.
    package static let otherNames = "*"

    /// - Parameter key: one of `QueueKeys`.
    package init(client: RedisClient, key: String) {
        self.client = client
        self.key = key
    }

    /// Adds counts by name.
    package func add(_ counts: [String: Int64]) async throws(RedisError) {
        guard !counts.isEmpty else { return }
        _ = try await client.evaluate(
            QueueScripts.addCounts, keys: [.text(key)],
            arguments: [.integer(Int64(Self.mostNames)), .text(Self.otherNames)] + Self.arguments(counts))
    }

    /// All counts that have not reached Postgres.
    package func all() async throws(RedisError) -> [String: Int64] {
        let items = try await client.command(["HGETALL", .text(key)]).elements ?? []
        var counts: [String: Int64] = [:]
        for index in stride(from: 0, to: items.count - 1, by: 2) {
            if let name = items[index].text, let count = items[index + 1].text.flatMap({ Int64($0) }) {
                counts[name] = count
            }
        }
        return counts
    }

    /// Takes away counts that have reached Postgres.
    package func forget(_ counts: [String: Int64]) async throws(RedisError) {
        guard !counts.isEmpty else { return }
        _ = try await client.evaluate(
            QueueScripts.forgetCounts, keys: [.text(key)], arguments: Self.arguments(counts))
    }

    private static func arguments(_ counts: [String: Int64]) -> [RedisArgument] {
        counts.flatMap { name, count -> [RedisArgument] in [.text(name), .integer(count)] }
    }
}
