package import Foundation
internal import Synchronization

/// One of the product's executables under test, found beside the test bundle. Its standard error is kept.
///
/// `@unchecked Sendable`: `process` is replaced under `state`'s lock alone and otherwise only read.
package final class RatchetProcess: @unchecked Sendable {
    package struct Failure: Error, CustomStringConvertible {
        package let description: String
        package init(description: String) { self.description = description }
    }

    package let name: String
    private let environment: [String: String]
    private struct State {
        var process: Process?
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

    /// The folder that the build put the executables in.
    package static func binaries() throws -> URL {
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
        let process = Process()
        process.executableURL = try Self.binaries().appendingPathComponent(name)
        process.environment = environment.merging(["PATH": "/usr/bin:/bin"]) { own, _ in own }
        process.standardInput = FileHandle.nullDevice
        process.standardOutput = FileHandle.nullDevice
        let pipe = Pipe()
        process.standardError = pipe
        let (from, end) = state.withLock { state in
            state.life += 1
            return (state.lines.count, "(end of life \(state.life))")
        }
        let reader = pipe.fileHandleForReading
        Thread.detachNewThread { [weak self] in
            var rest: [UInt8] = []
            while true {
                let data = reader.availableData
                if data.isEmpty { break }
                rest.append(contentsOf: data)
                while let end = rest.firstIndex(of: 0x0a) {
                    self?.heard(String(decoding: rest[..<end], as: UTF8.self))
                    rest.removeSubrange(...end)
                }
            }
            self?.heard(end)
        }
        try process.run()
        state.withLock { $0.process = process }
        await withCheckedContinuation { continuation in
            let now = state.withLock { state -> Bool in
                if state.lines[from...].contains(where: { $0.contains(text) || $0 == end }) { return true }
                state.waiters.append((text, end, continuation))
                return false
            }
            if now { continuation.resume() }
        }
        let said = state.withLock { $0.lines[from...].contains { $0.contains(text) } }
        guard said else {
            throw Failure(description: "\(name) did not start: \(lines.suffix(5).joined(separator: "\n"))")
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
    package var processID: Int32? { state.withLock { $0.process?.processIdentifier } }

    /// Ends the process at once, as a crash or the kernel would, and starts it anew.
    package func crashAndRestart() async throws {
        kill(SIGKILL)
        await ended()
        try await start()
    }

    package func kill(_ signal: Int32) {
        if let id = processID { _ = Foundation.kill(id, signal) }
    }

    /// Stops it the way an operator does.
    /// - Returns: its exit status.
    @discardableResult
    package func stop() async -> Int32 {
        kill(SIGTERM)
        return await ended()
    }

    @discardableResult
    private func ended() async -> Int32 {
        guard let process = state.withLock({ $0.process }) else { return 0 }
        return await withCheckedContinuation { continuation in
            Thread.detachNewThread {
                process.waitUntilExit()
                continuation.resume(returning: process.terminationStatus)
            }
        }
    }

    deinit { kill(SIGKILL) }
}
