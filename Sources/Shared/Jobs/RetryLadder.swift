/// When a job that failed for a passing reason is tried again.
package struct RetryLadder: Sendable {
    /// First delay in milliseconds; doubled for each further attempt.
    package var baseMilliseconds: Int64
    /// No delay is longer, before jitter.
    package var capMilliseconds: Int64
    /// After that many attempts the job is a dead letter (`attempts_exhausted`), from where it can be sent again.
    package var maxAttempts: Int

    package init(baseMilliseconds: Int64 = 1000, capMilliseconds: Int64 = 300_000, maxAttempts: Int = 20) {
        self.baseMilliseconds = max(1, baseMilliseconds)
        self.capMilliseconds = max(1, capMilliseconds)
        self.maxAttempts = max(1, maxAttempts)
    }

    /// The delay before attempt number `attempts` + 1, or nil when none is left. Jitter is upward only (up to a
    /// fifth), so that a delay is never shorter than promised.
    /// - Parameter unit: a random number in 0..<1.
    package func delay(afterAttempts attempts: Int, unit: Double) -> Int64? {
        guard attempts < maxAttempts else { return nil }
        var delay = baseMilliseconds
        var rung = 1
        while rung < attempts && delay < capMilliseconds {
            delay *= 2
            rung += 1
        }
        delay = min(delay, capMilliseconds)
        return delay + Int64(Double(delay) * 0.2 * unit)
    }

    /// A kind or version that no running worker knows waits this long between looks,
    package static let unsupportedDelayMilliseconds: Int64 = 30_000
    /// and this long in all, an hour: longer than any rolling deploy; then it is a dead letter `unsupported`.
    package static let unsupportedLimitMilliseconds: Int64 = 3_600_000
}
