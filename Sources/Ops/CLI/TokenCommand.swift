internal import Bytes
internal import EventLoop
internal import Glibc
internal import OpsCore
internal import Service

/// `ratchet verify jws`.
enum TokenCommand {
    static let command = Command(
        words: ["verify", "jws"], summary: "judge one signed transaction as the verifier does",
        detail: """
            Answers why a purchase is unverified. Prints whether the token is verified, the reason when not, and what its
            payload says, proven or not. Exit code 0: verified, 1: not. Tokens of Xcode's own testing are never verified.
            Without --bundle or --environment these are not checked, and the output says so.
            """,
        positionals: [.init("FILE", "file with a JWS in compact form, or - for standard input")],
        flags: [
            .init("bundle", "B", "the bundle id it must be for"),
            .init("environment", "E", "the environment it must be of: Production or Sandbox"),
            .init("root", "PEM", "file of root certificates instead of Apple's"),
            .init("at", "RFC3339", "what the clock says, such as 2026-11-30T02:00:00Z; now when absent"),
        ],
        run: run)

    private static func run(_ line: Invocation, _ session: Session) async throws -> Answer {
        let question = TokenInspection.Question(
            bundleID: line["bundle"], environment: line["environment"],
            nowMilliseconds: try moment(line, session))
        let inspection =
            if let path = line["root"] {
                try TokenInspection(rootPEM: try read(path))
            } else {
                try TokenInspection(settings: try session.settings())
            }
        let finding = inspection.judge(try read(line[0]), question)
        let document = Document(finding).adding([
            "checkedAt": .time(milliseconds: question.nowMilliseconds),
            "roots": .list(inspection.rootFingerprints.map { .string($0) }),
        ])
        return Answer(
            document: document, text: text(finding, document),
            warnings: finding.trimmed
                ? ["white space around the token was ignored; an app that sends it so proves nothing"] : [],
            exitCode: finding.verified ? ExitCode.success : ExitCode.negative)
    }

    /// The claims come last, under a heading that says what they are worth.
    private static func text(_ finding: TokenInspection.Finding, _ document: Document) -> String {
        guard case .object(let members) = document else { return "" }
        let rendering = TextRendering()
        let head = members.filter {
            !["claims", "trimmed"].contains($0.name) && !($0.name == "detail" && finding.verified)
        }
        var text = rendering.text(.object(head))
        text += finding.verified ? "claims, proven:\n" : "claims, NOT proven:\n"
        if finding.claims == .null { return text + "  (the payload can't be read)\n" }
        for line in rendering.text(finding.claims).split(separator: "\n") { text += "  \(line)\n" }
        return text
    }

    /// What the clock says by `--at`, else the clock.
    static func moment(_ line: Invocation, _ session: Session) throws(OpsError) -> Int64 {
        guard let text = line["at"] else { return session.time.wallMilliseconds }
        guard let time = Timestamps.milliseconds(rfc3339: text) else {
            throw OpsError(.usage, "--at must be an RFC 3339 time such as 2026-11-30T02:00:00Z; it is '\(text)'")
        }
        return time
    }

    /// The bytes of a file, or of standard input for `-`.
    static func read(_ path: String) throws(OpsError) -> [UInt8] {
        if path == "-" {
            guard let bytes = TextFile.read(descriptor: STDIN_FILENO) else {
                throw OpsError(.usage, "standard input can't be read, or holds more than 1 MiB")
            }
            return bytes
        }
        guard let bytes = TextFile.read(path) else {
            guard access(path, F_OK) == 0 else { throw OpsError(.notFound, "no file '\(path)'") }
            throw OpsError(.usage, "'\(path)' can't be read, or holds more than 1 MiB")
        }
        return bytes
    }
}
