internal import Bytes
import Foundation

/// A device with a Secure Enclave of its own, under a root of the test's: makes keys and attests them as iOS does, or
/// with any part of it wrong.
package final class TestAuthenticator: Sendable {
    /// The parts of an attestation, to be bent before they are put together.
    package struct Parts: Sendable {
        package var format = "apple-appattest"
        package var appID: String
        package var flags: UInt8 = 0x40
        package var counter: UInt32 = 0
        /// 16 bytes.
        package var environmentID: [UInt8] = Array("appattest".utf8) + [0, 0, 0, 0, 0, 0, 0]
        package var credentialID: [UInt8]
        /// 04, x, y in the authenticator data.
        package var coordinates: [UInt8]
        /// CBOR after the key.
        package var extensions: [UInt8] = []
        /// What the device attests with: SHA-256 of the challenge.
        package var clientDataHash: [UInt8]
        /// DER of the nonce extension; nil computes it, empty leaves the extension out.
        package var nonceExtension: [UInt8]?
        package var receipt: [UInt8] = Array("receipt".utf8)
        /// Seconds since 1970 between which the certificate is valid.
        package var validity: (from: Int64, to: Int64)
        /// DER of the certificate beside the device's.
        package var intermediate: [UInt8]
        /// Bytes after the object.
        package var trailing: [UInt8] = []
    }

    /// What a device sends to enrol.
    package struct Attestation: Sendable {
        /// 32 bytes.
        package let keyID: [UInt8]
        package let object: [UInt8]
        package var keyIDText: String { Base64.encode(keyID, .standard) }
        package var objectText: String { Base64.encode(object, .standard) }
    }

    private let root: TestPKICertificate
    private let intermediate: TestPKICertificate
    /// DER.
    package let intermediateDER: [UInt8]
    /// The root as a PEM file holds it.
    package let rootPEM: String

    /// - Parameter curve: of both authorities. Apple's are on P-384, which takes ten times longer to check.
    package init(curve: TestPKIKey.Kind = .p384) {
        root = .root(subject: "Test App Attestation Root", key: TestPKIKey(curve))
        intermediate = TestPKICertificate.intermediate(under: root, key: TestPKIKey(curve)).with {
            $0.subject = "Test App Attestation CA 1"
            $0.markers = []
        }
        intermediateDER = intermediate.der()
        rootPEM = TestPKI.pem(root.der())
    }

    /// As an SDK makes it: the SHA-256 of the challenge's bytes, not of their base64url text. Nothing of the product
    /// decodes it here, so that a mistake is not made twice.
    package func clientDataHash(_ challenge: String) -> [UInt8] {
        let standard = challenge.replacing("-", with: "+").replacing("_", with: "/")
        let padding = String(repeating: "=", count: (4 - standard.utf8.count % 4) % 4)
        return SHA256Digest(of: Array(Data(base64Encoded: standard + padding) ?? Data())).bytes
    }

    /// Makes a key and attests it.
    /// - Parameter change: bends the parts.
    package func attest(
        challenge: String, team: String, bundle: String, nowSeconds: Int64, key: TestPKIKey = TestPKIKey(.p256),
        _ change: (inout Parts) -> Void = { _ in }
    ) -> Attestation {
        let point = key.point
        let keyID = SHA256Digest(of: point).bytes
        var parts = Parts(
            appID: "\(team).\(bundle)", credentialID: keyID, coordinates: point,
            clientDataHash: clientDataHash(challenge),
            validity: (nowSeconds - 86_400, nowSeconds + 3 * 86_400), intermediate: intermediateDER)
        change(&parts)
        let data = Self.authenticatorData(parts)
        let nonce = SHA256Digest(of: data + parts.clientDataHash).bytes
        let value = parts.nonceExtension ?? [0x30, 0x24, 0xA1, 0x22, 0x04, 0x20] + nonce
        let leaf = TestPKICertificate.leaf(under: intermediate, key: key).with {
            $0.digest = "sha256"
            $0.notBefore = parts.validity.from
            $0.notAfter = parts.validity.to
            $0.markers = value.isEmpty ? [] : ["1.2.840.113635.100.8.2=\(Hex.encode(value))"]
        }
        let object =
            Self.map(3) + Self.text("fmt") + Self.text(parts.format) + Self.text("attStmt") + Self.map(2)
            + Self.text("x5c") + [0x82] + Self.bytes(leaf.der()) + Self.bytes(parts.intermediate) + Self.text("receipt")
            + Self.bytes(parts.receipt) + Self.text("authData") + Self.bytes(data) + parts.trailing
        return Attestation(keyID: keyID, object: object)
    }

    private static func authenticatorData(_ parts: Parts) -> [UInt8] {
        var data = SHA256Digest(of: Array(parts.appID.utf8)).bytes
        data.append(parts.flags)
        withUnsafeBytes(of: parts.counter.bigEndian) { data.append(contentsOf: $0) }
        data += parts.environmentID
        data += [UInt8(parts.credentialID.count >> 8), UInt8(parts.credentialID.count & 0xff)] + parts.credentialID
        // COSE_Key: 1: 2, 3: -7, -1: 1, -2: x, -3: y.
        data += [0xA5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21] + bytes(Array(parts.coordinates[1..<33]))
        data += [0x22] + bytes(Array(parts.coordinates[33..<65]))
        return data + parts.extensions
    }

    private static func map(_ count: UInt8) -> [UInt8] { [0xA0 | count] }
    private static func text(_ text: String) -> [UInt8] { head(3, text.utf8.count) + Array(text.utf8) }
    private static func bytes(_ bytes: [UInt8]) -> [UInt8] { head(2, bytes.count) + bytes }

    /// The shortest head of an item.
    private static func head(_ type: UInt8, _ count: Int) -> [UInt8] {
        switch count {
        case 0..<24: [type << 5 | UInt8(count)]
        case 24..<256: [type << 5 | 24, UInt8(count)]
        default: [type << 5 | 25, UInt8(count >> 8), UInt8(count & 0xff)]
        }
    }
}
