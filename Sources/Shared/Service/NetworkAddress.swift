internal import Glibc
package import HTTP

/// Where a server listens: a numeric address and a port.
package struct ListenAddress: Hashable, Sendable, CustomStringConvertible {
    /// Numeric, without brackets.
    package let host: String
    /// 0 takes a free port.
    package let port: Int

    package init(host: String, port: Int) {
        self.host = host
        self.port = port
    }

    /// Reads `127.0.0.1:80` or `[::1]:80`; names are refused, because a listening address must not depend on a
    /// resolver.
    package init?(_ text: String) {
        guard let colon = text.utf8.lastIndex(of: UInt8(ascii: ":")) else { return nil }
        var host = text[..<colon]
        let bracketed = host.utf8.first == UInt8(ascii: "[") && host.utf8.last == UInt8(ascii: "]")
        if bracketed { host = host.dropFirst().dropLast() }
        guard AddressRange.bytes(of: String(host)) != nil, bracketed == host.utf8.contains(UInt8(ascii: ":")),
            let port = Setting<Int>.wholeNumber(String(text[text.utf8.index(after: colon)...])), port <= 65_535
        else { return nil }
        self.init(host: String(host), port: port)
    }

    /// The text that `init(_:)` reads.
    package var description: String {
        host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)"
    }
}

/// One address or a CIDR range. IPv4 lives inside IPv6 as `::ffff:a.b.c.d`, so both are 16 bytes.
package struct AddressRange: Hashable, Sendable {
    private let network: [UInt8]
    private let prefixBits: Int

    /// Reads `192.0.2.7`, `192.0.2.0/24`, `::1`, `2001:db8::/32`.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        let address = String(parts[0])
        guard let bytes = Self.bytes(of: address) else { return nil }
        let bits = address.utf8.contains(UInt8(ascii: ":")) ? 128 : 32
        var length = bits
        if parts.count == 2 {
            guard let read = Setting<Int>.wholeNumber(String(parts[1])), read <= bits else { return nil }
            length = read
        }
        network = bytes
        prefixBits = length + 128 - bits
    }

    /// Reads a list with commas between; the word `none` is the empty list.
    package static func list(_ text: String) -> [AddressRange]? {
        if text == "none" { return [] }
        var ranges: [AddressRange] = []
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            guard let range = AddressRange(String(part)) else { return nil }
            ranges.append(range)
        }
        return ranges
    }

    /// Whether the other end of a connection lies in the range.
    package func contains(_ peer: PeerAddress) -> Bool { contains(peer.bytes) }

    /// Whether an address of 16 bytes (as the HTTP server gives its peers) lies in the range; any other length doesn't.
    package func contains(_ address: [UInt8]) -> Bool {
        guard address.count == 16 else { return false }
        let whole = prefixBits / 8
        guard address[..<whole].elementsEqual(network[..<whole]) else { return false }
        let rest = prefixBits % 8
        return rest == 0 || (address[whole] ^ network[whole]) >> UInt8(8 - rest) == 0
    }

    /// The 16 bytes of a numeric address, IPv4 mapped into IPv6; nil for anything else.
    package static func bytes(of text: String) -> [UInt8]? {
        // inet_pton stops at a NUL, so a text with one would be read in part.
        guard !text.utf8.contains(0) else { return nil }
        if text.utf8.contains(UInt8(ascii: ":")) {
            var bytes = [UInt8](repeating: 0, count: 16)
            return inet_pton(AF_INET6, text, &bytes) == 1 ? bytes : nil
        }
        var bytes = [UInt8](repeating: 0, count: 4)
        guard inet_pton(AF_INET, text, &bytes) == 1 else { return nil }
        return [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF] + bytes
    }
}
