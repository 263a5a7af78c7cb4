/// The texts of help, made from the table of commands.
struct Help: Sendable {
    let commands: [Command]

    private static let exitCodes = """
        Exit codes: 0 done, 1 the answer is no, 2 wrong arguments or settings, 3 Redis or Postgres is away,
        4 what was asked for does not exist. Errors are one line on standard error; with --json there is also
        {"error":"usage|configuration|dependency_away|not_found|internal_fault","message":"..."} on standard output.

        """

    /// Help on one command, or on all that begin with these words.
    func text(_ words: [String]) -> String {
        // Words that name nothing (a user id before --help) leave the longest part that does.
        var words = words
        while !words.isEmpty, !commands.contains(where: { $0.words.starts(with: words) }) { words.removeLast() }
        if let command = commands.first(where: { $0.words == words }) { return text(command) }
        let listed = commands.filter { $0.words.starts(with: words) }
        let title = words.isEmpty ? "ratchet: operates an installation of Ratchet.\n\n" : ""
        let prefix = (["ratchet"] + words).joined(separator: " ")
        return title + "Usage: \(prefix) COMMAND [ARGUMENTS] [--json] [--help]\n\nCommands:\n"
            + Self.aligned(listed.map { (Self.synopsis($0, withFlags: false), $0.summary) })
            + "\nratchet help COMMAND tells more. Settings come from the environment (RATCHET_...): ratchet config.\n\n"
            + Self.exitCodes
    }

    private func text(_ command: Command) -> String {
        var text = "Usage: ratchet \(Self.synopsis(command, withFlags: true))\n\n\(command.summary)\n"
        if !command.detail.isEmpty { text += "\n\(command.detail)\n" }
        if !command.positionals.isEmpty {
            text += "\nArguments:\n" + Self.aligned(command.positionals.map { ($0.name, $0.meaning) })
        }
        let flags = command.flags.map { ($0.synopsis, $0.meaning) }
        text += "\nFlags:\n" + Self.aligned(flags + CommandLineParser.common.map { ("--" + $0.name, $0.meaning) })
        return text + "\n" + Self.exitCodes
    }

    /// The words and what follows them.
    static func synopsis(_ command: Command, withFlags: Bool) -> String {
        var parts = command.words + command.positionals.map { $0.isMany ? "[\($0.name)...]" : $0.name }
        for flag in command.flags where withFlags || flag.isRequired {
            parts.append(flag.isRequired ? flag.synopsis : "[\(flag.synopsis)]")
        }
        if withFlags { parts.append("[--json]") }
        return parts.joined(separator: " ")
    }

    private static func aligned(_ rows: [(String, String)]) -> String {
        let width = rows.map(\.0.utf8.count).max() ?? 0
        return rows.map { name, meaning in
            "  \(name)\(String(repeating: " ", count: width - name.utf8.count))  \(meaning)\n"
        }.joined()
    }
}
