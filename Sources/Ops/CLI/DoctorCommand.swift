internal import EventLoop
internal import OpsCore
internal import Service

/// `ratchet doctor`.
enum DoctorCommand {
    static let command = Command(
        words: ["doctor"], summary: "say what is wrong with the installation, and how to mend it",
        detail: """
            Looks at the configuration, certificates, Redis, Postgres, the processes of this machine, the proxy in front and the
            clocks; changes nothing. Run it with the environment that the processes have. Exit code 0: all well, or warnings
            only; 1: a check failed; 3: Redis or Postgres is away.
            """
    ) { _, session in
        let loop = EventLoop(name: "doctor", time: session.time)
        let diagnosis = await Doctor(environment: session.environment, loop: loop).examine()
        loop.stop()
        return Answer(document: Document(diagnosis), text: text(diagnosis), exitCode: diagnosis.exitCode)
    }

    /// One line a check, and what to do about it below.
    private static func text(_ diagnosis: Diagnosis) -> String {
        let width = diagnosis.checks.map(\.name.count).max() ?? 0
        return diagnosis.checks.map { check in
            let status = check.status.rawValue + String(repeating: " ", count: 4 - check.status.rawValue.count)
            let name = check.name + String(repeating: " ", count: width - check.name.count)
            var text = "\(status)  \(name)  \(SafeText.escaped(check.message))\n"
            if let remedy = check.remedy {
                text += String(repeating: " ", count: width + 8) + "mend: \(SafeText.escaped(remedy))\n"
            }
            return text
        }.joined()
    }
}
