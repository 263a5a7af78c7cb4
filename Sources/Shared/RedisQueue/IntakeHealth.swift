internal import Jobs
package import Redis
package import Service

/// What the queue refuses at its door, for `/readyz`.
package struct IntakeHealth: Sendable {
    private let client: RedisClient
    private let keys: QueueKeys

    private static let askMilliseconds: Int64 = 1_000

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// The shed level, and what is drained. Never bad: a load balancer would take all processes away at once, and with
    /// them the answers that tell phones to wait. Call on the client's loop.
    package func health() async -> Health {
        let command: [RedisArgument] = ["HMGET", .text(keys.meta(0)), "shed", "closed"]
        let fields = try? await client.command(command, timeoutMilliseconds: Self.askMilliseconds).elements
        // A Redis that does not answer is another check's to say.
        guard let fields, fields.count == 2 else { return .good }
        let level = fields[0].text.flatMap { Int($0) } ?? 0
        var reasons: [String] = []
        let classes = NewJob.Shedding.allCases.filter { $0 != .never && $0.rawValue <= level }
        if !classes.isEmpty {
            reasons.append("refused for overload: \(classes.map { "\($0)" }.joined(separator: ", "))")
        }
        let closed = (fields[1].text ?? "").split(separator: "\n").compactMap { $0.split(separator: " ").first }
        if !closed.isEmpty { reasons.append("drained: \(closed.joined(separator: ", "))") }
        return .level(level, reasons.joined(separator: "; "))
    }
}
