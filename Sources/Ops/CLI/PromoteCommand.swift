internal import OpsCore
internal import Service

/// `ratchet queues promote`.
enum PromoteCommand {
    static let command = Command(
        words: ["queues", "promote"], summary: "run the delayed jobs of a lane now",
        detail: """
            After a long outage: what waits for its next try comes back into its lane at once. Attempts stay counted; what fails
            again is delayed again. It may be stopped at any moment: the same command goes on with what is left.
            """,
        flags: [.init("lane", "L", "verify.live, verify, write.live or write", required: true)], tellsProgress: true
    ) { line, session in
        let administration = try session.administration()
        _ = session.isInterrupted()
        let progress = BulkProgress("promote", session)
        let result = try await administration.promote(line.required("lane")) { moved, total in
            progress.tell(Int(moved), total)
            return !session.isInterrupted()
        }
        return Answer(
            document: .members(["promoted": .int(result.moved), "delayed": .int(result.total)]),
            text: "\(result.moved) of \(result.total) delayed jobs are back in lane \(line.required("lane"))\n",
            exitCode: session.isInterrupted() && result.moved < result.total ? ExitCode.negative : ExitCode.success)
    }
}
