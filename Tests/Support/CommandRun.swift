import Foundation
import Glibc

/// One run of a program: what it printed and how it ended.
///
/// Not Foundation's Process: that learns of an end from a socket which a child started at the same moment may have
/// inherited, and then waits for that child too, here a database server.
package struct CommandRun: Sendable {
    /// The exit status, or 128 and the number of the signal that ended it.
    package let code: Int32
    package let output: String
    package let errors: String

    package struct Failure: Error { package let message: String }

    /// Runs on a thread of its own, since it waits.
    package static func of(
        _ program: String, _ arguments: [String], _ environment: [String: String], input: String = ""
    ) async throws -> CommandRun {
        try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread {
                continuation.resume(with: Result { try run(program, arguments, environment, input) })
            }
        }
    }

    /// The same on the calling thread, which it blocks.
    package static func run(
        _ program: String, _ arguments: [String], _ environment: [String: String], _ input: String = ""
    ) throws -> CommandRun {
        let files = (0..<3).map { _ in "/tmp/ratchet-ops-io-\(UUID().uuidString)" }
        defer { for file in files { unlink(file) } }
        for (file, text) in zip(files, [input, "", ""]) { try Data(text.utf8).write(to: URL(fileURLWithPath: file)) }
        let child = try ChildProcess.spawn(program, arguments, environment) { actions in
            for (descriptor, file) in files.enumerated() {
                posix_spawn_file_actions_addopen(
                    &actions, Int32(descriptor), file, descriptor == 0 ? O_RDONLY : O_WRONLY, 0)
            }
        }
        let code = ChildProcess.wait(child)
        return CommandRun(
            code: code, output: try String(contentsOfFile: files[1], encoding: .utf8),
            errors: try String(contentsOfFile: files[2], encoding: .utf8))
    }
}
