/// When the sweep stops asking because Apple can't be reached, and for how long. Knows neither clock nor database.
struct SweepBreaker: Equatable, Sendable {
    /// So many asks in a row without an answer are no accident.
    static let mostFailures = 5
    private static let firstHoldSeconds: Int64 = 30
    /// Apple is back for five minutes at the most before the sweep sees it.
    private static let longestHoldSeconds: Int64 = 300

    private var failures = 0
    private var holds = 0
    /// A hold has ended and nobody knows yet how things stand: one token is asked about at a time.
    private(set) var isProbing = false

    /// Apple has answered.
    mutating func answered() { self = SweepBreaker() }

    /// Nobody asks for a while, whoever said so.
    mutating func held() {
        failures = 0
        isProbing = true
    }

    /// An ask found nobody, while no hold stood.
    /// - Returns: for how many seconds to stop asking; nil to go on.
    mutating func failed() -> Int64? {
        failures += 1
        guard isProbing || failures >= Self.mostFailures else { return nil }
        let seconds = min(Self.firstHoldSeconds << Int64(min(holds, 10)), Self.longestHoldSeconds)
        holds += 1
        return seconds
    }
}
