/// The address of the other end: 16 bytes, an IPv4 one mapped to `::ffff:a.b.c.d`. All zero when it is unknown.
package struct PeerAddress: Sendable, Hashable, CustomStringConvertible {
    /// The first and last eight bytes in network order.
    package let high: UInt64
    package let low: UInt64
    /// The peer's port.
    package let port: UInt16

    package init(high: UInt64, low: UInt64, port: UInt16 = 0) {
        self.high = high
        self.low = low
        self.port = port
    }

    /// An IPv4 address from its four bytes, for tests and for addresses a trusted proxy named.
    package init(ipv4 a: UInt8, _ b: UInt8, _ c: UInt8, _ d: UInt8, port: UInt16 = 0) {
        let bits = UInt64(a) << 24 | UInt64(b) << 16 | UInt64(c) << 8 | UInt64(d)
        self.init(high: 0, low: 0xffff_0000_0000 | bits, port: port)
    }

    /// True for a mapped IPv4 address.
    package var isIPv4: Bool { high == 0 && low >> 32 == 0xffff }

    /// The 16 bytes in network order.
    package var bytes: [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 16)
        for index in 0..<8 {
            bytes[index] = UInt8(truncatingIfNeeded: high >> UInt64(56 - 8 * index))
            bytes[8 + index] = UInt8(truncatingIfNeeded: low >> UInt64(56 - 8 * index))
        }
        return bytes
    }

    /// Dotted for IPv4, RFC 5952 text for IPv6; the port is left out.
    package var description: String {
        if isIPv4 { return (0..<4).map { String((low >> (24 - 8 * $0)) & 0xff) }.joined(separator: ".") }
        let groups = [high, low].flatMap { half in (0..<4).map { (half >> (48 - 16 * $0)) & 0xffff } }
        // The longest run of two or more zero groups, the first of equal ones, becomes "::" (RFC 5952 §4.2).
        var best = 0..<0
        var start = 0
        while start < 8 {
            var end = start
            while end < 8, groups[end] == 0 { end += 1 }
            if end - start > max(1, best.count) { best = start..<end }
            start = max(end, start + 1)
        }
        func text(_ part: ArraySlice<UInt64>) -> String {
            part.map { String($0, radix: 16) }.joined(separator: ":")
        }
        if best.isEmpty { return text(groups[...]) }
        return text(groups[..<best.lowerBound]) + "::" + text(groups[best.upperBound...])
    }
}
