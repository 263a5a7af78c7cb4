internal import EventLoop
package import Redis
package import Service

/// How far Redis' clocks are from this machine's. Stamps come from Redis' clocks, and of two writes to different nodes
/// the one with the later stamp wins: nodes that differ let an older write win.
package struct ClockSkew: Sendable {
    private let client: RedisClient
    private let gauge: Gauge

    /// Clocks drift slowly; who sets one by hand sees it soon enough.
    private static let lookMilliseconds: Int64 = 10_000

    /// - Parameter client: its loop is where everything runs, and that loop's wall clock is what Redis is compared with.
    package init(client: RedisClient, metrics: Metrics) {
        self.client = client
        gauge = metrics.gauge(
            "ratchet_clock_skew_seconds",
            "Redis' clock less this process', as far as it is certain; of a cluster the node that differs most.")
    }

    /// Looks until cancelled. While Redis is away the last value stays.
    package func runUntilCancelled() async {
        while !Task.isCancelled {
            if let skew = try? await measure() { gauge.set(Double(skew) / 1e6) }
            await client.loop.sleep(milliseconds: Self.lookMilliseconds)
        }
    }

    /// One look. Call it on the client's loop.
    /// - Returns: microseconds; positive when Redis is ahead.
    package func measure() async throws(RedisError) -> Int64 {
        let asked = client.loop.time.wallMicroseconds
        let replies = try await client.everyPrimary(["TIME"])
        let answered = client.loop.time.wallMicroseconds
        var greatest: Int64 = 0
        for node in replies {
            let parts = try node.reply.get().elements?.compactMap { $0.text.flatMap { Int64($0) } } ?? []
            guard parts.count == 2, (0..<1 << 40).contains(parts[0]) else {
                throw RedisError(code: .protocolViolation, message: "TIME answered otherwise")
            }
            let skew = Self.skew(of: parts[0] * 1_000_000 + parts[1], asked: asked, answered: answered)
            if abs(skew) > abs(greatest) { greatest = skew }
        }
        return greatest
    }

    /// What is certain of a difference: Redis looked at its clock some time between question and answer.
    static func skew(of time: Int64, asked: Int64, answered: Int64) -> Int64 {
        if time > answered { return time - answered }
        return time < asked ? time - asked : 0
    }
}
