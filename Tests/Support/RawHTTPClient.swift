internal import Dispatch
internal import Glibc

/// A client that knows nothing: it sends exactly the bytes it is given and reads one answer at a time. For tests that
/// must say what no real client would.
///
/// The sockets block, so each call runs on a Dispatch thread and never holds a thread that Swift's tasks need.
///
/// `@unchecked Sendable`: one call at a time, as `await` makes them; the queue orders their memory.
package final class RawHTTPClient: @unchecked Sendable {
    /// What went wrong on the wire, as a test wants to tell it apart.
    package enum Problem: Error, Equatable, Sendable {
        case cannotConnect(Int32)
        case timedOut
        /// The stream ended: `clean` when it did so between answers.
        case ended(clean: Bool)
        case reset
        case malformed(String)
    }

    /// One answer, bodies of Content-Length and of no body understood (the server sends no other).
    package struct Response: Sendable, Equatable {
        package let status: Int
        /// In order; names in lower case.
        package let headers: [Header]
        package let body: [UInt8]

        package struct Header: Sendable, Equatable {
            package let name: String
            package let value: String
        }

        package func first(_ lowercaseName: String) -> String? {
            headers.first { $0.name == lowercaseName }?.value
        }
        package var text: String { String(decoding: body, as: UTF8.self) }
    }

    private let fd: Int32
    private let queue = DispatchQueue(label: "raw-http-client")
    private var received: [UInt8] = []

    private init(fd: Int32) { self.fd = fd }

    deinit { close(fd) }

    /// Connects over IPv4.
    /// - Parameters:
    ///   - timeoutMilliseconds: how long each later read or write may block.
    ///   - receiveBufferBytes: a small one makes a slow reader; set before connecting so that the window is small.
    package static func connect(
        host: String = "127.0.0.1", port: Int, timeoutMilliseconds: Int = 60_000, receiveBufferBytes: Int? = nil
    ) async throws -> RawHTTPClient {
        try await blocking(DispatchQueue.global()) {
            let fd = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
            guard fd >= 0 else { throw Problem.cannotConnect(errno) }
            if var bytes = receiveBufferBytes.map(Int32.init(clamping:)) {
                setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, socklen_t(MemoryLayout<Int32>.size))
            }
            var on: Int32 = 1
            setsockopt(fd, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
            var timeout = timeval(
                tv_sec: timeoutMilliseconds / 1000, tv_usec: timeoutMilliseconds % 1000 * 1000)
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
            setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = UInt16(clamping: port).bigEndian
            inet_pton(AF_INET, host, &address.sin_addr)
            let result = withUnsafePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    Glibc.connect(fd, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
            guard result == 0 else {
                let code = errno
                close(fd)
                throw Problem.cannotConnect(code)
            }
            return RawHTTPClient(fd: fd)
        }
    }

    /// Sends all bytes, or throws `.reset` when the peer is gone.
    package func send(_ bytes: [UInt8]) async throws {
        try await Self.blocking(queue) { [self] in
            var sent = 0
            while sent < bytes.count {
                let count = bytes[sent...].withUnsafeBytes {
                    Glibc.send(fd, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
                }
                if count > 0 {
                    sent += count
                } else if errno == EAGAIN {
                    throw Problem.timedOut
                } else if errno != EINTR {
                    throw Problem.reset
                }
            }
        }
    }

    package func send(_ text: String) async throws { try await send(Array(text.utf8)) }

    /// Ends the sending side; answers can still be read.
    package func endSending() { shutdown(fd, Int32(SHUT_WR)) }

    /// Ends the connection with a reset instead of a proper end.
    package func reset() {
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
        // The descriptor stays ours until deinit: connecting to an unspecified family resets without closing it.
        var address = sockaddr()
        address.sa_family = sa_family_t(AF_UNSPEC)
        Glibc.connect(fd, &address, socklen_t(MemoryLayout<sockaddr>.size))
    }

    /// Reads one answer. Bytes behind it are kept for the next call.
    /// - Parameter toHEAD: the answer is to HEAD and so has no body whatever its Content-Length says.
    package func readResponse(toHEAD: Bool = false) async throws -> Response {
        try await Self.blocking(queue) { [self] in
            var headEnd = Self.endOfHead(received)
            while headEnd == nil {
                try receiveMore(clean: received.isEmpty)
                headEnd = Self.endOfHead(received)
            }
            let end = headEnd ?? 0
            var lines = String(decoding: received[..<(end - 4)], as: UTF8.self)
                .split(separator: "\r\n", omittingEmptySubsequences: false)
            let statusLine = lines.removeFirst()
            guard statusLine.hasPrefix("HTTP/1.1 "), let status = Int(statusLine.dropFirst(9).prefix(3)) else {
                throw Problem.malformed(String(statusLine))
            }
            let headers = try lines.map { line in
                guard let colon = line.firstIndex(of: ":") else { throw Problem.malformed(String(line)) }
                let value = line[line.index(after: colon)...].drop { $0 == " " }
                return Response.Header(name: line[..<colon].lowercased(), value: String(value))
            }
            let length = headers.first { $0.name == "content-length" }.flatMap { Int($0.value) } ?? 0
            let bodyLength = toHEAD || status < 200 || status == 204 || status == 304 ? 0 : length
            while received.count < end + bodyLength { try receiveMore(clean: false) }
            let body = Array(received[end..<(end + bodyLength)])
            received.removeSubrange(..<(end + bodyLength))
            return Response(status: status, headers: headers, body: body)
        }
    }

    /// Sends a request and reads its answer.
    package func exchange(_ text: String, toHEAD: Bool = false) async throws -> Response {
        try await send(text)
        return try await readResponse(toHEAD: toHEAD)
    }

    /// Waits until the peer ends the connection, and answers what came before that.
    package func readToEnd() async throws -> [UInt8] {
        try await Self.blocking(queue) { [self] in
            while true {
                do {
                    try receiveMore(clean: true)
                } catch Problem.ended {
                    defer { received = [] }
                    return received
                }
            }
        }
    }

    private func receiveMore(clean: Bool) throws {
        var buffer = [UInt8](repeating: 0, count: 64 * 1024)
        while true {
            let count = recv(fd, &buffer, buffer.count, 0)
            if count > 0 {
                received.append(contentsOf: buffer[..<count])
                return
            }
            if count == 0 { throw Problem.ended(clean: clean) }
            if errno == EAGAIN { throw Problem.timedOut }
            if errno != EINTR { throw Problem.reset }
        }
    }

    /// The place behind the empty line.
    private static func endOfHead(_ bytes: [UInt8]) -> Int? {
        guard bytes.count >= 4 else { return nil }
        for index in 0...(bytes.count - 4)
        where bytes[index] == 13 && bytes[index + 1] == 10 && bytes[index + 2] == 13 && bytes[index + 3] == 10 {
            return index + 4
        }
        return nil
    }

    private static func blocking<Result: Sendable>(
        _ queue: DispatchQueue, _ body: @escaping @Sendable () throws -> Result
    ) async throws -> Result {
        try await withCheckedThrowingContinuation { continuation in
            queue.async { continuation.resume(with: Swift.Result(catching: body)) }
        }
    }
}
