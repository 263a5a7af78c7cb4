internal import Bytes
internal import Wire

/// The authenticator data of an attestation (WebAuthn Level 2 §6.1, as App Attest fills them), taken apart and not
/// judged.
package struct AuthenticatorData {
    /// SHA-256 of `TEAMID.bundle.id`.
    let appIDHash: [UInt8]
    let counter: UInt32
    /// Sixteen bytes that name the environment.
    let environmentID: [UInt8]
    /// 32 bytes; in what Apple certifies, the key's SHA-256.
    package let credentialID: [UInt8]
    /// 04, x, y. Devices leave leading zeros of a coordinate out; here both have their 32 bytes.
    package let publicKey: [UInt8]
    /// What iOS 27 says beside: there with the extension flag set or clear.
    package let extensions: CBORValue?

    private static let malformed = AttestationRefusal(
        .malformedAuthenticatorData, "the authenticator data have another layout")
    private static let badKey = AttestationRefusal(.badPublicKey, "the data hold no P-256 key in COSE form")
    /// Identifiers are SHA-256 digests.
    private static let credentialBytes = 32
    private static let coordinateBytes = 32

    /// Takes bytes that anybody may have sent. A retry cannot help.
    package init(_ bytes: [UInt8]) throws(AttestationRefusal) {
        // 32 of the app, flags, 4 of the counter, 16 of the environment, 2 of the length, then the identifier.
        guard bytes.count >= 55 else { throw Self.malformed }
        appIDHash = Array(bytes[0..<32])
        counter = bytes[33..<37].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        environmentID = Array(bytes[37..<53])
        let length = Int(bytes[53]) << 8 | Int(bytes[54])
        guard length == Self.credentialBytes, bytes.count >= 55 + length else { throw Self.malformed }
        credentialID = Array(bytes[55..<(55 + length)])
        var reader = CBORReader(bytes[(55 + length)...])
        publicKey = try Self.point(try Self.item(&reader))
        guard !reader.rest.isEmpty else {
            extensions = nil
            return
        }
        let beside = try Self.item(&reader)
        guard case .map = beside, reader.rest.isEmpty else { throw Self.malformed }
        extensions = beside
    }

    private static func item(_ reader: inout CBORReader) throws(AttestationRefusal) -> CBORValue {
        do throws(CBORValue.Fault) {
            return try reader.item(depth: 1)
        } catch {
            throw AttestationRefusal(fault: error, in: "the authenticator data")
        }
    }

    /// The key of a COSE_Key (RFC 9052 §7): EC2, ES256, P-256 and both coordinates, nothing else.
    private static func point(_ key: CBORValue) throws(AttestationRefusal) -> [UInt8] {
        guard case .map(let pairs) = key, pairs.count == 5, key[1] == CBORValue(2), key[3] == CBORValue(-7),
            key[-1] == CBORValue(1), let x = key[-2]?.bytes, let y = key[-3]?.bytes,
            1...coordinateBytes ~= x.count, 1...coordinateBytes ~= y.count
        else { throw badKey }
        return [4] + padded(x) + padded(y)
    }

    private static func padded(_ coordinate: [UInt8]) -> [UInt8] {
        Array(repeating: 0, count: coordinateBytes - coordinate.count) + coordinate
    }
}

extension AttestationRefusal {
    /// - Parameter place: what was being read.
    init(fault: CBORValue.Fault, in place: String) {
        switch fault {
        case .malformed: self.init(.malformedCBOR, "\(place): not CBOR, cut short, too deep or too much")
        case .nonCanonical: self.init(.nonCanonicalCBOR, "\(place): CBOR in a form that no device writes")
        case .trailing: self.init(.trailingData, "\(place): bytes after the end")
        }
    }
}
