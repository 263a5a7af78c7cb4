internal import Bytes
internal import EventLoop
internal import OpsCore
internal import RedisQueue
internal import Service

/// `ratchet queues drain`.
enum DrainCommand {
    static let command = Command(
        words: ["queues", "drain"], summary: "close the intake of something and watch until it is worked off",
        detail: """
            From the next call of an ingress on, what is drained is refused with 503 and Retry-After, so that phones keep it and
            send it again. Workers go on; the command only watches until nothing is waiting, pending, due or parked. A lane is
            drained alone: write leaves write.live as it is, and what the verify lanes pass on still comes. --all drains all
            four lanes.
            The order stands until it is lifted (ratchet queues resume) or its time is over, also when this command is stopped
            with Ctrl-C or its terminal goes away: the same command watches again. It outlives restarts, and a wipe of Redis
            once it has been copied to Postgres. Afterwards intake stays closed, unless --reopen is given.
            Exit code 0: drained; 1: stopped before, or somebody lifted the order.
            """,
        flags: QueueCommands.selectors + [
            .switch("all", "the whole queue"), .init("reason", "R", "for others and the audit log"),
            .init("for", "DURATION", "such as 90s, 30m, 12h or 7d; until it is lifted when absent"),
            .switch("keep-intake", "order nothing, only watch"), .switch("reopen", "open intake once it is drained"),
        ], tellsProgress: true, run: run)

    private static func run(_ line: Invocation, _ session: Session) async throws -> Answer {
        let targets = try targets(line)
        let keepsIntake = line.has("keep-intake")
        if keepsIntake, let other = ["reason", "for", "reopen"].first(where: line.has) {
            throw OpsError(.usage, "--keep-intake gives no order, so --\(other) says nothing")
        }
        guard keepsIntake || line.has("reason") else {
            throw OpsError(.usage, "--reason R is missing: for others and the audit log")
        }
        let milliseconds = try line["for"].map(QueueCommands.duration)
        let administration = try session.administration()
        // From here on Ctrl-C ends the watching, and not the process.
        _ = session.isInterrupted()
        var warnings: [String] = []
        if !keepsIntake {
            warnings = try await administration.drain(
                targets, reason: line.required("reason"), milliseconds: milliseconds
            ).warnings
        }
        let names = Names(targets, isAll: line.has("all"), reason: line["reason"], duration: line["for"])
        let watch = DrainWatch(session, administration, targets, needsOrder: !keepsIntake, name: names.subject)
        let outcome = try await watch.run()
        var state = outcome.state
        if outcome.ending == .drained, line.has("reopen") {
            for target in targets {
                let lifted = try await administration.resume(target.scope, target.target, only: .drain)
                for warning in lifted.warnings where !warnings.contains(warning) { warnings.append(warning) }
            }
            state.closing = []
        }
        return Answer(
            document: document(outcome, state, targets), text: text(outcome, state, names), warnings: warnings,
            exitCode: outcome.ending == .drained ? ExitCode.success : ExitCode.negative)
    }

    private static func targets(_ line: Invocation) throws -> [Administration.QueueTarget] {
        guard line.has("all") else {
            let (scope, target) = try QueueCommands.selected(line, or: "--all")
            return [.init(scope, target)]
        }
        guard QueueCommands.selectors.allSatisfy({ !line.has($0.name) }) else {
            throw OpsError(.usage, "--all and a lane, kind or organization exclude each other")
        }
        return Administration.QueueTarget.everything
    }

    /// How texts and lines to type name what is drained.
    private struct Names {
        let subject: String
        let resume: String
        let again: String

        init(_ targets: [Administration.QueueTarget], isAll: Bool, reason: String?, duration: String?) {
            let flags: String
            if let target = targets.first, !isAll {
                subject = "\(target.scope.rawValue) \(target.target)"
                flags = "\(Administration.flag(target.scope)) \(target.target)"
            } else {
                subject = "the queue"
                flags = "--all"
            }
            resume = "ratchet queues resume \(flags) --only drain"
            let quoted = reason.map { "--reason '" + $0.replacing("'", with: "'\\''") + "'" } ?? "--keep-intake"
            again = "ratchet queues drain \(flags) \(quoted)" + (duration.map { " --for \($0)" } ?? "")
        }
    }

    private static func text(
        _ outcome: DrainWatch.Outcome, _ state: Administration.DrainState, _ names: Names
    ) -> String {
        let intake: String
        if let order = state.closing.first {
            let until = order.until.map { "until \(Timestamps.rfc3339(milliseconds: $0)), or " } ?? ""
            intake = "intake stays closed \(until)until it is opened: \(names.resume)\n"
        } else {
            intake = "intake is open\n"
        }
        switch outcome.ending {
        case .drained: return "\(names.subject) is drained: \(outcome.done) jobs in \(outcome.seconds) s; \(intake)"
        case .interrupted:
            return "\(names.subject) is not drained yet, \(state.left) jobs are left; \(intake)"
                + "to watch again: \(SafeText.escaped(names.again))\n"
        case .lifted:
            return "\(names.subject) is not drained, \(state.left) jobs are left: its order was lifted or ran out,"
                + " and intake is open\n"
        }
    }

