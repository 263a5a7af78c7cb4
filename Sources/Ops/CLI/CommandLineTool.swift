internal import EventLoop
internal import OpsCore
internal import Service

/// The whole of `ratchet` but its process: from arguments to texts and an exit code.
struct CommandLineTool: Sendable {
    let session: Session

    struct Output: Equatable, Sendable {
        /// For standard output.
        var text = ""
        /// For standard error.
        var errors = ""
        var exitCode: Int32 = ExitCode.success
    }

    /// After so long without an answer an operator is told that the command still runs.
    private static let patienceSeconds: Int64 = 2

    func run(_ arguments: [String]) async -> Output {
        let json = arguments.prefix { $0 != "--" }.contains("--json")
        let parser = CommandLineParser(commands: CommandTable.all)
        do {
            switch try parser.parse(arguments) {
            case .help(let words): return Output(text: Help(commands: parser.commands).text(words))
            case .version(let json): return Self.output(CommandTable.version, json: json)
            case .run(let command, let invocation): return await run(command, invocation)
            }
        } catch {
            let help = (["ratchet"] + error.words + ["--help"]).joined(separator: " ")
            return Self.output(OpsError(.usage, "\(error.message) (see: \(help))"), json: json)
        }
    }

    private func run(_ command: Command, _ invocation: Invocation) async -> Output {
        // On a thread of its own: it speaks also when everything else is busy.
        let loop = EventLoop(name: "patience")
        let watches = invocation.has("watch") || command.tellsProgress
        let patience = loop.spawn { [session] in
            var seconds = Self.patienceSeconds
            await loop.sleep(milliseconds: Self.patienceSeconds * 1_000)
            while !Task.isCancelled && !watches {
                session.progress("\(command.name): still at work after \(seconds) s")
                seconds += Self.patienceSeconds
                await loop.sleep(milliseconds: Self.patienceSeconds * 1_000)
            }
        }
        let output: Output
        do {
            output = Self.output(try await command.run(invocation, session), json: invocation.json)
        } catch {
            output = Self.output(OpsError(error), json: invocation.json)
        }
        patience.cancel()
        await patience.value
        loop.stop()
        await session.close()
        return output
    }

    private static func output(_ answer: Answer, json: Bool) -> Output {
        let text: String
        if json {
            text = answer.document.jsonText
        } else {
            text =
                answer.text ?? TextRendering(columns: answer.columns, empty: answer.empty).text(answer.document)
        }
        let warnings = answer.warnings.map { "ratchet: warning: \(SafeText.escaped($0))\n" }.joined()
        return Output(text: text, errors: warnings, exitCode: answer.exitCode)
    }

    private static func output(_ error: OpsError, json: Bool) -> Output {
        let document = Document.members([
            "error": .string(error.code.rawValue), "message": .string(error.message),
        ])
        return Output(
            text: json ? document.jsonText : "", errors: "ratchet: \(SafeText.escaped(error.message))\n",
            exitCode: error.exitCode)
    }
}
