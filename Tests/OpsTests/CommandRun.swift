import Foundation
import Glibc

/// One run of a program: what it printed and how it ended.
///
/// Not Foundation's Process: that learns of an end from a socket which a child started at the same moment may have
/// inherited, and then waits for that child too, here a database server.
struct CommandRun: Sendable {
    let code: Int32
    let output: String
    let errors: String

    struct Failure: Error { let message: String }

    /// Runs on a thread of its own, since it waits.
    static func of(
        _ program: String, _ arguments: [String], _ environment: [String: String], input: String = ""
    ) async throws -> CommandRun {
        try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread {
                continuation.resume(with: Result { try run(program, arguments, environment, input) })
            }
        }
    }

    private static func run(
        _ program: String, _ arguments: [String], _ environment: [String: String], _ input: String
    ) throws -> CommandRun {
        let files = (0..<3).map { _ in "/tmp/ratchet-ops-io-\(UUID().uuidString)" }
        defer { for file in files { unlink(file) } }
        for (file, text) in zip(files, [input, "", ""]) { try Data(text.utf8).write(to: URL(fileURLWithPath: file)) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (descriptor, file) in files.enumerated() {
            posix_spawn_file_actions_addopen(
                &actions, Int32(descriptor), file, descriptor == 0 ? O_RDONLY : O_WRONLY, 0)
        }
        // No signal blocked, as the threads of a pool may have them.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        var words = ([program] + arguments).map { strdup($0) } + [nil]
        var variables = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for word in words + variables { free(word) } }
        var child: pid_t = 0
        guard posix_spawn(&child, program, &actions, &attributes, &words, &variables) == 0 else {
            throw Failure(message: "\(program) did not start")
        }
        var status: Int32 = 0
        while waitpid(child, &status, 0) < 0 {
            guard errno == EINTR else { throw Failure(message: "\(program) is nobody's child") }
        }
        // wait(2): the low seven bits hold the signal that ended it, the next eight the exit code.
        let signal = status & 0x7f
        return CommandRun(
            code: signal == 0 ? (status >> 8) & 0xff : 128 + signal,
            output: try String(contentsOfFile: files[1], encoding: .utf8),
            errors: try String(contentsOfFile: files[2], encoding: .utf8))
    }
}
