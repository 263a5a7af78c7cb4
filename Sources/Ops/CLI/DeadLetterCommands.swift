internal import Glibc
internal import OpsCore
internal import Service
internal import Store

/// `ratchet dead ...`.
enum DeadLetterCommands {
    static let all = [list, show, retry, edit, purge]

    private static let filters: [Command.Flag] = [
        .init("lane", "L", "of this lane only"), .init("kind", "K", "of this kind of job only"),
        .init("org", "O", "of this organization only"), .init("reason", "R", "that died for this reason only"),
    ]
    private static let ids = Command.Positional("ID", "of a dead letter, as ratchet dead list shows it")
    private static let resuming = """
        It may be stopped at any moment: the same command goes on where it stopped, and nothing is done twice. It goes
        on when its terminal goes away.
        """

    private static func filter(_ line: Invocation) throws -> DeadLetterFilter {
        try Administration.deadLetterFilter(
            ids: line.positionals, lane: line["lane"], kind: line["kind"], organization: line["org"],
            reason: line["reason"])
    }

    /// - Throws: `.usage` unless 1 to 10,000.
    static func limit(_ line: Invocation) throws(OpsError) -> Int {
        guard let text = line["limit"] else { return 100 }
        guard let limit = Int(text), (1...10_000).contains(limit) else {
            throw OpsError(.usage, "--limit must be a number from 1 to 10000; it is '\(text)'")
        }
        return limit
    }

    static let limitFlag = Command.Flag("limit", "N", "at most so many, 100 when absent")

    private static let list = Command(
        words: ["dead", "list"], summary: "list dead letters, newest first",
        detail: """
            Jobs that will not run again by themselves, and why. A writer copies them to Postgres within a second or two; what
            died this moment comes with the next look.
            """,
        flags: filters + [limitFlag]
    ) { line, session in
        let letters = try await session.administration().deadLetters(filter(line), limit: limit(line))
        return Answer(
            document: .list(letters.map { Document($0) }),
            columns: ["": ["id", "diedAt", "lane", "kind", "organization", "reason", "payloadBytes", "job"]],
            empty: "no dead letters")
    }

    private static let show = Command(
        words: ["dead", "show"], summary: "show one dead letter with its error and payload",
        detail: "With --json the member payload is the exact text, to be changed and given to ratchet dead edit.",
        positionals: [ids]
    ) { line, session in
        let id = try Administration.deadLetterID(line[0])
        return Answer(document: Document(whole: try await session.administration().deadLetter(id: id)))
    }

    private static let retry = Command(
        words: ["dead", "retry"], summary: "put dead letters back into their lanes",
        detail: "Takes ids, or --all with or without filters. Attempts start at 0.\n" + resuming,
        positionals: [.init("ID", ids.meaning, many: true)],
        flags: [.switch("all", "all letters that fit the filters")] + filters, tellsProgress: true
    ) { line, session in
        let filter = try filter(line)
        guard filter.ids == nil || line["all"] == nil else {
            throw OpsError(.usage, "give either ids or --all, not both")
        }
        guard filter.ids != nil || line["all"] != nil else {
            throw OpsError(.usage, "give ids of dead letters, or --all")
        }
        StandardOutput.outliveTerminal()
        let progress = BulkProgress("dead retry", session)
        let result = try await session.administration().retryDeadLetters(filter) { progress.tell($0) }
        return answer(result, "put back", "can't be put back (no readable header, purged, or an old token's)")
    }

    private static let edit = Command(
        words: ["dead", "edit"], summary: "give a dead letter another payload and put it back",
        detail: "A payload that the workers would refuse is refused here, and nothing is changed.",
        positionals: [ids],
        flags: [.init("payload", "FILE", "file with the payload, or - for standard input", required: true)]
    ) { line, session in
        let id = try Administration.deadLetterID(line[0])
        let payload = try TokenCommand.read(line.required("payload"))
        let result = try await session.administration().editDeadLetter(id: id, payload: payload)
        var answer = answer(result, "edited and put back", "was purged")
        // Put back earlier is not what was asked for.
        if result.done == 0 { answer.exitCode = ExitCode.negative }
        return answer
    }

    private static let purge = Command(
        words: ["dead", "purge"], summary: "throw dead letters away for good",
        detail: "Without --yes it only says how many that would be.\n" + resuming,
        positionals: [.init("ID", ids.meaning, many: true)],
        flags: filters + [.switch("yes", "really do it")], tellsProgress: true
    ) { line, session in
        let filter = try filter(line)
        guard line["yes"] != nil else {
            let count = try await session.administration().countDeadLetters(filter)
            return Answer(
                document: .members(["matched": .int(count), "dryRun": .bool(true)]),
                text: "\(count) dead letters would be thrown away; nothing was done. Add --yes to do it.\n")
        }
        StandardOutput.outliveTerminal()
        let progress = BulkProgress("dead purge", session)
        let result = try await session.administration().purgeDeadLetters(filter) { progress.tell($0) }
        return answer(result, "purged", "were retried")
    }

    private static func answer(
        _ result: Administration.BulkResult, _ verb: String, _ why: String
    ) -> Answer {
        var text = "\(result.done) \(verb)"
        if result.before > 0 { text += ", \(result.before) before" }
        if !result.refused.isEmpty { text += "; \(result.refused.count) \(why)" }
        return Answer(
            document: Document(result), text: text + "\n",
            exitCode: result.refused.isEmpty ? ExitCode.success : ExitCode.negative)
    }
}
