package import HTTP
package import Service

/// Finds out whose address a request came from.
///
/// Only a trusted proxy's word counts: walking `X-Forwarded-For` from its end, the first address that is not a
/// trusted proxy is the client. Without trusted proxies, or from anybody else, the header is ignored.
package struct ClientAddress: Sendable {
    private let proxies: [AddressRange]

    /// - Parameter trustedProxies: RATCHET_TRUSTED_PROXIES.
    package init(trustedProxies: [AddressRange]) { proxies = trustedProxies }

    /// The client's address; the last one that reads as an address when the proxy wrote something else.
    package func of(_ request: HTTPRequest) -> PeerAddress {
        guard !proxies.isEmpty, isTrusted(request.peer) else { return request.peer }
        var client = request.peer
        for header in request.headers.all("x-forwarded-for").reversed() {
            for part in header.split(separator: ",").reversed() {
                let text = Self.trimmed(part)
                // RFC 9110 §5.6.1: empty elements of a list are ignored.
                if text.isEmpty { continue }
                guard let address = Self.address(text) else { return client }
                client = address
                if !isTrusted(address) { return client }
            }
        }
        return client
    }

    private func isTrusted(_ peer: PeerAddress) -> Bool {
        let bytes = peer.bytes
        return proxies.contains { $0.contains(bytes) }
    }

    /// Without the spaces and tabs that may stand around an element.
    private static func trimmed(_ part: Substring) -> String {
        var rest = part[...]
        while let first = rest.first, first == " " || first == "\t" { rest = rest.dropFirst() }
        while let last = rest.last, last == " " || last == "\t" { rest = rest.dropLast() }
        return String(rest)
    }

    private static func address(_ text: String) -> PeerAddress? {
        guard let bytes = AddressRange.bytes(of: text), bytes.count == 16 else { return nil }
        return PeerAddress(
            high: bytes[0..<8].reduce(0) { $0 << 8 | UInt64($1) }, low: bytes[8..<16].reduce(0) { $0 << 8 | UInt64($1) }
        )
    }
}
