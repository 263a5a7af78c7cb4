internal import EventLoop
internal import Glibc
internal import Service

/// Asks one process of this machine for its health. Runs on the loop, never blocks it, and gives up in time.
struct OperationsProbe: Sendable {
    struct Answer: Sendable {
        let status: Int
        let body: [UInt8]
    }

    let loop: EventLoop

    /// Above the two seconds within which a process answers `/readyz` for a check that hangs.
    private static let patienceMilliseconds: Int64 = 4_000
    /// Larger answers are no health report.
    private static let mostBytes = 65_536

    /// Nil when nothing answers, or no HTTP. Call on the loop.
    func get(_ path: String, at address: ListenAddress) async -> Answer? {
        loop.preconditionInLoop()
        let deadline = loop.time.monotonicNanoseconds + Self.patienceMilliseconds * 1_000_000
        guard let descriptor = Self.connecting(to: address) else { return nil }
        defer { close(descriptor) }
        guard await wait(descriptor, for: .writable, until: deadline) else { return nil }
        let request = Array("GET \(path) HTTP/1.1\r\nHost: \(address)\r\nConnection: close\r\n\r\n".utf8)
        guard send(descriptor, request, request.count, Int32(MSG_NOSIGNAL)) == request.count else { return nil }
        var received: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 8_192)
        while received.count < Self.mostBytes {
            guard await wait(descriptor, for: .readable, until: deadline) else { return nil }
            let count = recv(descriptor, &buffer, buffer.count, 0)
            if count == 0 { break }
            if count < 0 {
                if errno == EAGAIN || errno == EINTR { continue }
                return nil
            }
            received.append(contentsOf: buffer[..<count])
        }
        return Self.parse(received)
    }

    /// A socket whose connection is under way.
    private static func connecting(to address: ListenAddress) -> Int32? {
        guard let bytes = AddressRange.bytes(of: address.host), let port = UInt16(exactly: address.port) else {
            return nil
        }
        let isIPv6 = address.host.utf8.contains(UInt8(ascii: ":"))
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(isIPv6 ? AF_INET6 : AF_INET, kind, 0)
        guard descriptor >= 0 else { return nil }
        var result: Int32
        if isIPv6 {
            var name = sockaddr_in6()
            name.sin6_family = sa_family_t(AF_INET6)
            name.sin6_port = port.bigEndian
            withUnsafeMutableBytes(of: &name.sin6_addr) { $0.copyBytes(from: bytes) }
            result = connect(descriptor, name)
        } else {
            var name = sockaddr_in()
            name.sin_family = sa_family_t(AF_INET)
            name.sin_port = port.bigEndian
            withUnsafeMutableBytes(of: &name.sin_addr) { $0.copyBytes(from: bytes[12...]) }
            result = connect(descriptor, name)
        }
        guard result == 0 || errno == EINPROGRESS else {
            close(descriptor)
            return nil
        }
        return descriptor
    }

    private static func connect<Name>(_ descriptor: Int32, _ name: Name) -> Int32 {
        withUnsafeBytes(of: name) { raw in
            // Both kinds of name begin as a sockaddr does and are aligned for it.
            Glibc.connect(
                descriptor, raw.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t(raw.count))
        }
    }

    /// Whether the descriptor became ready before the deadline.
    private func wait(_ descriptor: Int32, for interest: EventLoop.Readiness, until deadline: Int64) async -> Bool {
        let left = (deadline - loop.time.monotonicNanoseconds) / 1_000_000
        guard left > 0 else { return false }
        let wait = Wait()
        return await withUnsafeContinuation { continuation in
            wait.continuation = continuation
            guard let token = loop.watch(descriptor, for: interest, handler: { _ in wait.end(true) }) else {
                wait.end(false)
                return
            }
            let timer = loop.schedule(afterMilliseconds: left) { wait.end(false) }
            wait.cleanUp = { [loop] in
                loop.unwatch(token)
                loop.cancel(timer)
            }
        }
    }

    /// The first of two events ends it.
    ///
    /// `@unchecked Sendable`: touched on the loop's thread alone, by `wait` and by the loop's own callbacks.
    private final class Wait: @unchecked Sendable {
        var continuation: UnsafeContinuation<Bool, Never>?
        var cleanUp: () -> Void = {}

        func end(_ ready: Bool) {
            guard let continuation else { return }
            self.continuation = nil
            cleanUp()
            continuation.resume(returning: ready)
        }
    }

    private static func parse(_ bytes: [UInt8]) -> Answer? {
        let text = String(decoding: bytes, as: UTF8.self)
        guard text.hasPrefix("HTTP/1.1 "), let status = Int(text.dropFirst(9).prefix(3)) else { return nil }
        let separator = Array("\r\n\r\n".utf8)
        var end = bytes.count
        for index in 0..<max(0, bytes.count - 3) where bytes[index..<(index + 4)].elementsEqual(separator) {
            end = index + 4
            break
        }
        return Answer(status: status, body: Array(bytes[end...]))
    }
}
