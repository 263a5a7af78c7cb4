internal import OpsCore
internal import Service

/// One command: what is typed, what help says of it, and what it does. The table of commands is made of these; nothing
/// about a command stands anywhere else.
struct Command: Sendable {
    /// What follows the words, each exactly once, but for one of many at the end.
    struct Positional: Sendable {
        /// In capitals, as help shows it.
        let name: String
        let meaning: String
        /// Any number of them, none included. Only the last may be so.
        let isMany: Bool

        init(_ name: String, _ meaning: String, many: Bool = false) {
            self.name = name
            self.meaning = meaning
            isMany = many
        }
    }

    struct Flag: Sendable {
        /// Without the dashes.
        let name: String
        /// What stands for its value in help; empty for a flag that takes none.
        let value: String
        let meaning: String
        let isRequired: Bool

        var isSwitch: Bool { value.isEmpty }
        /// As help shows it.
        var synopsis: String { isSwitch ? "--\(name)" : "--\(name) \(value)" }

        /// A flag that is there or not.
        static func `switch`(_ name: String, _ meaning: String) -> Flag { Flag(name, "", meaning) }

        init(_ name: String, _ value: String, _ meaning: String, required: Bool = false) {
            self.name = name
            self.value = value
            self.meaning = meaning
            isRequired = required
        }
    }

    /// One or two words after `ratchet`.
    let words: [String]
    /// Half a line, for lists of commands.
    let summary: String
    /// More, for the command's own help; lines of at most 100 characters.
    var detail = ""
    var positionals: [Positional] = []
    var flags: [Flag] = []
    /// It tells by itself that it is at work.
    var tellsProgress = false
    let run: @Sendable (Invocation, Session) async throws -> Answer

    var name: String { words.joined(separator: " ") }
}

/// A command line that fits its command.
struct Invocation: Equatable, Sendable {
    /// In the order of the command's positionals.
    var positionals: [String] = []
    /// By flag name.
    var values: [String: String] = [:]
    var json = false

    /// A required positional: the parser has seen that it is there.
    subscript(_ index: Int) -> String { positionals[index] }
    /// The value of a flag.
    subscript(_ flag: String) -> String? { values[flag] }
    /// Whether a flag was given.
    func has(_ flag: String) -> Bool { values[flag] != nil }
    /// The value of a required flag, which the parser has seen.
    func required(_ flag: String) -> String { values[flag] ?? "" }
}

/// What a command found, for both forms of output.
struct Answer: Sendable {
    /// For `--json`, and for people when `text` is nil.
    var document: Document
    /// For people, instead of the document.
    var text: String?
    /// The columns of a table for people, by the member that holds the list (empty: the document itself); all where
    /// none are named.
    var columns: [String: [String]] = [:]
    /// What to say when the document is an empty list.
    var empty = "none"
    /// Lines for standard error that don't make it a failure.
    var warnings: [String] = []
    var exitCode: Int32 = ExitCode.success
}
