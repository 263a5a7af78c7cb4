import Foundation
import Glibc

/// Starting programs and waiting for them, without Foundation's Process: that learns of an end from a socket which a
/// child started at the same moment may have inherited, and then waits for that child too.
enum ChildProcess {
    /// What sanitizers read (`make sanitize`): a program of ours that a test starts reports where its tests do.
    private static let sanitizerOptions = ProcessInfo.processInfo.environment.filter { $0.key.hasSuffix("SAN_OPTIONS") }

    /// Starts a program with no signal blocked, as the threads of a pool may have them.
    /// - Parameter arrange: adds what becomes of its descriptors.
    static func spawn(
        _ program: String, _ arguments: [String], _ environment: [String: String],
        _ arrange: (inout posix_spawn_file_actions_t) -> Void
    ) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        arrange(&actions)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        // What other parts of this process have open is none of the program's business.
        for name in (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? [] {
            if let descriptor = Int32(name), descriptor > 2 { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        }
        var words = ([program] + arguments).map { strdup($0) } + [nil]
        let environment = environment.merging(sanitizerOptions) { own, _ in own }
        var variables = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for word in words + variables { free(word) } }
        var child: pid_t = 0
        guard posix_spawn(&child, program, &actions, &attributes, &words, &variables) == 0 else {
            throw CommandRun.Failure(message: "\(program) did not start")
        }
        return child
    }

    /// Blocks until a child has ended.
    /// - Returns: its exit status, or 128 and the number of the signal that ended it.
    static func wait(_ child: pid_t) -> Int32 {
        var status: Int32 = 0
        while waitpid(child, &status, 0) < 0 { if errno != EINTR { return -1 } }
        // wait(2): the low seven bits hold the signal that ended it, the next eight the exit code.
        let signal = status & 0x7f
        return signal == 0 ? (status >> 8) & 0xff : 128 + signal
    }
}
