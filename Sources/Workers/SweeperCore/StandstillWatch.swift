/// Tells when this process stood still: stopped by a signal, or on a machine that did not run. What was under way then and
/// found nobody says nothing of the other side. Fed with a clock that goes on meanwhile; knows none itself.
struct StandstillWatch: Sendable {
    /// It is told that the process runs so often. Milliseconds.
    static let tickMilliseconds: Int64 = 500
    /// A loop that is only busy is never so late.
    static let leastNanoseconds: Int64 = 2_000_000_000

    private var lastRun: Int64
    private var lastEnd = Int64.min

    /// - Parameter now: monotonic nanoseconds, as everywhere here.
    init(now: Int64) { lastRun = now }

    /// The process runs.
    /// - Returns: for how long it had not; nil when it had.
    mutating func runs(at now: Int64) -> Int64? {
        let gap = now - lastRun
        lastRun = now
        guard gap >= Self.leastNanoseconds else { return nil }
        lastEnd = now
        return gap
    }

    /// Whether it stood still at any moment since then.
    func stoodStill(since start: Int64) -> Bool { lastEnd > start }
}
