import EventLoop
import Foundation
import Glibc
import Service
import Synchronization
import Testing

/// A folder of its own for each test, removed with it.
final class TemporaryFolder: Sendable {
    let path: String
    init() { path = FileManager.default.temporaryDirectory.path + "/ratchet-service-\(UUID().uuidString)" }
    deinit { try? FileManager.default.removeItem(atPath: path) }
    var files: [String] { (try? FileManager.default.contentsOfDirectory(atPath: path).sorted()) ?? [] }
}

/// Sends one request over a socket of its own and reads to the end; blocks, so it runs on a thread of its own.
func exchange(_ address: ListenAddress, _ request: String) async throws -> (head: String, body: String) {
    let answer: String = try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread {
            let socket = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
            defer { close(socket) }
            var name = sockaddr_in()
            name.sin_family = sa_family_t(AF_INET)
            name.sin_port = in_port_t(address.port).bigEndian
            inet_pton(AF_INET, address.host, &name.sin_addr)
            let connected = withUnsafePointer(to: &name) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
            guard connected == 0 else { return continuation.resume(throwing: POSIXError(.ECONNREFUSED)) }
            _ = send(socket, request, request.utf8.count, 0)
            var received = Data()
            var buffer = [UInt8](repeating: 0, count: 65_536)
            while true {
                let count = recv(socket, &buffer, buffer.count, 0)
                guard count > 0 else { break }
                received.append(contentsOf: buffer[..<count])
            }
            continuation.resume(returning: String(decoding: received, as: UTF8.self))
        }
    }
    let parts = answer.components(separatedBy: "\r\n\r\n")
    return (parts[0], parts.dropFirst().joined(separator: "\r\n\r\n"))
}

