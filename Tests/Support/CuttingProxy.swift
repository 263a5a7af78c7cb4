internal import Foundation
package import Redis
internal import Synchronization

/// Stands between clients and a server, and cuts their lines in the middle of what passes or swallows what is answered.
package final class CuttingProxy: Sendable {
    private struct State {
        var lines: [Int: Line] = [:]
        var last = 0
        /// Bytes from the server that may still pass; nil is no limit.
        var budget: Int?
        /// Where the next lines lead.
        var target: String
        /// Where they lead once this one is cut.
        var next: String?
        /// While set, each loss of an answer is followed by another one.
        var losses: Losses?
        var lost = 0

        /// - Returns: whether what the server says now is lost.
        mutating func isLoss() -> Bool {
            guard var losses else { return false }
            losses.left -= 1
            let isLoss = losses.left <= 0
            if isLoss {
                losses.left = Int.random(in: losses.reads, using: &losses.numbers)
                lost += 1
            }
            self.losses = losses
            return isLoss
        }
    }

    private struct Losses {
        let reads: ClosedRange<Int>
        /// Until the next loss.
        var left: Int
        var numbers: SeededGenerator
        let closing: Bool
    }

    /// How often answers were lost.
    package var lost: Int { state.withLock { $0.lost } }

    package let address: RedisAddress
    private let path: String
    private let listener: Int32
    private let state: Mutex<State>

    /// - Parameter target: the server's unix socket; a client that comes while nobody listens there is hung up on.
    package init(to target: String) throws {
        state = Mutex(State(target: target))
        path = "/tmp/pr-\(UUID().uuidString.prefix(8))"
        address = RedisAddress(endpoint: .unix(path: path))
        listener = try UnixSocket.listen(path)
        Thread.detachNewThread { [self] in acceptAll() }
    }

    /// Lets this many more bytes of answers pass, then closes the line; later lines are whole.
    /// - Parameter next: where they lead; nil is where they led before.
    package func cut(afterReplyBytes bytes: Int, thenTo next: String? = nil) {
        state.withLock {
            $0.budget = bytes
            $0.next = next
        }
    }

    /// Lets each line that is open now pass so many more bytes, another number for each, and then cuts it: half of them
    /// in what the client says, half of them in what the server answers.
    package func cutAll(within bytes: ClosedRange<Int>) {
        for line in state.withLock({ Array($0.lines.values) }) {
            line.allow(.random(in: bytes), ofReplies: .random())
        }
    }

    /// Loses what the server answers, again and again: of so many reads of answers, another number each time, the last one
    /// is lost, and the line at hand is cut. So a short answer is lost as easily as a long one. Nil lets everything pass
    /// from now on.
    /// - Parameter closing: false leaves the line open; its client hears nothing on it any more.
    package func loseAnswers(oneOf reads: ClosedRange<Int>?, closing: Bool = true, seed: UInt64 = 0) {
        state.withLock { state in
            state.losses = reads.map {
                Losses(reads: $0, left: $0.upperBound, numbers: SeededGenerator(seed: seed), closing: closing)
            }
        }
    }

    /// Swallows everything that the server says on the lines that are open now; they stay open.
    package func swallowAnswers() {
        for line in state.withLock({ Array($0.lines.values) }) { line.swallow() }
    }

    package func stop() {
        shutdown(listener, Int32(SHUT_RDWR))
        unlink(path)
    }

    private func acceptAll() {
        while true {
            let client = accept(listener, nil, nil)
            guard client >= 0 else { break }
            guard let server = try? UnixSocket.connect(state.withLock({ $0.target })) else {
                close(client)
                continue
            }
            _ = fcntl(client, F_SETFD, FD_CLOEXEC)
            let line = state.withLock { state in
                state.last += 1
                let line = Line(number: state.last, client: client, server: server)
                state.lines[line.number] = line
                return line
            }
            Thread.detachNewThread { [self] in pump(from: client, to: server, line, limited: false) }
            Thread.detachNewThread { [self] in pump(from: server, to: client, line, limited: true) }
        }
        close(listener)
    }

    /// Closes both sockets once both directions are done with them.
    private final class Line: Sendable {
        let number: Int
        private let sockets: [Int32]
        private let ended = Mutex(0)
        private let allowance = Mutex<(bytes: Int, ofReplies: Bool)?>(nil)

        init(number: Int, client: Int32, server: Int32) {
            self.number = number
            sockets = [client, server]
        }

        private let swallowing = Mutex(false)
        var swallows: Bool { swallowing.withLock { $0 } }
        func swallow() { swallowing.withLock { $0 = true } }

        func allow(_ bytes: Int, ofReplies: Bool) { allowance.withLock { $0 = (bytes, ofReplies) } }

        /// - Returns: how many of so many bytes may pass.
        func pass(_ count: Int, areReplies: Bool) -> Int {
            allowance.withLock { allowance in
                guard let (bytes, ofReplies) = allowance, ofReplies == areReplies else { return count }
                guard bytes >= count else { return bytes }
                allowance = (bytes - count, ofReplies)
                return count
            }
        }

        func end() {
            for fd in sockets { shutdown(fd, Int32(SHUT_RDWR)) }
            let last = ended.withLock { ended in
                ended += 1
                return ended == 2
            }
            if last { for fd in sockets { close(fd) } }
        }
    }

    private func pump(from source: Int32, to target: Int32, _ line: Line, limited: Bool) {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = recv(source, &buffer, buffer.count, 0)
            guard count > 0 else { break }
            if limited && line.swallows { continue }
            var allowed = line.pass(count, areReplies: limited)
            var cut = allowed < count
            if limited && !cut {
                (allowed, cut) = state.withLock { state in
                    if let losses = state.losses, state.isLoss() {
                        if !losses.closing { line.swallow() }
                        return (0, losses.closing)
                    }
                    guard let budget = state.budget else { return (count, false) }
                    guard budget > count else {
                        state.budget = nil
                        state.target = state.next ?? state.target
                        return (budget, true)
                    }
                    state.budget = budget - count
                    return (count, false)
                }
            }
            UnixSocket.sendAll(target, Array(buffer[..<allowed]))
            if cut { break }
        }
        state.withLock { $0.lines[line.number] = nil }
        line.end()
    }
}

/// Sockets of the Unix domain, blocking.
package enum UnixSocket {
    package static func listen(_ path: String) throws -> Int32 {
        let fd = open()
        guard with(path, { bind(fd, $0, $1) }) == 0, Foundation.listen(fd, 64) == 0 else {
            throw TestRedis.Failure(description: "can't listen on \(path)")
        }
        return fd
    }

    package static func connect(_ path: String) throws -> Int32 {
        let fd = open()
        guard with(path, { Foundation.connect(fd, $0, $1) }) == 0 else {
            close(fd)
            throw TestRedis.Failure(description: "can't connect to \(path)")
        }
        return fd
    }

    package static func sendAll(_ fd: Int32, _ bytes: [UInt8]) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { send(fd, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else { return }
            rest = rest.dropFirst(count)
        }
    }

    private static func open() -> Int32 {
        socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(bitPattern: SOCK_CLOEXEC.rawValue), 0)
    }

    private static func with(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }
}
