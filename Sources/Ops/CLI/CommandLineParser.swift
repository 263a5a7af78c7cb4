internal import Service

/// Reads what was typed by the table of commands.
struct CommandLineParser: Sendable {
    let commands: [Command]

    enum Parsed: Sendable {
        case run(Command, Invocation)
        /// Help on the commands whose words begin so; all of them when empty.
        case help([String])
        case version(json: Bool)
    }

    /// A command line that doesn't fit.
    struct UsageError: Error, Equatable, Sendable {
        let message: String
        /// The words to ask help for.
        let words: [String]
    }

    /// Flags that every command has.
    static let common: [(name: String, meaning: String)] = [
        ("json", "answer with JSON on standard output"),
        ("help", "say what this command does"),
    ]

    /// Other names of flags, for hands that type the whole word.
    private static let longNames = ["--organization": "--org"]

    /// - Parameter arguments: without the program's name.
    func parse(_ arguments: [String]) throws(UsageError) -> Parsed {
        var rest = arguments[...]
        var json = false
        // Words come first; only the flags that need no command may stand before or between them.
        var words: [String] = []
        while let argument = rest.first {
            if argument == "--help" || argument == "-h" { return .help(words + Self.leadingWords(rest.dropFirst())) }
            if argument == "--version", words.isEmpty { return .version(json: json || rest.contains("--json")) }
            if argument == "--json" {
                json = true
                rest.removeFirst()
                continue
            }
            if words == ["help"] { break }
            if let command = command(words), !commands.contains(where: { $0.words.starts(with: words + [argument]) }) {
                return try parse(rest, of: command, json: json)
            }
            guard !argument.hasPrefix("-") else {
                throw UsageError(message: unknownFlag(argument, among: ["json", "help", "version"]), words: words)
            }
            guard words + [argument] == ["help"] || hasCommands(words + [argument]) else {
                throw UsageError(message: unknownCommand(words + [argument]), words: words)
            }
            words.append(argument)
            rest.removeFirst()
        }
        if words.first == "help" { return try help(Array(rest)) }
        if let command = command(words) { return try parse(rest, of: command, json: json) }
        let choices = commands.filter { $0.words.starts(with: words) }.map { $0.words[words.count] }
        throw UsageError(
            message: words.isEmpty
                ? "a command is missing" : "after \(words.joined(separator: " ")) comes one of: \(Self.list(choices))",
            words: words)
    }

    private func help(_ words: [String]) throws(UsageError) -> Parsed {
        guard words.isEmpty || hasCommands(words) else {
            throw UsageError(message: unknownCommand(words), words: [])
        }
        return .help(words)
    }

    private func parse(
        _ arguments: ArraySlice<String>, of command: Command, json: Bool
    ) throws(UsageError) -> Parsed {
        func fail(_ message: String) -> UsageError { UsageError(message: message, words: command.words) }
        var invocation = Invocation(json: json)
        var rest = arguments
        var flagsEnded = false
        while let argument = rest.popFirst() {
            if flagsEnded || argument == "-" || !argument.hasPrefix("-") {
                invocation.positionals.append(argument)
                continue
            }
            if argument == "--" {
                flagsEnded = true
                continue
            }
            let (name, attached) = Self.split(argument)
            switch name {
            case "--help", "-h": return .help(command.words)
            case "--json":
                guard attached == nil else { throw fail("--json takes no value") }
                invocation.json = true
            default:
                let full = Self.longNames[name] ?? name
                guard let flag = command.flags.first(where: { "--" + $0.name == full }) else {
                    let known = command.flags.map(\.name) + Self.common.map(\.name)
                    throw fail(unknownFlag(name, among: known))
                }
                guard invocation.values[flag.name] == nil else { throw fail("--\(flag.name) is given twice") }
                if flag.isSwitch {
                    guard attached == nil else { throw fail("--\(flag.name) takes no value") }
                    invocation.values[flag.name] = ""
                } else {
                    invocation.values[flag.name] = try value(attached, of: flag, &rest, command)
                }
            }
        }
        let missing = command.positionals.dropFirst(invocation.positionals.count)
        if let missing = missing.first, !missing.isMany { throw fail("\(missing.name) is missing: \(missing.meaning)") }
        if invocation.positionals.count > command.positionals.count, command.positionals.last?.isMany != true {
            throw fail("unexpected argument '\(invocation.positionals[command.positionals.count])'")
        }
        for flag in command.flags where flag.isRequired && invocation.values[flag.name] == nil {
            throw fail("--\(flag.name) \(flag.value) is missing: \(flag.meaning)")
        }
        return .run(command, invocation)
    }

    private func value(
        _ attached: String?, of flag: Command.Flag, _ rest: inout ArraySlice<String>, _ command: Command
    ) throws(UsageError) -> String {
        if let attached { return attached }
        // A flag in the place of a value is a value forgotten; one that really begins so is written with =.
        guard let next = rest.first, !next.hasPrefix("--") else {
            throw UsageError(
                message: "--\(flag.name) needs a value: --\(flag.name) \(flag.value)", words: command.words)
        }
        rest.removeFirst()
        return next
    }

    private func command(_ words: [String]) -> Command? { commands.first { $0.words == words } }
    private func hasCommands(_ words: [String]) -> Bool { commands.contains { $0.words.starts(with: words) } }

    private static func leadingWords(_ arguments: ArraySlice<String>) -> [String] {
        arguments.prefix { !$0.hasPrefix("-") }.map { $0 }
    }

    private static func split(_ argument: String) -> (name: String, value: String?) {
        guard argument.hasPrefix("--"), let equals = argument.firstIndex(of: "=") else { return (argument, nil) }
        return (String(argument[..<equals]), String(argument[argument.index(after: equals)...]))
    }

    private func unknownFlag(_ argument: String, among known: [String]) -> String {
        let name = Self.split(argument).name
        let nearest = NearestName.nearest(to: String(name.drop { $0 == "-" }), among: known)
        return "unknown flag \(name)" + (nearest.map { "; did you mean --\($0)?" } ?? "")
    }

    private func unknownCommand(_ words: [String]) -> String {
        let names = commands.map(\.name) + ["help"] + Set(commands.map { $0.words[0] }).sorted()
        let typed = words.joined(separator: " ")
        let nearest = NearestName.nearest(to: typed, among: names)
        return "unknown command '\(typed)'" + (nearest.map { "; did you mean '\($0)'?" } ?? "")
    }

    private static func list(_ words: [String]) -> String {
        var seen: [String] = []
        for word in words where !seen.contains(word) { seen.append(word) }
        return seen.joined(separator: ", ")
    }
}

/// The known name that a mistyped one was meant to be.
enum NearestName {
    /// Nil when none is close: at most two edits, or a third of the name.
    static func nearest(to name: String, among known: [String]) -> String? {
        // Long names can't be close, and comparing them would cost the product of the lengths.
        guard name.utf8.count <= 64 else { return nil }
        let measured = known.map { (name: $0, edits: EditDistance.between(Array(name.utf8), Array($0.utf8))) }
        guard let best = measured.min(by: { $0.edits < $1.edits }) else { return nil }
        // A name of two letters is two edits away from everything.
        let most = name.utf8.count < 3 ? 1 : max(2, name.utf8.count / 3)
        return best.edits <= most ? best.name : nil
    }
}
