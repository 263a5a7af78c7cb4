/// When a token is asked about again: the ladder, the end of the token's life, and what shortens both in development.
/// All times are microseconds.
package struct AdServicesLadder: Sendable {
    /// The waits after each ask that brought "not yet": 30 s, 1 min, 5 min, 15 min, 1 h, 3 h, 6 h, and 6 h again while
    /// the token lives. With the first ask that makes ten.
    private static let rungsSeconds: [Int64] = [30, 60, 300, 900, 3_600, 10_800, 21_600, 21_600, 21_600]
    /// Asks that may bring "not yet"; after as many only the end is waited for.
    package static let mostAttempts = rungsSeconds.count + 1
    /// Apple forgets a token after 24 hours.
    private static let lifeSeconds: Int64 = 86_400
    /// No ask is planned later than this: five minutes before the end, so that a slow one still comes in time.
    private static let lastAskSeconds: Int64 = 86_100
    /// How long "the same rung again" takes at the most. A short outage must not cost a token six hours of its life.
    private static let mostTroubleSeconds: Int64 = 900
    /// So much is added at random to a wait, at the most: what came together shall not come back together.
    private static let mostJitter = 0.1

    /// What every delay is divided by; 1 but in development.
    package let timeScale: Int64

    package init(timeScale: Int = 1) { self.timeScale = Int64(max(1, timeScale)) }

    /// A time of the real world as it lasts here.
    package func scaled(seconds: Int64) -> Int64 {
        let (product, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000)
        return (overflow ? Int64.max : product) / timeScale
    }

    /// When a token ends, asked about or not.
    /// - Parameter receivedAt: its stamp.
    package func end(receivedAt: Int64) -> Int64 { receivedAt + scaled(seconds: Self.lifeSeconds) }

    /// When to ask next.
    /// - Parameters:
    ///   - attempts: asks so far that used up a rung, this one included if it did.
    ///   - burnt: whether this one did.
    ///   - askedAt: when this one was sent.
    ///   - retryAfterSeconds: what the answer asked for; it can only lengthen the wait.
    ///   - jitter: from 0 to 1.
    /// - Returns: `end` when no further ask fits.
    package func next(
        attempts: Int64, burnt: Bool, askedAt: Int64, receivedAt: Int64, retryAfterSeconds: Int64?, jitter: Double
    ) -> Int64 {
        let end = end(receivedAt: receivedAt)
        guard attempts < Self.mostAttempts else { return end }
        let rung = Self.rungsSeconds[Int(min(max(attempts - 1, 0), Int64(Self.rungsSeconds.count - 1)))]
        let seconds = burnt ? rung : min(rung, Self.mostTroubleSeconds)
        let planned = scaled(seconds: seconds)
        let wait = planned + Int64(Double(planned) * Self.mostJitter * min(max(jitter, 0), 1))
        // A day is more than any token has.
        let asked = scaled(seconds: min(max(retryAfterSeconds ?? 0, 0), Self.lifeSeconds))
        let due = askedAt + max(wait, asked)
        let last = receivedAt + scaled(seconds: Self.lastAskSeconds)
        return due <= last ? due : askedAt < last ? last : end
    }
}
