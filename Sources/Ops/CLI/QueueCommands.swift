internal import Bytes
internal import EventLoop
internal import Glibc
internal import OpsCore
internal import RedisQueue
internal import Service

/// `ratchet queues` and the orders to the queue.
enum QueueCommands {
    static let all = [
        Command(
            words: ["queues"], summary: "show what waits in each lane of the queue",
            detail: "--watch shows it anew each second, until Ctrl-C.",
            flags: [.switch("watch", "show it again each second")], run: show),
        Command(
            words: ["queues", "pause"], summary: "pause a lane, a kind of job or an organization",
            detail: """
                Holds from the next fetch of every worker on; what a worker has in hand is finished. Intake goes on, so memory
                fills. A lane keeps its jobs where they are; jobs of a paused kind or organization are put aside (parked) as they
                are met, and come back when the pause is over. A lane is paused alone: write leaves write.live as it is.
                The pause outlives restarts, and a wipe of Redis once it has been copied to Postgres.
                """,
            flags: selectors + [
                .init("reason", "R", "for others and the audit log", required: true),
                .init("for", "DURATION", "such as 90s, 30m, 12h or 7d; until it is lifted when absent"),
            ], run: pause),
        Command(
            words: ["queues", "resume"], summary: "lift a pause or a drain",
            detail: """
                Workers go on and intake opens. Parked jobs come back within a second or so, the oldest first.
                """,
            flags: selectors + [
                .switch("all", "lift every order"),
                .init("only", "ORDER", "pause or drain: leave the other one as it is"),
            ], run: resume),
        DrainCommand.command, PurgeCommand.command, PromoteCommand.command,
        Command(
            words: ["queues", "orders"], summary: "list what is paused or drained, by whom, why and until when"
        ) {
            _, session in
            let orders = try await session.administration().orders()
            return Answer(document: .list(orders.map { Document($0) }), empty: "nothing is paused or drained")
        },
    ]

    /// One for each scope, in this order: lane, kind, organization.
    static let selectors = [
        Command.Flag("lane", "L", "verify.live, verify, write.live or write"),
        Command.Flag("kind", "K", "a kind of job, such as identify"),
        Command.Flag("org", "O", "id of an organization"),
    ]

    private static let columns = [
        "lane", "waiting", "pending", "due", "parked", "dead", "oldestWaitingMs", "paused",
    ]
    private static let watchMilliseconds: Int64 = 1_000

    // MARK: - Show

    private static func show(_ line: Invocation, _ session: Session) async throws -> Answer {
        guard line.has("watch") else { return try await answer(session) }
        guard !line.json else { throw OpsError(.usage, "--watch is for people: it has no --json") }
        // Ctrl-C is how a watch ends, and no failure.
        signal(SIGINT) { _ in _exit(ExitCode.success) }
        let loop = try session.administration().installation.loop
        let redraw = isatty(STDOUT_FILENO) == 1 ? "\u{1b}[H\u{1b}[J" : "\n"
        var text = ""
        repeat {
            do {
                text = try await answer(session).text ?? ""
            } catch {
                text = "ratchet: \(SafeText.escaped(OpsError(error).message))\n"
            }
            guard session.show(redraw + text) else { break }
            _ = try? await loop.run { await loop.sleep(milliseconds: watchMilliseconds) }
        } while true
        return Answer(document: .null, text: "")
    }

    private static func answer(_ session: Session) async throws -> Answer {
        let administration = try session.administration()
        let (found, inPostgres) = try await administration.queues()
        let place: Document = .string(inPostgres ? "postgres" : "redis")
        let lanes = Document.list(found.map { Document($0).adding(["deadIn": place]) })
        let orders = try await administration.orders().filter { $0.scope != .lane || $0.action == .drain }
        let lines = orders.map { order in
            "\(order.scope.rawValue) \(order.target) is \(order.action == .pause ? "paused" : "drained, its intake closed")"
                + "\(until(order)): \(SafeText.escaped(order.reason))\n"
        }
        let table = TextRendering(columns: ["": columns]).text(lanes)
        let note = "dead: only what lies in Redis; Postgres did not answer in time\n"
        return Answer(document: lanes, text: table + (inPostgres ? "" : note) + lines.joined())
    }

    private static func until(_ order: QueueOrder) -> String {
        order.until.map { " until \(Timestamps.rfc3339(milliseconds: $0))" } ?? ""
    }

    // MARK: - Orders

    private static func pause(_ line: Invocation, _ session: Session) async throws -> Answer {
        let (scope, target) = try selected(line)
        let milliseconds = try line["for"].map(duration)
        let outcome = try await session.administration().pause(
            scope, target, reason: line.required("reason"), milliseconds: milliseconds)
        return Answer(
            document: .list(outcome.orders.map { Document($0) }),
            text: outcome.orders.map { "\(scope.rawValue) \(target) is paused\(until($0))\n" }.joined(),
            warnings: outcome.warnings)
    }

    private static func resume(_ line: Invocation, _ session: Session) async throws -> Answer {
        let administration = try session.administration()
        let outcome: Administration.OrderOutcome
        let only = line["only"].flatMap { QueueOrder.Action(rawValue: $0) }
        if let text = line["only"], only == nil {
            throw OpsError(.usage, "--only must be pause or drain; it is '\(text)'")
        }
        var nothing =
            only == .drain ? "nothing was drained; nothing changed\n" : "nothing was paused; nothing changed\n"
        if line.has("all") {
            guard selectors.allSatisfy({ !line.has($0.name) }) else {
                throw OpsError(.usage, "--all and a lane, kind or organization exclude each other")
            }
            outcome = try await administration.resumeAll(only: only)
        } else {
            let (scope, target) = try selected(line)
            outcome = try await administration.resume(scope, target, only: only)
            nothing = "\(scope.rawValue) \(target) was not \(only == .drain ? "drained" : "paused"); nothing changed\n"
        }
        let lines = outcome.orders.map { order in
            let what = order.action == .pause ? "goes on" : "is open for intake again"
            return "\(order.scope.rawValue) \(order.target) \(what)\n"
        }
        return Answer(
            document: .list(outcome.orders.map { Document($0) }), text: lines.isEmpty ? nothing : lines.joined(),
            warnings: outcome.warnings)
    }

    /// - Parameter other: a flag that may stand instead.
    static func selected(_ line: Invocation, or other: String? = nil) throws(OpsError) -> (QueueOrder.Scope, String) {
        let given = zip([QueueOrder.Scope.lane, .kind, .organization], selectors).compactMap { scope, flag in
            line[flag.name].map { (scope, $0) }
        }
        guard given.count == 1 else {
            throw OpsError(
                .usage,
                "name one of --lane L, --kind K\(other == nil ? " and" : ",") --org O\(other.map { " and \($0)" } ?? "")"
            )
        }
        return given[0]
    }

    /// Longer is no pause but a decision.
    private static let longestMilliseconds: Int64 = 366 * 86_400_000

    /// - Returns: milliseconds.
    static func duration(_ text: String) throws(OpsError) -> Int64 {
        let units: [Character: Int64] = ["s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000]
        guard let unit = text.last.flatMap({ units[$0] }), let count = Int64(text.dropLast()), count > 0,
            count <= longestMilliseconds / unit
        else {
            throw OpsError(
                .usage, "--for must be a whole number with s, m, h or d, at most 366d; it is '\(text)'")
        }
        return count * unit
    }
}
