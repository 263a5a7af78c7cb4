internal import Bytes
package import HTTP

/// The network a write came from, as it is stored: enough to see that two writes share it, and of no use to anybody
/// without the installation's secret.
package struct AddressHash: Sendable {
    private let key: [UInt8]

    /// - Parameter secret: RATCHET_SECRET. Without the key, four billion IPv4 addresses would be hashed in a minute.
    package init(secret: [UInt8]) {
        key = Secrets.hmac(key: secret, Array("ratchet.address".utf8))
    }

    /// 16 hex characters for an IPv4 address, or for the /64 of an IPv6 one.
    ///
    /// A plain digest of key and network: both have a fixed length, so nothing can be appended, and it costs a sixth of
    /// an HMAC, on every request.
    package func of(_ peer: PeerAddress) -> String {
        var message = key
        message.append(contentsOf: peer.isIPv4 ? peer.bytes[...] : peer.bytes[0..<8])
        return SHA256Digest(of: message).hex(ofFirst: 8)
    }
}
