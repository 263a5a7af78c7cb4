import Foundation
import TestSupport

/// How long, how hard and in which order: from the environment, so that one form fits into `make test` and another may
/// run for hours.
struct ChaosPlan: Sendable {
    /// Further faults are drawn until so much time has passed; each fault comes once in any case.
    let seconds: Int
    /// How long a dependency is away or a worker stands still.
    let outageSeconds: Int
    let seed: UInt64
    /// The faults there are to choose from.
    let kinds: [Fault]
    /// Where the table goes as Markdown.
    let report: String?

    static let current = ChaosPlan(ProcessInfo.processInfo.environment)

    private init(_ environment: [String: String]) {
        func number(_ name: String) -> UInt64? { environment[name].flatMap { UInt64($0) } }
        seconds = Int(clamping: number("RATCHET_CHAOS_SECONDS") ?? 0)
        outageSeconds = max(1, Int(clamping: number("RATCHET_CHAOS_OUTAGE_SECONDS") ?? 6))
        seed = number("RATCHET_CHAOS_SEED") ?? UInt64.random(in: 1...999_999)
        report = environment["RATCHET_CHAOS_REPORT"]
        let wanted = environment["RATCHET_CHAOS_ONLY"] ?? ""
        kinds = Fault.allCases.filter { wanted.isEmpty || $0.rawValue.contains(wanted) }
        precondition(!kinds.isEmpty, "RATCHET_CHAOS_ONLY=\(wanted) is part of no fault's name")
    }

    var outageMilliseconds: Int64 { Int64(outageSeconds) * 1000 }

    /// When the test is given up: about half of the faults last as long as an outage, and a backlog of each is worked
    /// off.
    var mostMinutes: Int { 5 + (seconds + kinds.count * outageSeconds * 2) / 60 }

    /// All faults in random order, then one at a time at random, for ever.
    func faults() -> some IteratorProtocol<Fault> & Sendable {
        Order(generator: SeededGenerator(seed: seed), kinds: kinds)
    }

    private struct Order: IteratorProtocol, Sendable {
        var generator: SeededGenerator
        let kinds: [Fault]
        var left: [Fault]

        init(generator: SeededGenerator, kinds: [Fault]) {
            self.generator = generator
            self.kinds = kinds
            left = kinds
        }

        mutating func next() -> Fault? {
            guard !left.isEmpty else { return kinds.randomElement(using: &generator) }
            return left.remove(at: Int.random(in: left.indices, using: &generator))
        }
    }
}

/// What can happen to an installation on a bad day.
enum Fault: String, CaseIterable, Sendable {
    case ingressKilled = "ingress killed"
    case verifierKilled = "verifier killed"
    case writerKilled = "writer killed"
    case allWorkersKilled = "all workers killed"
    case rollingRestart = "rolling restart of everything (SIGTERM)"
    case verifierFrozen = "verifier frozen (SIGSTOP)"
    case writerFrozen = "writer frozen (SIGSTOP)"
    case redisRestarted = "Redis killed and started"
    case redisDown = "Redis down"
    case redisFrozen = "Redis frozen (SIGSTOP)"
    case redisClientsKilled = "Redis: CLIENT KILL"
    case redisScriptsFlushed = "Redis: SCRIPT FLUSH"
    case redisSleeps = "Redis: DEBUG SLEEP"
    case redisFull = "Redis at maxmemory"
    case redisReadOnly = "Redis read-only (REPLICAOF)"
    case redisConnectionsCut = "Redis: connections cut in the middle of calls and replies"
    case redisMisconfigured = "Redis refuses to write (MISCONF: saving fails)"
    case redisDiskFull = "Redis ends on a full disk"
    case postgresDown = "Postgres down"
    case postgresFrozen = "Postgres frozen (SIGSTOP)"
    case postgresRestarted = "Postgres crashed in a transaction"
    case postgresBackendsTerminated = "Postgres: all backends terminated"
    case postgresOutOfConnections = "Postgres out of connections"
    case postgresDiskFull = "Postgres: disk full (53100)"
    case bothDown = "Redis and Postgres down, Redis back first"
    case workersKilledWhilePostgresFrozen = "all workers killed while Postgres is frozen"
    case redisKilledWhileWritersFrozen = "Redis killed and started while all writers are frozen"
}