func get(_ address: ListenAddress, _ path: String, method: String = "GET") async throws -> (head: String, body: String)
{
    try await exchange(address, "\(method) \(path) HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

@Suite struct OperationsServerTests {
    private let folder = TemporaryFolder()
    private let metrics = Metrics()
    private let time = ManualTime()

    /// Runs a server on a loop with a real clock, or with the test's own.
    private func serving(
        manual: Bool = false, checkTimeoutMilliseconds: Int64 = OperationsServer.checkTimeoutMilliseconds,
        _ body: (OperationsServer, ListenAddress, ProcessLifecycle) async throws -> Void
    ) async throws {
        let clock: any TimeSource = manual ? time : SystemTime()
        let loop = EventLoop(name: "operations", time: clock)
        let lifecycle = ProcessLifecycle(graceMilliseconds: 1_000, time: clock)
        let server = OperationsServer(
            name: "ratchet-test", loop: loop, metrics: metrics, lifecycle: lifecycle,
            checkTimeoutMilliseconds: checkTimeoutMilliseconds)
        let listening = try server.start(
            at: ListenAddress(host: "127.0.0.1", port: 0), runFolder: RunFolder(path: folder.path))
        try await body(server, listening.address, lifecycle)
        await listening.stop(graceMilliseconds: 0)
        #expect(folder.files.isEmpty)
        loop.stop()
    }

    @Test func theAddressFileSaysWhereItListens() async throws {
        try await serving { _, address, _ in
            #expect(address.port > 0)
            #expect(folder.files == ["ratchet-test.ops"])
            let text = RunFolder(path: folder.path).read("ratchet-test.ops")
            #expect(text == "127.0.0.1:\(address.port)\n")
            let answer = try await get(address, "/healthz")
            #expect(answer.head.hasPrefix("HTTP/1.1 200 "))
            #expect(answer.body == "{\"status\":\"live\",\"checks\":[]}\n")
        }
    }

    @Test func readinessNamesEachCheckAndItsReason() async throws {
        try await serving { server, address, lifecycle in
            server.addReadiness("redis") { .good }
            let ready = try await get(address, "/readyz")
            #expect(ready.head.hasPrefix("HTTP/1.1 200 "))
            #expect(ready.head.contains("Content-Type: application/json"))
            #expect(ready.body == "{\"status\":\"ready\",\"checks\":[{\"name\":\"redis\",\"ok\":true}]}\n")
            server.addReadiness("schema") { .bad("version 3, needs \"4\"") }
            let unready = try await get(address, "/readyz")
            #expect(unready.head.hasPrefix("HTTP/1.1 503 "))
            #expect(
                unready.body == #"{"status":"not ready","checks":[{"name":"redis","ok":true},"#
                    + #"{"name":"schema","ok":false,"reason":"version 3, needs \"4\""}]}"# + "\n")
            #expect(try await get(address, "/healthz").head.hasPrefix("HTTP/1.1 200 "))
            lifecycle.stop(because: "test")
            #expect(try await get(address, "/readyz").body.contains(#"{"name":"stopping","ok":false"#))
        }
    }

    @Test func aLevelDegradesAndStaysReady() async throws {
        try await serving { server, address, _ in
            let level = Level()
            server.addReadiness("intake") { level.health }
            #expect(
                try await get(address, "/readyz").body
                    == #"{"status":"ready","checks":[{"name":"intake","ok":true,"level":0}]}"# + "\n")
            level.rise(to: 2)
            let degraded = try await get(address, "/readyz")
            #expect(degraded.head.hasPrefix("HTTP/1.1 200 "))
            #expect(
                degraded.body
                    == #"{"status":"degraded","checks":[{"name":"intake","ok":true,"level":2,"reason":"refused"}]}"#
                    + "\n")
            server.addReadiness("redis") { .bad("away") }
            #expect(try await get(address, "/readyz").head.hasPrefix("HTTP/1.1 503 "))
        }
    }

    @Test func aHangingCheckFailsInBoundedTimeAndIsAskedOnlyOnce() async throws {
        try await serving(manual: true) { server, address, _ in
            let (asked, asking) = AsyncStream.makeStream(of: Void.self)
            let (hangs, release) = AsyncStream.makeStream(of: Void.self)
            server.addReadiness("stuck") {
                asking.yield()
                // Deaf to cancellation, like a C call would be.
                await Task { for await _ in hangs { break } }.value
                return .good
            }
            async let first = get(address, "/readyz")
            var questions = asked.makeAsyncIterator()
            await questions.next()
            let second = try await get(address, "/readyz")
            #expect(second.head.hasPrefix("HTTP/1.1 503 "))
            #expect(second.body.contains("still waiting for an earlier answer"))
            time.advance(milliseconds: OperationsServer.checkTimeoutMilliseconds + 1)
            #expect(try await first.body.contains("no answer within 2000 ms"))
            release.finish()
            while try await get(address, "/readyz").head.hasPrefix("HTTP/1.1 503 ") {}
        }
    }

    @Test func aLoopThatNoLongerRunsFailsLiveness() async throws {
        try await serving(checkTimeoutMilliseconds: 50) { server, address, _ in
            let watched = EventLoop(name: "watched")
            server.addLiveness(of: watched, "loop 0")
            let gate = DispatchSemaphore(value: 0)
            watched.execute { gate.wait() }
            let stuck = try await get(address, "/healthz")
            #expect(stuck.head.hasPrefix("HTTP/1.1 503 "))
            #expect(
                stuck.body == #"{"status":"stuck","checks":[{"name":"loop 0","ok":false,"#
                    + #""reason":"no answer within 50 ms"}]}"# + "\n")
            gate.signal()
            while try await get(address, "/healthz").head.hasPrefix("HTTP/1.1 503 ") {}
            watched.stop()
        }
    }

    @Test func metricsAreServedInTheTextFormat() async throws {
        metrics.counter("ratchet_test_total", "Test.").add(7)
        try await serving { _, address, _ in
            let answer = try await get(address, "/metrics")
            #expect(answer.head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"))
            #expect(answer.body == metrics.exposition())
            #expect(answer.body.contains("ratchet_test_total 7\n"))
        }
    }

    @Test func otherPathsAndMethodsAreRefused() async throws {
        try await serving { _, address, _ in
            #expect(try await get(address, "/").head.hasPrefix("HTTP/1.1 404 "))
            #expect(try await get(address, "/metrics/").head.hasPrefix("HTTP/1.1 404 "))
            for method in ["POST", "HEAD", "DELETE"] {
                let answer = try await get(address, "/metrics", method: method)
                #expect(answer.head.hasPrefix("HTTP/1.1 405 ") && answer.head.contains("Allow: GET"))
            }
        }
    }

    @Test func aTakenAddressIsAConfigurationErrorThatNamesTheSetting() async throws {
        try await serving { server, address, _ in
            let other = TemporaryFolder()
            let error = #expect(throws: ServiceError.self) {
                _ = try server.start(at: address, runFolder: RunFolder(path: other.path))
            }
            #expect(error?.code == .configuration)
            #expect(error?.message.contains("RATCHET_OPS_LISTEN=\(address)") == true)
            #expect(other.files.isEmpty)
        }
    }
}

@Suite struct RunFolderTests {
    private let folder = TemporaryFolder()

    @Test func filesReplaceEachOtherWholeAndOnlyTheOwnOneIsRemoved() throws {
        let run = RunFolder(path: folder.path + "/a/b")
        try run.write("x.pid", "1\n")
        try run.write("x.pid", "22\n")
        #expect(run.read("x.pid") == "22\n")
        run.remove("x.pid", ifItSays: "1\n")
        #expect(run.read("x.pid") == "22\n")
        run.remove("x.pid", ifItSays: "22\n")
        #expect(run.read("x.pid") == nil)
        #expect(try FileManager.default.contentsOfDirectory(atPath: run.path).isEmpty)
    }

    @Test func aFolderThatCannotBeMadeIsAConfigurationError() {
        let error = #expect(throws: ServiceError.self) { try RunFolder(path: "/proc/none/run").write("x", "1") }
        #expect(error?.code == .configuration && error?.message.contains("RATCHET_RUN_DIR") == true)
    }
}

private final class Level: Sendable {
    private let value = Atomic<Int>(0)
    var health: Health {
        let level = value.load(ordering: .relaxed)
        return .level(level, level == 0 ? "" : "refused")
    }
    func rise(to level: Int) { value.store(level, ordering: .relaxed) }
}
