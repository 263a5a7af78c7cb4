internal import Bytes
internal import CTestPKI

/// A private key that tests sign with.
///
/// `@unchecked Sendable`: the handle is set once, freed once in `deinit`, and signing makes a context of its own.
package final class TestPKIKey: @unchecked Sendable {
    fileprivate let handle: OpaquePointer

    package enum Kind: String, Sendable {
        case p256 = "prime256v1"
        case p384 = "secp384r1"
        case rsa = "RSA"
        case ed25519 = "ED25519"
    }

    /// `spelledOut` makes certificates carry the curve's parameters instead of its name.
    package init(_ kind: Kind, spelledOut: Bool = false) {
        guard let handle = ctestpki_key_create(kind.rawValue, spelledOut ? 1 : 0) else { fatalError("no key") }
        self.handle = handle
    }

    deinit { ctestpki_key_free(handle) }

    /// 04, x, y: 65 bytes. The key must be on P-256.
    package var point: [UInt8] {
        [UInt8](unsafeUninitializedCapacity: 65) { buffer, count in
            guard ctestpki_key_point(handle, buffer.baseAddress) == 1 else { fatalError("the key is not on P-256") }
            count = 65
        }
    }

    /// ES256 over a message: r and s, 64 bytes. The key must be on P-256.
    package func sign(_ message: [UInt8]) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: 64) { buffer, count in
            guard ctestpki_sign(handle, message, UInt64(message.count), buffer.baseAddress) == 1 else {
                fatalError("the key can't sign ES256")
            }
            count = 64
        }
    }
}

/// What shall stand in a certificate; the defaults of `root`, `intermediate` and `leaf` are those of Apple's chain.
package struct TestPKICertificate: Sendable {
    package var subject: String
    package var issuer: String
    package var key: TestPKIKey
    package var issuerKey: TestPKIKey
    package var digest = "sha384"
    /// Seconds since 1970.
    package var notBefore: Int64
    package var notAfter: Int64
    /// OpenSSL's configuration syntax; nil leaves the extension out.
    package var basicConstraints: String?
    package var keyUsage: String?
    /// Dotted identifiers of extensions with a NULL value; a leading `!` makes one critical, `=` and hexadecimal DER
    /// behind it give it another value.
    package var markers: [String] = []
    package var hasKeyIdentifiers = true

    /// 2020-01-01 to 2045-01-01.
    package static func root(subject: String = "Test Root", key: TestPKIKey = TestPKIKey(.p384)) -> TestPKICertificate {
        TestPKICertificate(
            subject: subject, issuer: subject, key: key, issuerKey: key, notBefore: 1_577_836_800,
            notAfter: 2_366_841_600, basicConstraints: "critical,CA:TRUE",
            keyUsage: "critical,keyCertSign,cRLSign")
    }

    /// 2020-01-01 to 2036-01-01.
    package static func intermediate(
        under root: TestPKICertificate, key: TestPKIKey = TestPKIKey(.p384)
    ) -> TestPKICertificate {
        TestPKICertificate(
            subject: "Test WWDR", issuer: root.subject, key: key, issuerKey: root.key, notBefore: 1_577_836_800,
            notAfter: 2_082_758_400, basicConstraints: "critical,CA:TRUE,pathlen:0",
            keyUsage: "critical,keyCertSign,cRLSign", markers: ["1.2.840.113635.100.6.2.1"])
    }

    /// 2025-01-01 to 2027-01-01.
    package static func leaf(
        under intermediate: TestPKICertificate, key: TestPKIKey = TestPKIKey(.p256)
    ) -> TestPKICertificate {
        TestPKICertificate(
            subject: "Test Receipt Signing", issuer: intermediate.subject, key: key, issuerKey: intermediate.key,
            notBefore: 1_735_689_600, notAfter: 1_798_761_600, basicConstraints: "critical,CA:FALSE",
            keyUsage: "critical,digitalSignature", markers: ["1.2.840.113635.100.6.11.1"])
    }

    /// A copy with some fields changed.
    package func with(_ change: (inout TestPKICertificate) -> Void) -> TestPKICertificate {
        var copy = self
        change(&copy)
        return copy
    }

    /// Signs and encodes it. Each call signs anew, so the bytes differ between calls: keep them.
    package func der() -> [UInt8] {
        let lines = markers.joined(separator: "\n")
        return [UInt8](unsafeUninitializedCapacity: 4096) { buffer, count in
            let size = withCStrings([subject, issuer, digest, basicConstraints, keyUsage, lines]) { text in
                var wish = ctestpki_certificate(
                    subject: text[0], issuer: text[1], key: key.handle, issuer_key: issuerKey.handle,
                    digest: text[2], not_before: notBefore, not_after: notAfter,
                    serial: Int64(UInt32.random(in: 1 ... .max)), basic_constraints: text[3], key_usage: text[4],
                    markers: text[5], key_identifiers: hasKeyIdentifiers ? 1 : 0)
                return ctestpki_certificate_der(&wish, buffer.baseAddress, UInt64(buffer.count))
            }
            guard size > 0 else { fatalError("the certificate can't be made") }
            count = Int(size)
        }
    }
}

