internal import Glibc
internal import OpsCore
internal import Service

/// ratchet: the command line of operators.
@main
struct Main {
    static func main() async {
        StandardOutput.ignoreClosedPipes()
        let isWatched = isatty(STDERR_FILENO) == 1
        let clear = isWatched ? "\r\u{1b}[K" : ""
        let session = Session(
            environment: Settings.processEnvironment(), isWatched: isWatched,
            progress: { StandardOutput.complain("\(clear)ratchet: \($0)\n") },
            redraw: { StandardOutput.complain(isWatched ? "\(clear)ratchet: \($0)" : "ratchet: \($0)\n") },
            isInterrupted: { Interruption.happened() }, show: { StandardOutput.write($0) })
        let output = await CommandLineTool(session: session).run(Array(CommandLine.arguments.dropFirst()))
        StandardOutput.complain(clear + output.errors)
        StandardOutput.write(output.text)
        // Without exit handlers: other threads are still at work and must not meet globals that are being torn down.
        _exit(output.exitCode)
    }
}
