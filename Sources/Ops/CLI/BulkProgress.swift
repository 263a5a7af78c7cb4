internal import EventLoop
internal import OpsCore
internal import Synchronization

/// Tells how far a command on many jobs is: each second to somebody who watches, each ten to a log.
final class BulkProgress: Sendable {
    private let name: String
    private let session: Session
    private let started: Int64
    private let told: Mutex<Int64>

    private static let watchedNanoseconds: Int64 = 1_000_000_000
    private static let unwatchedNanoseconds: Int64 = 10_000_000_000

    init(_ name: String, _ session: Session) {
        self.name = name
        self.session = session
        started = Self.now(session)
        told = Mutex(started)
    }

    private static func now(_ session: Session) -> Int64 { session.time.monotonicNanoseconds }

    func tell(_ result: Administration.BulkResult) { tell(result.seen, result.total) }

    /// - Parameters:
    ///   - rate: by the second; what was seen since the start when nil.
    ///   - note: what else there is to say.
    func tell(_ seen: Int, _ total: Int64, rate: Double? = nil, note: String = "") {
        let now = Self.now(session)
        let interval = session.isWatched ? Self.watchedNanoseconds : Self.unwatchedNanoseconds
        let due = told.withLock { told in
            guard now >= told + interval else { return false }
            told = now
            return true
        }
        guard due else { return }
        session.redraw(Self.line(name, seen, total, nanoseconds: now - started, rate: rate) + note)
    }

    /// `dead retry: [#####.....] 500 of 1000, 250/s, 2 s left`; nobody knows what is left of what stands still.
    static func line(_ name: String, _ seen: Int, _ total: Int64, nanoseconds: Int64, rate: Double? = nil) -> String {
        let total = max(Int(total), seen, 1)
        let filled = 20 * seen / total
        let bar = String(repeating: "#", count: filled) + String(repeating: ".", count: 20 - filled)
        let rate = rate ?? Double(seen) / (Double(max(1, nanoseconds)) / 1e9)
        let line = "\(name): [\(bar)] \(seen) of \(total), \(Int(rate.rounded()))/s"
        guard rate > 0 else { return line }
        return line + ", \(Int(min((Double(total - seen) / rate).rounded(.up), 1e9))) s left"
    }
}
