/// Why a root certificate can't be used. Always a fault of the configuration or of the build: no retry can help, and a
/// process that meets one at its start must not go on.
package struct TrustError: Error, Equatable, Sendable, CustomStringConvertible {
    package enum Code: String, Sendable {
        /// No root was given at all, or its bytes are empty.
        case empty
        /// The bytes are of another kind than was asked for: PEM for DER, DER for PEM, an HTML page.
        case wrongFormat = "wrong_format"
        /// Not exactly one DER certificate, or base64 that is not whole.
        case malformed
        /// A certificate, but no self-signed authority.
        case notARoot = "not_a_root"
        /// A root other than the one that is meant to be built in.
        case wrongFingerprint = "wrong_fingerprint"
    }

    package let code: Code
    /// One line for an operator. Quotes nothing of the bytes.
    package let message: String

    package init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    package var description: String { "\(code.rawValue): \(message)" }
}
