internal import OpsCore
internal import RedisQueue
internal import Service

/// `ratchet queues purge`.
enum PurgeCommand {
    static let command = Command(
        words: ["queues", "purge"], summary: "throw waiting, delayed and parked jobs away for good",
        detail: """
            These are acknowledged writes: phones do not send them again. So it needs a reason and --yes; without --yes it only
            counts. What is purged must be paused, or workers would be after the same jobs; what a worker has in hand is left
            alone. Flags together mean jobs that fit all of them. Intake goes on: drain it first if nothing should be left.
            It may be stopped at any moment: the same command goes on with what is left. Its beginning and its end with the
            counts are in the audit log.
            Exit code 0: done; 1: stopped before its end.
            """,
        flags: QueueCommands.selectors + [
            .init("reason", "R", "for the audit log; needed with --yes"), .switch("yes", "really do it"),
        ], tellsProgress: true, run: run)

    private static func run(_ line: Invocation, _ session: Session) async throws -> Answer {
        let filter = try Administration.purgeFilter(
            lane: line["lane"], kind: line["kind"], organization: line["org"])
        let isReal = line.has("yes")
        guard !isReal || line.has("reason") else {
            throw OpsError(.usage, "--reason R is missing: for the audit log")
        }
        let administration = try session.administration()
        _ = session.isInterrupted()
        let total = try await administration.entriesToSearch(filter)
        let progress = BulkProgress(isReal ? "purge" : "count", session)
        let tell: @Sendable (QueuePurge.Counts) -> Bool = { counts in
            progress.tell(Int(counts.looked), total, note: ", \(counts.fitting) fit")
            return !session.isInterrupted()
        }
        guard isReal else {
            return try await dryRun(
                administration.countPurge(filter, progress: tell), filter, administration)
        }
        let counts = try await administration.purgeQueue(filter, reason: line.required("reason"), progress: tell)
        let rest = counts.isComplete ? "" : "; it was stopped, and the same command goes on from there"
        return Answer(
            document: document(counts, dryRun: false), text: "\(counts.fitting) jobs are gone\(parts(counts))\(rest)\n",
            exitCode: counts.isComplete ? ExitCode.success : ExitCode.negative)
    }

    private static func dryRun(
        _ counts: QueuePurge.Counts, _ filter: QueuePurge.Filter, _ administration: Administration
    ) async throws -> Answer {
        let flags = filter.pauses.map { "\(Administration.flag($0.scope)) \($0.target)" }
        var lines = "\(counts.fitting) jobs would be thrown away\(parts(counts)); nothing was done."
        lines += counts.isComplete ? " To do it:\n" : " The count was stopped before its end. To do it:\n"
        if try await administration.pauses(of: filter).isEmpty, let first = flags.first {
            lines += "  ratchet queues pause \(first) --reason R\n"
        }
        lines += "  ratchet queues purge \(flags.joined(separator: " ")) --reason R --yes\n"
        return Answer(
            document: document(counts, dryRun: true), text: lines,
            exitCode: counts.isComplete ? ExitCode.success : ExitCode.negative)
    }

    private static func parts(_ counts: QueuePurge.Counts) -> String {
        counts.fitting == 0
            ? "" : " (\(counts.waiting) waiting, \(counts.due) delayed, \(counts.parked) parked)"
    }

    private static func document(_ counts: QueuePurge.Counts, dryRun: Bool) -> Document {
        .members([
            dryRun ? "matched" : "purged": .int(counts.fitting), "dryRun": .bool(dryRun),
            "waiting": .int(counts.waiting), "due": .int(counts.due), "parked": .int(counts.parked),
            "complete": .bool(counts.isComplete),
        ])
    }
}
