import Foundation
import Redis
import Synchronization
import TestSupport

/// A server on a unix socket that answers as a test says, one thread per connection.
final class FakeRedis: Sendable {
    enum Answer: Sendable {
        case bytes(String)
        case nothing
        case hangUp
    }

    private struct State {
        var accepted: [Double] = []
        var sockets: [Int32] = []
        /// Sizes of what each recv took, by connection.
        var reads: [[Int]] = []
        var commands: [[String]] = []
    }

    let address: RedisAddress
    private let path: String
    private let listener: Int32
    private let state = Mutex(State())
    private let answer: @Sendable (_ connection: Int, _ command: [String]) -> Answer

    /// - Parameter answer: called on the connection's thread, for each command in order; connections count from 0.
    init(_ answer: @escaping @Sendable (_ connection: Int, _ command: [String]) -> Answer) throws {
        self.answer = answer
        path = "/tmp/fr-\(UUID().uuidString.prefix(8))"
        address = RedisAddress(endpoint: .unix(path: path))
        listener = try UnixSocket.listen(path)
        Thread.detachNewThread { [self] in acceptAll() }
    }

    var connections: Int { state.withLock { $0.accepted.count } }
    /// Seconds of the monotonic clock at which each connection came.
    var acceptTimes: [Double] { state.withLock { $0.accepted } }
    var commands: [[String]] { state.withLock { $0.commands } }
    func reads(of connection: Int) -> [Int] { state.withLock { $0.reads[connection] } }

    /// Closes the listener and every connection.
    func stop() {
        shutdown(listener, Int32(SHUT_RDWR))
        let sockets = state.withLock { $0.sockets }
        for fd in sockets { shutdown(fd, Int32(SHUT_RDWR)) }
        unlink(path)
    }

    private func acceptAll() {
        while true {
            let fd = accept(listener, nil, nil)
            guard fd >= 0 else { break }
            let number = state.withLock { state in
                state.accepted.append(ProcessInfo.processInfo.systemUptime)
                state.sockets.append(fd)
                state.reads.append([])
                return state.accepted.count - 1
            }
            Thread.detachNewThread { [self] in serve(fd, number) }
        }
        close(listener)
    }

    private func serve(_ fd: Int32, _ number: Int) {
        var parser = CommandParser()
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        loop: while true {
            let count = recv(fd, &buffer, buffer.count, 0)
            guard count > 0 else { break }
            state.withLock { $0.reads[number].append(count) }
            parser.buffer += buffer[..<count]
            while let command = parser.next() {
                state.withLock { $0.commands.append(command) }
                switch answer(number, command) {
                case .bytes(let text): UnixSocket.sendAll(fd, Array(text.utf8))
                case .nothing: break
                case .hangUp: break loop
                }
            }
        }
        shutdown(fd, Int32(SHUT_RDWR))
        state.withLock { $0.sockets.removeAll { $0 == fd } }
        close(fd)
    }
}

/// Takes arrays of bulk strings apart; trusts its client.
struct CommandParser {
    var buffer: [UInt8] = []

    mutating func next() -> [String]? {
        var at = 0
        func line() -> Int? {
            guard let end = buffer[at...].firstIndex(of: 10) else { return nil }
            defer { at = end + 1 }
            return Int(String(decoding: buffer[(at + 1)..<(end - 1)], as: UTF8.self))
        }
        guard let count = line() else { return nil }
        var parts: [String] = []
        for _ in 0..<count {
            guard at < buffer.count, let length = line(), at + length + 2 <= buffer.count else { return nil }
            parts.append(String(decoding: buffer[at..<(at + length)], as: UTF8.self))
            at += length + 2
        }
        buffer.removeFirst(at)
        return parts
    }
}

/// Listens on TCP and accepts nobody; its queue is full, so that a further connection stays in the making.
final class FullListener: Sendable {
    let port: UInt16
    private let sockets: [Int32]

    init() throws {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(bitPattern: SOCK_CLOEXEC.rawValue)
        let listener = socket(AF_INET, kind, 0)
        var sockets = [listener]
        let ready = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { raw in
                guard bind(listener, raw, length) == 0, Foundation.listen(listener, 0) == 0 else { return false }
                guard getsockname(listener, raw, &length) == 0 else { return false }
                for _ in 0..<4 {
                    let filler = socket(AF_INET, kind | Int32(bitPattern: SOCK_NONBLOCK.rawValue), 0)
                    _ = Foundation.connect(filler, raw, length)
                    sockets.append(filler)
                }
                return true
            }
        }
        port = UInt16(bigEndian: address.sin_port)
        self.sockets = sockets
        guard ready else { throw TestRedis.Failure(description: "can't listen on 127.0.0.1") }
    }

    func stop() { for fd in sockets { close(fd) } }
}
