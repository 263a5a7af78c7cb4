import OpsCore
import Testing

@testable import CLI

@Suite struct ParserTests {
    private let parser = CommandLineParser(commands: CommandTable.all)

    private enum Outcome: Equatable {
        case run(String, [String], [String: String], json: Bool)
        case help([String])
        case version(json: Bool)
        case usage(String)
    }

    private func outcome(_ line: [String]) -> Outcome {
        do throws(CommandLineParser.UsageError) {
            switch try parser.parse(line) {
            case .run(let command, let invocation):
                return .run(command.name, invocation.positionals, invocation.values, json: invocation.json)
            case .help(let words): return .help(words)
            case .version(let json): return .version(json: json)
            }
        } catch {
            return .usage(error.message)
        }
    }

    @Test func commandLinesAreReadAsTheyStandInTheTable() {
        let table: [([String], Outcome)] = [
            (["queues"], .run("queues", [], [:], json: false)),
            (["queues", "--json"], .run("queues", [], [:], json: true)),
            (["--json", "queues"], .run("queues", [], [:], json: true)),
            (["orgs", "--json", "list"], .run("orgs list", [], [:], json: true)),
            (
                ["orgs", "create", "demo", "--name", "The Demo"],
                .run("orgs create", ["demo"], ["name": "The Demo"], json: false)
            ),
            (["orgs", "create", "--name=a=b", "demo"], .run("orgs create", ["demo"], ["name": "a=b"], json: false)),
            (["orgs", "create", "--name=", "demo"], .run("orgs create", ["demo"], ["name": ""], json: false)),
            (["orgs", "create", "--name=--x", "demo"], .run("orgs create", ["demo"], ["name": "--x"], json: false)),
            (["orgs", "create", "--name", "-x", "demo"], .run("orgs create", ["demo"], ["name": "-x"], json: false)),
            (
                ["customers", "show", "$anon_1", "--org", "o"],
                .run("customers show", ["$anon_1"], ["org": "o"], json: false)
            ),
            (
                ["customers", "show", "--org", "o", "--", "--json"],
                .run("customers show", ["--json"], ["org": "o"], json: false)
            ),
            (
                ["customers", "show", "--org", "o", "--", "-h"],
                .run("customers show", ["-h"], ["org": "o"], json: false)
            ),
            (
                ["customers", "show", "queues", "--org", "o"],
                .run("customers show", ["queues"], ["org": "o"], json: false)
            ),
            (["verify", "jws", "-"], .run("verify jws", ["-"], [:], json: false)),
            (["--help"], .help([])), (["-h"], .help([])), (["help"], .help([])),
            (["help", "apps"], .help(["apps"])), (["help", "apps", "list"], .help(["apps", "list"])),
            (["apps", "--help"], .help(["apps"])), (["--help", "apps", "list"], .help(["apps", "list"])),
            (["apps", "connect", "--org", "--help"], .usage("--org needs a value: --org O")),
            (["apps", "connect", "x", "-h", "--nonsense"], .help(["apps", "connect"])),
            (["--version"], .version(json: false)), (["--version", "--json"], .version(json: true)),
            ([], .usage("a command is missing")),
            (["apps"], .usage("after apps comes one of: connect, disconnect, list, unresolved, attest")),
            (["app"], .usage("unknown command 'app'; did you mean 'apps'?")),
            (["orgs", "creat", "x"], .usage("unknown command 'orgs creat'; did you mean 'orgs create'?")),
            (["zzzzzzzz"], .usage("unknown command 'zzzzzzzz'")),
            (["help", "zzzzzzzz"], .usage("unknown command 'zzzzzzzz'")),
            (["queues", "--jsn"], .usage("unknown flag --jsn; did you mean --json?")),
            (["apps", "list", "--orgg=x"], .usage("unknown flag --orgg; did you mean --org?")),
            (["--nonsense"], .usage("unknown flag --nonsense")),
            (["queues", "-x"], .usage("unknown flag -x")),
            (["queues", "--json=yes"], .usage("--json takes no value")),
            (["queues", "more"], .usage("unexpected argument 'more'")),
            (
                ["orgs", "create"],
                .usage(
                    "ID is missing: 1 to 63 of a-z, 0-9, _ and -, a letter or digit first; never changes")
            ),
            (["customers", "show", "u"], .usage("--org O is missing: id of the organization")),
            (["apps", "list", "--org"], .usage("--org needs a value: --org O")),
            (["apps", "list", "--org", "a", "--org", "b"], .usage("--org is given twice")),
        ]
        for (line, expected) in table { #expect(outcome(line) == expected, "\(line)") }
    }

    @Test func everyCommandsHelpExitsWithZeroAndNamesItsFlags() async {
        let tool = CommandLineTool(session: Session(environment: [:]))
        let overview = await tool.run(["help"]).text
        for command in CommandTable.all {
            let output = await tool.run(command.words + ["--help"])
            #expect(output.exitCode == 0 && output.errors.isEmpty)
            #expect(output.text.hasPrefix("Usage: ratchet \(command.name)"))
            for name in command.flags.map(\.name) + ["json", "help"] {
                #expect(output.text.contains("\n  --\(name)"), "\(command.name) --\(name)")
            }
            for positional in command.positionals { #expect(output.text.contains("\n  \(positional.name) ")) }
            #expect(output.text.contains("Exit codes: 0 done, 1 the answer is no, 2 wrong arguments or settings"))
            #expect(overview.contains("\n  \(command.name)"))
            #expect(await tool.run(["help"] + command.words) == output)
        }
    }

    @Test func namesOfCommandsAndFlagsAreUnambiguous() {
        let names = CommandTable.all.map(\.name)
        #expect(Set(names).count == names.count)
        for command in CommandTable.all {
            let flags = command.flags.map(\.name) + CommandLineParser.common.map(\.name)
            #expect(Set(flags).count == flags.count, "\(command.name)")
            // A command with arguments that were the beginning of another could not tell them from the other's words.
            let longer = CommandTable.all.filter {
                $0.words.count > command.words.count && $0.words.starts(with: command.words)
            }
            #expect(longer.isEmpty || command.positionals.isEmpty, "\(command.name)")
        }
    }

    @Test func aUsageErrorGoesToStandardErrorWithAHintAndToJSON() async throws {
        let tool = CommandLineTool(session: Session(environment: [:]))
        let plain = await tool.run(["apps", "list", "--ogr", "x"])
        #expect(plain.exitCode == 2 && plain.text.isEmpty)
        #expect(
            plain.errors == "ratchet: unknown flag --ogr; did you mean --org? (see: ratchet apps list --help)\n")
        let json = await tool.run(["apps", "list", "--ogr", "x", "--json"])
        #expect(json.exitCode == 2 && json.errors == plain.errors)
        let document = try parsed(json.text)
        #expect(document["error"] == .string("usage"))
        #expect(document["message"] != nil)
    }
}
