internal import Bytes
package import HTTP

/// The network a write came from, as it is stored: enough to see that two writes share it, and of no use to anybody
/// without the installation's secret.
///
/// `@unchecked Sendable`: each belongs to one loop, on whose thread alone `of` is called; the key is a constant.
package final class AddressHash: @unchecked Sendable {
    private struct Network: Hashable {
        let high: UInt64
        let low: UInt64
    }

    private let key: [UInt8]
    private var known: [Network: String] = [:]

    /// Phones come back over kept connections, and proxies bring the same few networks again and again. Some 100 bytes
    /// each.
    private static let mostKnown = 10_000

    /// - Parameter secret: RATCHET_SECRET. Without the key, four billion IPv4 addresses would be hashed in a minute.
    package init(secret: [UInt8]) {
        key = Secrets.hmac(key: secret, Array("ratchet.address".utf8))
    }

    /// 16 hex characters for an IPv4 address, or for the /64 of an IPv6 one.
    package func of(_ peer: PeerAddress) -> String {
        let network = Network(high: peer.high, low: peer.isIPv4 ? peer.low : 0)
        if let hash = known[network] { return hash }
        if known.count >= Self.mostKnown { known.removeAll(keepingCapacity: true) }
        let hash = hash(peer)
        known[network] = hash
        return hash
    }

    /// A plain digest of key and network: both have a fixed length, so nothing can be appended, and it costs a sixth of
    /// an HMAC.
    private func hash(_ peer: PeerAddress) -> String {
        var message = key
        message.append(contentsOf: peer.isIPv4 ? peer.bytes[...] : peer.bytes[0..<8])
        return SHA256Digest(of: message).hex(ofFirst: 8)
    }
}
