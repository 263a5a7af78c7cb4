internal import OpsCore
internal import Service

/// `ratchet verify attestation`.
enum AttestationCommand {
    static let command = Command(
        words: ["verify", "attestation"], summary: "judge one App Attest attestation as the verifier does",
        detail: """
            Answers why a device can't enrol. Prints whether the attestation is good, the reason when not, and what Apple
            says of the key. Exit code 0: good, 1: not. Its certificate lives for days or months: judge an old one with
            --at. Without --environment both are accepted, and the output says so.
            """,
        positionals: [.init("FILE", "file with the attestation object in base64, or - for standard input")],
        flags: [
            .init("key-id", "ID", "the key id as the SDK sent it, base64", required: true),
            .init(
                "client-data-hash", "HASH",
                "what the key was attested with, base64: SHA-256 of the challenge's bytes, decoded from base64url",
                required: true),
            .init("team", "T", "the team id of the app", required: true),
            .init("bundle", "B", "the bundle id of the app", required: true),
            .init("environment", "E", "production or development"),
            .init("root", "PEM", "file of root certificates instead of Apple's"),
            .init("at", "RFC3339", "what the clock says, such as 2026-11-30T02:00:00Z; now when absent"),
        ],
        run: run)

    private static func run(_ line: Invocation, _ session: Session) async throws -> Answer {
        let question = AttestationInspection.Question(
            keyID: line.required("key-id"), clientDataHash: line.required("client-data-hash"),
            teamID: line.required("team"), bundleID: line.required("bundle"), environment: line["environment"],
            nowMilliseconds: try TokenCommand.moment(line, session))
        let inspection =
            if let path = line["root"] {
                try AttestationInspection(rootPEM: try TokenCommand.read(path))
            } else {
                try AttestationInspection(settings: try session.settings())
            }
        let document = try inspection.judge(try TokenCommand.read(line[0]), question)
        return Answer(
            document: document, exitCode: document["verified"] == .bool(true) ? ExitCode.success : ExitCode.negative)
    }
}
