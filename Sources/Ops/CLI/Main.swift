internal import Glibc
internal import OpsCore
internal import Service

/// ratchet: the command line of operators.
@main
struct Main {
    static func main() async {
        StandardOutput.ignoreClosedPipes()
        let session = Session(
            environment: Settings.processEnvironment(), isWatched: isatty(STDERR_FILENO) == 1,
            progress: { StandardOutput.complain("ratchet: \($0)\n") }, show: { StandardOutput.write($0) })
        let output = await CommandLineTool(session: session).run(Array(CommandLine.arguments.dropFirst()))
        StandardOutput.complain(output.errors)
        StandardOutput.write(output.text)
        // Without exit handlers: other threads are still at work and must not meet globals that are being torn down.
        _exit(output.exitCode)
    }
}
