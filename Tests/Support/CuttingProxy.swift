import Foundation
import Glibc
import Synchronization

/// A unix socket in front of another one, which passes everything on until it is told to cut connections in the middle
/// of what passes.
///
/// Each connection has a thread of its own, which ends with it. Safe from any thread; `close` ends everything.
package final class CuttingProxy: Sendable {
    package struct Failure: Error { package let message: String }

    private struct State {
        /// Bytes that may still pass, by connection; absent means any number.
        var allowances: [Int: Allowance] = [:]
        var open: Set<Int> = []
        var last = 0
        var cuts = 0
        var closed = false
    }

    private struct Allowance {
        var bytes: Int
        /// Counts what the server says, else what the client says.
        let ofReplies: Bool
    }

    /// Where clients connect.
    package let path: String
    private let upstream: String
    private let listener: Int32
    private let state = Mutex(State())

    /// - Parameter upstream: the server's unix socket, which need not be there yet: a client that comes while nobody
    ///   listens is hung up on.
    package init(path: String, upstream: String) throws {
        self.path = path
        self.upstream = upstream
        listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(bitPattern: SOCK_CLOEXEC.rawValue), 0)
        unlink(path)
        let bound = Self.withAddress(path) { bind(listener, $0, $1) }
        guard listener >= 0, bound == 0, listen(listener, 128) == 0 else {
            throw Failure(message: "no proxy at \(path): errno \(errno)")
        }
        Thread.detachNewThread { [self] in acceptAll() }
    }

    /// Connections that were cut so far.
    package var cuts: Int { state.withLock { $0.cuts } }

    /// Lets each connection that is open now pass so many more bytes, another number for each, and then cuts it: half of
    /// them in what the client says, half of them in what the server answers.
    package func cutAll(within bytes: ClosedRange<Int>) {
        state.withLock { state in
            for connection in state.open {
                state.allowances[connection] = Allowance(bytes: .random(in: bytes), ofReplies: .random())
            }
        }
    }

    package func close() {
        state.withLock { $0.closed = true }
        // Wakes accept; connections end with their clients.
        shutdown(listener, Int32(SHUT_RDWR))
    }

    private func acceptAll() {
        while true {
            let client = accept(listener, nil, nil)
            if client < 0 {
                if state.withLock({ $0.closed }) { break }
                if errno != EINTR { usleep(1000) }
                continue
            }
            _ = fcntl(client, F_SETFD, FD_CLOEXEC)
            Thread.detachNewThread { [self] in pass(client) }
        }
        Glibc.close(listener)
        unlink(path)
    }

    private func pass(_ client: Int32) {
        defer { Glibc.close(client) }
        let server = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(bitPattern: SOCK_CLOEXEC.rawValue), 0)
        guard server >= 0 else { return }
        defer { Glibc.close(server) }
        guard Self.withAddress(upstream, { connect(server, $0, $1) }) == 0 else { return }
        let number = state.withLock { state in
            state.last += 1
            state.open.insert(state.last)
            return state.last
        }
        defer {
            state.withLock { state in
                state.open.remove(number)
                state.allowances[number] = nil
            }
        }
        var buffer = [UInt8](repeating: 0, count: 65_536)
        var ends = [
            pollfd(fd: client, events: Int16(POLLIN), revents: 0),
            pollfd(fd: server, events: Int16(POLLIN), revents: 0),
        ]
        while true {
            guard poll(&ends, 2, -1) > 0 || errno == EINTR else { return }
            for (index, end) in ends.enumerated() where end.revents != 0 {
                let count = read(end.fd, &buffer, buffer.count)
                guard count > 0 else { return }
                let allowed = allowance(number, ofReplies: index == 1, count)
                guard write(buffer[0..<allowed], to: ends[1 - index].fd), allowed == count else { return }
            }
        }
    }

    /// - Returns: how many of so many bytes may pass.
    private func allowance(_ number: Int, ofReplies: Bool, _ count: Int) -> Int {
        state.withLock { state in
            guard var allowance = state.allowances[number], allowance.ofReplies == ofReplies else { return count }
            if allowance.bytes < count {
                state.cuts += 1
                return allowance.bytes
            }
            allowance.bytes -= count
            state.allowances[number] = allowance
            return count
        }
    }

    private func write(_ bytes: ArraySlice<UInt8>, to descriptor: Int32) -> Bool {
        var rest = bytes
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes {
                send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }

    private static func withAddress(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        precondition(bytes.count < MemoryLayout.size(ofValue: address.sun_path))
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        // The pointer is used inside the call alone.
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }
}
