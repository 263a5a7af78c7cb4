internal import Bytes
internal import EventLoop
internal import OpsCore
internal import Service
internal import Store

/// `ratchet sweep ...`: orders to all sweepers at once.
enum SweepCommands {
    static let all = [status, runNow, pause, resume]

    private static let status = Command(
        words: ["sweep", "status"], summary: "show how the exchange of AdServices tokens with Apple stands",
        detail: """
            pending: tokens that have not ended. due: those of them that could be asked about now; they wait while the sweep is
            paused by hand or held because Apple asked for it or can't be reached. asking: those that a sweeper has in hand.
            """
    ) { _, session in
        let administration = try session.administration()
        let status = try await administration.sweepStatus()
        return Answer(document: Document(status, now: session.time.wallMicroseconds))
    }

    private static let runNow = Command(
        words: ["sweep", "run-now"], summary: "ask Apple now about tokens that wait for their next ask",
        detail: """
            Each ask uses its rung of the ladder up, as if its time had come: a token has ten. What waits for its first ask, is
            being asked about or has no ask left is not touched. Pauses and holds stay. It may be stopped at any moment: the
            same command goes on with what is left.
            Exit code 0: done; 1: stopped before its end.
            """,
        flags: [
            .init("org", "O", "of this organization only"),
            .init("app", "A", "of this app only: its id or its bundle id"),
        ], tellsProgress: true
    ) { line, session in
        let administration = try session.administration()
        _ = session.isInterrupted()
        let progress = BulkProgress("sweep run-now", session)
        let run = try await administration.runSweep(organization: line["org"], app: line["app"]) { run in
            progress.tell(run.moved, run.total)
            return !session.isInterrupted()
        }
        let status = try await administration.sweepStatus()
        let rest = run.isComplete ? "" : "; it was stopped, and the same command goes on from there"
        return Answer(
            document: .members([
                "moved": .int(Int64(run.moved)), "matched": .int(run.total), "complete": .bool(run.isComplete),
            ]),
            text: "\(run.moved) tokens are due now\(rest)\n", warnings: hindrances(status),
            exitCode: run.isComplete ? ExitCode.success : ExitCode.negative)
    }

    private static let pause = Command(
        words: ["sweep", "pause"], summary: "ask Apple about no token",
        detail: """
            Holds for all sweepers within a second or so; what one has in hand is asked to its end. Tokens go on coming in and
            growing old: Apple answers for 24 hours, and what grows older meanwhile expires when the pause is over.
            """,
        flags: [
            .init("reason", "R", "for others and the audit log", required: true),
            .init("for", "DURATION", "such as 90s, 30m, 12h or 7d; until it is lifted when absent"),
        ]
    ) { line, session in
        let milliseconds = try line["for"].map(QueueCommands.duration)
        let replaced = try await session.administration().pauseSweep(
            reason: line.required("reason"), milliseconds: milliseconds)
        let status = try await session.administration().sweepStatus()
        return Answer(
            document: Document(status, now: session.time.wallMicroseconds),
            text: "the sweep is paused\(status.pause.flatMap { until($0) } ?? "")\n",
            warnings: replaced.map { pause in
                ["this replaces the pause of \(pause.by)\(until(pause) ?? " until it is lifted"): \(pause.reason)"]
            } ?? [])
    }

    private static let resume = Command(
        words: ["sweep", "resume"], summary: "lift the pause by hand",
        detail: "A hold because Apple asked for it or can't be reached stays, and ends by itself."
    ) { _, session in
        let lifted = try await session.administration().resumeSweep()
        let status = try await session.administration().sweepStatus()
        return Answer(
            document: Document(status, now: session.time.wallMicroseconds),
            text: lifted == nil ? "the sweep was not paused\n" : "the sweep goes on\n", warnings: hindrances(status))
    }

    /// Nil for a pause that stands until it is lifted.
    private static func until(_ pause: AdServicesSweepStatus.Pause) -> String? {
        pause.until.map { " until \(Timestamps.rfc3339(milliseconds: $0 / 1_000))" }
    }

    private static func hindrances(_ status: AdServicesSweepStatus) -> [String] {
        var lines: [String] = []
        if let pause = status.pause {
            lines.append("the sweep is paused by \(pause.by)\(until(pause) ?? ""): \(pause.reason)")
        }
        if let until = status.heldUntil {
            lines.append(
                "the sweep is held until \(Timestamps.rfc3339(milliseconds: until / 1_000))"
                    + (status.holdReason.map { ": \($0)" } ?? ""))
        }
        return lines
    }
}
