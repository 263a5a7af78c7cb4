package import HTTP

/// Finds out whose address a request came from.
///
/// Only a trusted proxy's word counts: walking `X-Forwarded-For` from its end, the first address that is not a
/// trusted proxy is the client. Without trusted proxies, or from anybody else, the header is ignored.
package struct ClientAddress: Sendable {
    /// A network in CIDR form, over 16-byte addresses (IPv4 as ::ffff:a.b.c.d).
    package struct Network: Sendable {
        let bytes: [UInt8]
        let bits: Int

        /// `address` or `address/bits`; nil when it is neither.
        package init?(_ text: String) {
            let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
            guard let peer = PeerAddress(String(parts[0])) else { return nil }
            let most = peer.isIPv4 ? 32 : 128
            var bits = most
            if parts.count == 2 {
                guard let given = Int(parts[1]), (0...most).contains(given) else { return nil }
                bits = given
            }
            bytes = peer.bytes
            self.bits = peer.isIPv4 ? bits + 96 : bits
        }

        func contains(_ address: [UInt8]) -> Bool {
            let whole = bits / 8
            guard address[0..<whole] == bytes[0..<whole] else { return false }
            let rest = bits % 8
            guard rest > 0 else { return true }
            let mask = UInt8(truncatingIfNeeded: 0xff00 >> rest)
            return address[whole] & mask == bytes[whole] & mask
        }
    }

    private let proxies: [Network]

    package init(trustedProxies: [Network]) { proxies = trustedProxies }

    /// The client's address; the proxy's own when it names none that reads as an address.
    package func of(_ request: HTTPRequest) -> PeerAddress {
        guard !proxies.isEmpty, isTrusted(request.peer) else { return request.peer }
        var client = request.peer
        for header in request.headers.all("x-forwarded-for").reversed() {
            for part in header.split(separator: ",").reversed() {
                let trimmed = String(part.filter { $0 != " " && $0 != "\t" })
                guard let address = PeerAddress(trimmed) else { return client }
                client = address
                if !isTrusted(address) { return client }
            }
        }
        return client
    }

    private func isTrusted(_ peer: PeerAddress) -> Bool { proxies.contains { $0.contains(peer.bytes) } }
}