/// A public key infrastructure like Apple's (root and intermediate on P-384, leaf on P-256, their marker extensions),
/// made anew for each instance: what it signs verifies only where `rootPEM` or `rootDER` is pinned.
package final class TestPKI: Sendable {
    package let root: TestPKICertificate
    package let intermediate: TestPKICertificate
    package let leaf: TestPKICertificate
    package let rootDER: [UInt8]
    package let intermediateDER: [UInt8]
    package let leafDER: [UInt8]

    package init() {
        root = .root()
        intermediate = .intermediate(under: root)
        leaf = .leaf(under: intermediate)
        rootDER = root.der()
        intermediateDER = intermediate.der()
        leafDER = leaf.der()
    }

    /// The root as a PEM file holds it.
    package var rootPEM: String { Self.pem(rootDER) }

    /// A certificate as a PEM file holds it.
    package static func pem(_ der: [UInt8]) -> String {
        let encoded = Array(Base64.encode(der, .standard).utf8)
        var lines = ["-----BEGIN CERTIFICATE-----"]
        for start in stride(from: 0, to: encoded.count, by: 64) {
            lines.append(String(decoding: encoded[start..<min(start + 64, encoded.count)], as: UTF8.self))
        }
        return (lines + ["-----END CERTIFICATE-----", ""]).joined(separator: "\n")
    }

    /// A JWS with this payload, as a device would send it.
    package func sign(payload: String) -> String {
        Self.jws(
            header: Self.header(x5c: [leafDER, intermediateDER, rootDER]), payload: Array(payload.utf8), key: leaf.key)
    }

    /// A JWS of a transaction.
    package func sign(_ transaction: TestPKITransaction) -> String { sign(payload: transaction.json) }

    /// A JWS of any header and payload, signed whatever they say.
    package static func jws(header: String, payload: [UInt8], key: TestPKIKey) -> String {
        let input = "\(Base64.encode(Array(header.utf8), .url)).\(Base64.encode(payload, .url))"
        return "\(input).\(Base64.encode(key.sign(Array(input.utf8)), .url))"
    }

    /// A header with these certificates.
    package static func header(x5c: [[UInt8]], algorithm: String = "ES256") -> String {
        let entries = x5c.map { "\"\(Base64.encode($0, .standard))\"" }.joined(separator: ",")
        return "{\"alg\":\"\(algorithm)\",\"x5c\":[\(entries)]}"
    }
}

/// Lends C strings for the duration of a call; nil stays nil.
private func withCStrings<Result>(
    _ texts: [String?], _ body: ([UnsafePointer<CChar>?]) -> Result
) -> Result {
    func lend(_ index: Int, _ lent: [UnsafePointer<CChar>?]) -> Result {
        guard index < texts.count else { return body(lent) }
        guard let text = texts[index] else { return lend(index + 1, lent + [nil]) }
        return text.withCString { lend(index + 1, lent + [$0]) }
    }
    return lend(0, [])
}
