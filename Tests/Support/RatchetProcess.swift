package import Foundation
internal import Glibc
internal import Synchronization

/// One of the product's executables under test, found beside the test bundle. Its standard error is kept.
package final class RatchetProcess: Sendable {
    package struct Failure: Error, CustomStringConvertible {
        package let description: String
        package init(description: String) { self.description = description }
    }

    package let name: String
    private let environment: [String: String]
    private struct State {
        /// The process, until its end was waited for.
        var child: pid_t?
        var exitCode: Int32 = 0
        var life = 0
        var lines: [String] = []
        var waiters: [(text: String, end: String, continuation: CheckedContinuation<Void, Never>)] = []
    }
    private let state = Mutex(State())

    /// - Parameters:
    ///   - executable: `ratchet-writer` and the like.
    ///   - environment: the whole environment but PATH.
    package init(_ executable: String, environment: [String: String]) {
        name = executable
        self.environment = environment
    }

    /// The folder that the build put the executables in; RATCHET_BIN_DIR names another one.
    package static func binaries() throws -> URL {
        if let given = ProcessInfo.processInfo.environment["RATCHET_BIN_DIR"] { return URL(fileURLWithPath: given) }
        let bundle = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
        var folder = bundle.deletingLastPathComponent()
        for _ in 0..<4 {
            if FileManager.default.isExecutableFile(atPath: folder.appendingPathComponent("ratchet-writer").path) {
                return folder
            }
            folder = folder.deletingLastPathComponent()
        }
        throw Failure(description: "the executables are not beside the test bundle: run swift build --build-tests")
    }

    /// Starts the executable and returns once it has said a line with this text.
    package func start(untilItSays text: String = "\"started\"") async throws {
        let program = try Self.binaries().appendingPathComponent(name).path
        let variables = environment.merging(["PATH": "/usr/bin:/bin"]) { own, _ in own }
        let (from, end) = state.withLock { state in
            state.life += 1
            return (state.lines.count, "(end of life \(state.life))")
        }
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { throw Failure(description: "no descriptors left for a pipe") }
        for descriptor in ends { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        let (reading, writing) = (ends[0], ends[1])
        let child = try ChildProcess.spawn(program, [], variables) { actions in
            posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0)
            posix_spawn_file_actions_adddup2(&actions, 0, 1)
            posix_spawn_file_actions_adddup2(&actions, writing, 2)
        }
        close(writing)
        state.withLock { $0.child = child }
        Thread.detachNewThread { [weak self] in
            Self.lines(of: reading) { self?.heard($0) }
        }
        // Its end is waited for, not read from the pipe: a program started at the same moment may hold that open.
        Thread.detachNewThread { [weak self] in
            let code = ChildProcess.wait(child)
            self?.state.withLock { state in
                state.child = nil
                state.exitCode = code
            }
            self?.heard(end)
        }
        await heard(text, or: end, from: from)
        let said = state.withLock { $0.lines[from...].contains { $0.contains(text) } }
        guard said else {
            throw Failure(description: "\(name) did not start: \(lines.suffix(5).joined(separator: "\n"))")
        }
    }

    private static func lines(of descriptor: Int32, _ heard: (String) -> Void) {
        var rest: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(descriptor, &buffer, buffer.count)
            if count < 0 && errno == EINTR { continue }
            if count <= 0 { break }
            rest.append(contentsOf: buffer[0..<count])
            while let end = rest.firstIndex(of: 0x0a) {
                heard(String(decoding: rest[..<end], as: UTF8.self))
                rest.removeSubrange(...end)
            }
        }
        close(descriptor)
    }

    /// Returns once a line with a text, or the end of this life, is among the lines.
    private func heard(_ text: String, or end: String, from: Int) async {
        await withCheckedContinuation { continuation in
            let now = state.withLock { state -> Bool in
                if state.lines[from...].contains(where: { $0.contains(text) || $0 == end }) { return true }
                state.waiters.append((text, end, continuation))
                return false
            }
            if now { continuation.resume() }
        }
    }

    private func heard(_ line: String) {
        let ready = state.withLock { state -> [CheckedContinuation<Void, Never>] in
            state.lines.append(line)
            let ready = state.waiters.filter { line.contains($0.text) || line == $0.end }.map(\.continuation)
            state.waiters.removeAll { line.contains($0.text) || line == $0.end }
            return ready
        }
        for continuation in ready { continuation.resume() }
    }

    /// Everything the process has said, over all its lives.
    package var lines: [String] { state.withLock { $0.lines } }
    package var processID: Int32? { state.withLock { $0.child } }

    /// Ends the process at once, as a crash or the kernel would, and starts it anew.
    package func crashAndRestart(untilItSays text: String = "\"started\"") async throws {
        kill(SIGKILL)
        await ended()
        try await start(untilItSays: text)
    }

    package func kill(_ signal: Int32) {
        if let child = processID { _ = Glibc.kill(child, signal) }
    }

    /// Stops it the way an operator does.
    /// - Returns: its exit status, or 128 and the number of the signal that ended it.
    @discardableResult
    package func stop() async -> Int32 {
        kill(SIGTERM)
        await ended()
        return state.withLock { $0.exitCode }
    }

    private func ended() async {
        let life = state.withLock { $0.life }
        if life > 0 { await heard("(end of life \(life))", or: "(end of life \(life))", from: 0) }
    }

    deinit { kill(SIGKILL) }
}