    private static func document(
        _ outcome: DrainWatch.Outcome, _ state: Administration.DrainState, _ targets: [Administration.QueueTarget]
    ) -> Document {
        .members([
            "drained": .bool(outcome.ending == .drained),
            "targets": .list(
                targets.map {
                    .members(["scope": .string($0.scope.rawValue), "target": .string($0.target)])
                }),
            "done": .int(outcome.done), "left": .int(state.left), "seconds": .int(outcome.seconds),
            "intake": .string(state.closing.isEmpty ? "open" : "closed"),
            "orders": .list(state.closing.map { Document($0) }),
            "pauses": .list(state.pausing.map { Document($0) }),
        ])
    }
}

/// Looks at what is left of a drain each second, and tells of it.
struct DrainWatch {
    enum Ending { case drained, interrupted, lifted }

    struct Outcome {
        let ending: Ending
        let state: Administration.DrainState
        let done: Int64
        let seconds: Int64
    }

    private let session: Session
    private let administration: Administration
    private let targets: [Administration.QueueTarget]
    private let needsOrder: Bool
    private let name: String

    private static let lookMilliseconds: Int64 = 1_000
    /// Ctrl-C is heeded within this time.
    private static let sliceMilliseconds: Int64 = 100
    /// So long nothing may move before the reasons are told, and told again.
    private static let stallNanoseconds: Int64 = 10_000_000_000
    private static let reminderNanoseconds: Int64 = 30_000_000_000
    /// So long Redis may be away, as at a restart or failover.
    private static let awayNanoseconds: Int64 = 60_000_000_000
    /// Numbers of different moments may miss a job that moved between them; hardly twice.
    private static let zerosNeeded = 2

    init(
        _ session: Session, _ administration: Administration, _ targets: [Administration.QueueTarget],
        needsOrder: Bool, name: String
    ) {
        self.session = session
        self.administration = administration
        self.targets = targets
        self.needsOrder = needsOrder
        self.name = name
    }

    private var now: Int64 { session.time.monotonicNanoseconds }

    /// - Throws: `.dependencyAway` when Redis stays away: the order stands.
    func run() async throws -> Outcome {
        let started = now
        let progress = BulkProgress("drain of \(name)", session)
        var samples: [(at: Int64, left: Int64)] = []
        var (done, zeros) = (Int64(0), 0)
        var (moved, toldAt, awaySince): (Int64, Int64?, Int64?) = (started, nil, nil)
        var last = Administration.DrainState()
        while true {
            do throws(OpsError) {
                let state = try await administration.drainState(targets)
                awaySince = nil
                // What came in meanwhile is work done as well, but can't be told from here.
                let less = samples.last.map { max(0, $0.left - state.left) } ?? 0
                done += less
                if less > 0 || samples.isEmpty { moved = now }
                last = state
                samples.append((now, state.left))
                samples.removeAll { $0.at < now - Self.stallNanoseconds }
                zeros = state.left == 0 ? zeros + 1 : 0
                func outcome(_ ending: Ending) -> Outcome {
                    Outcome(ending: ending, state: state, done: done, seconds: (now - started) / 1_000_000_000)
                }
                if zeros == Self.zerosNeeded { return outcome(.drained) }
                if needsOrder, !targets.allSatisfy({ target in state.closing.contains(where: target.isMeant) }) {
                    return outcome(.lifted)
                }
                if session.isInterrupted() { return outcome(.interrupted) }
                if state.left > 0 {
                    progress.tell(
                        Int(done), done + state.left, rate: Self.rate(samples), note: Self.note(state, now: now))
                }
                let stalls = now - moved >= Self.stallNanoseconds || (toldAt == nil && !state.pausing.isEmpty)
                if state.left > 0, stalls, toldAt.map({ now - $0 >= Self.reminderNanoseconds }) ?? true {
                    toldAt = now
                    session.progress("nothing of \(name) is worked off now; \(state.left) jobs are left")
                    for line in await administration.hindrances(targets, state) {
                        session.progress("  \(SafeText.escaped(line))")
                    }
                }
            } catch {
                guard error.code == .dependencyAway else { throw error }
                let since = awaySince ?? now
                if awaySince == nil { session.progress("\(SafeText.escaped(error.message)); trying on") }
                awaySince = since
                zeros = 0
                guard now - since < Self.awayNanoseconds else {
                    throw OpsError(error.code, "\(error.message); the order stands, the same command watches again")
                }
                if session.isInterrupted() {
                    return Outcome(
                        ending: .interrupted, state: last, done: done, seconds: (now - started) / 1_000_000_000)
                }
            }
            try await sleep(zeros > 0 ? Self.sliceMilliseconds : Self.lookMilliseconds)
        }
    }

    private func sleep(_ milliseconds: Int64) async throws {
        let loop = administration.installation.loop
        let end = now + milliseconds * 1_000_000
        while now < end, !session.isInterrupted() {
            try await loop.run { await loop.sleep(milliseconds: Self.sliceMilliseconds) }
        }
    }

    /// Jobs by the second over the last ten seconds.
    private static func rate(_ samples: [(at: Int64, left: Int64)]) -> Double {
        guard let first = samples.first, let last = samples.last, last.at > first.at else { return 0 }
        return Double(max(0, first.left - last.left)) / (Double(last.at - first.at) / 1e9)
    }

    private static func note(_ state: Administration.DrainState, now: Int64) -> String {
        var note = ""
        if let places = state.places {
            for (count, place) in [(places.pending, "pending"), (places.due, "due"), (places.parked, "parked")]
            where count > 0 { note += ", \(count) \(place)" }
        }
        if state.places.map({ $0.due > 0 }) ?? true, let next = state.nextDueMilliseconds, next > 0 {
            note += ", the next due in \(next / 1_000 + 1) s"
        }
        return note
    }
}
