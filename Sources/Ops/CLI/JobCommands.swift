internal import OpsCore
internal import Service

/// Questions about single jobs and about what was done by hand.
enum JobCommands {
    static let show = Command(
        words: ["jobs", "show"], summary: "say where a job is now",
        detail: """
            waiting, pending (a worker holds it), due (delayed), parked, dead; ended (it was dead, was put back or purged, and
            is in none of these places any more); absent (in none of these places, nor among the letters: it ended, was
            lost with Redis' data, or never was, which nobody can tell, since Redis forgets a job in the step that ends it);
            or unknown when the lanes hold more than is looked at. Exit code 1: unknown; 4: its stamp is yet to come.
            """,
        positionals: [.init("ID", "PARTITION-STAMP, as ratchet dead list shows it under job")]
    ) { line, session in
        let job = try await session.administration().job(id: line[0])
        return Answer(
            document: Document(job),
            columns: ["letters": ["id", "diedAt", "lane", "reason", "state", "changedAt"]],
            exitCode: job.state == .unknown ? ExitCode.negative : ExitCode.success)
    }

    static let audit = Command(
        words: ["audit", "list"], summary: "list what was changed by hand, newest first",
        flags: [.init("org", "O", "of this organization only"), DeadLetterCommands.limitFlag]
    ) { line, session in
        let entries = try await session.administration().audit(
            organization: line["org"], limit: DeadLetterCommands.limit(line))
        return Answer(
            document: .list(entries.map { Document($0) }), empty: "nothing was changed by hand")
    }
}
