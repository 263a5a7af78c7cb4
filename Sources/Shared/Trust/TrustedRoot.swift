internal import Bytes

/// A root that chains may end in. Holding one means that it parsed, is a self-signed authority, and is not anything
/// else under its name: paths are built against these bytes, never against a root that a token brings.
package struct TrustedRoot: Sendable {
    /// The certificate's bytes.
    package let der: [UInt8]
    /// RFC 2253 text, the most general part first: `C=US,O=Apple Inc.,…,CN=Apple Root CA - G3`.
    package let subject: String
    /// Milliseconds since 1970.
    package let notBefore: Int64
    /// Milliseconds since 1970. After it nothing under this root verifies, not even with an old `signedDate` beyond it.
    package let notAfter: Int64

    let store: RootStore
    /// Whether it limits the names below it (RFC 5280 4.2.1.10).
    let constrainsNames: Bool
    let window: ClosedRange<Int64>

    private static let nameConstraintsOID = "2.5.29.30"

    /// Throws `.empty`, `.wrongFormat` (PEM or HTML where DER is due), `.malformed` or `.notARoot`.
    package init(der: [UInt8]) throws(TrustError) {
        guard !der.isEmpty else { throw TrustError(.empty, "the root certificate is empty") }
        guard der[0] == 0x30 else {
            throw TrustError(.wrongFormat, "the root certificate must be DER: \(PEM.kind(of: der))")
        }
        guard let certificate = Certificate(der: der), let window = certificate.window else {
            throw TrustError(.malformed, "the root certificate is not one DER certificate")
        }
        guard certificate.isRoot, let store = certificate.makeStore() else {
            throw TrustError(.notARoot, "the certificate is not a self-signed authority")
        }
        self.der = der
        self.window = window
        self.store = store
        constrainsNames = certificate.hasAny(Self.nameConstraintsOID)
        subject = certificate.subject
        notBefore = window.lowerBound * 1000
        notAfter = window.upperBound * 1000
    }

    /// As `init(der:)`, and throws `.wrongFingerprint` when the SHA-256 of the bytes is another one. Hexadecimal in
    /// either case, with or without colons.
    package init(der: [UInt8], sha256: String) throws(TrustError) {
        try self.init(der: der)
        guard Hex.decode(sha256.filter { $0 != ":" }) == SHA256Digest(of: der).bytes else {
            throw TrustError(.wrongFingerprint, "the root certificate is not the one with the expected SHA-256")
        }
    }

    /// Every certificate of a PEM text as a root. Throws what `PEM.certificates(in:)` and `init(der:)` throw: one bad
    /// certificate refuses the whole file.
    package static func roots(pem: [UInt8]) throws(TrustError) -> [TrustedRoot] {
        var roots: [TrustedRoot] = []
        for der in try PEM.certificates(in: pem) { roots.append(try TrustedRoot(der: der)) }
        return roots
    }

    /// Lower-case hexadecimal SHA-256 of the bytes.
    package var fingerprint: String { SHA256Digest(of: der).hex }

    /// How long the root is still valid, in milliseconds; negative when its time is over.
    package func millisecondsLeft(at now: Int64) -> Int64 {
        let (left, overflow) = notAfter.subtractingReportingOverflow(now)
        return overflow ? (now < 0 ? .max : .min) : left
    }
}
