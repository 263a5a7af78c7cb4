internal import Foundation
internal import Glibc

/// Ports for servers that can't be told to take any free one.
package enum LoopbackPort {
    /// A TCP port that nobody listened on a moment ago.
    package static func free() throws -> Int { try bound(0) }

    /// Like `free`, but none that the kernel gives to outgoing connections: a server that was killed finds it free
    /// again when it comes back.
    package static func lasting() throws -> Int {
        let outgoing = (try? String(contentsOfFile: "/proc/sys/net/ipv4/ip_local_port_range", encoding: .utf8)) ?? ""
        let first = outgoing.split(whereSeparator: \.isWhitespace).first.flatMap { Int($0) } ?? 32_768
        for _ in 0..<200 {
            if let port = try? bound(Int.random(in: 10_000..<max(10_100, min(first, 32_768)))) { return port }
        }
        return try free()
    }

    private static func bound(_ port: Int) throws -> Int {
        let fd = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard fd >= 0 else { throw RawHTTPClient.Problem.cannotConnect(errno) }
        defer { close(fd) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        address.sin_port = UInt16(port).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { raw in
                bind(fd, raw, length) == 0 ? getsockname(fd, raw, &length) : -1
            }
        }
        guard result == 0 else { throw RawHTTPClient.Problem.cannotConnect(errno) }
        return Int(UInt16(bigEndian: address.sin_port))
    }
}
