/// Why a signed transaction proves nothing. An everyday outcome, not a fault: it is stored with the write and counted.
package struct Refusal: Error, Hashable, Sendable {
    /// The raw values go into jobs, metrics and the operator's answers: add, never rename.
    package enum Reason: String, Sendable, CaseIterable {
        /// Not three base64url parts (RFC 7515 §3.1), or beyond the size bound.
        case malformedJWS = "malformed_jws"
        /// Header or payload is not one strict JSON object.
        case malformedJSON = "malformed_json"
        /// The header demands extensions that nobody here understands (RFC 7515 §4.1.11).
        case criticalHeader = "critical_header"
        /// `alg` is not exactly `ES256`.
        case badAlgorithm = "bad_alg"
        /// `x5c` is absent, no array, or has not three entries. Xcode's own tokens end here: they have one.
        case badX5CLength = "bad_x5c_length"
        /// An entry of `x5c` is no string, or no standard base64.
        case malformedX5C = "malformed_x5c"
        /// An entry of `x5c` is not exactly one DER certificate.
        case malformedCertificate = "malformed_certificate"
        /// No pinned root vouches for the chain, and it does not claim that one would.
        case untrustedRoot = "untrusted_root"
        /// The chain names a pinned root and a link of it does not hold.
        case badChain = "bad_chain"
        /// The leaf lacks Apple's marker for receipt signing.
        case missingLeafOID = "missing_leaf_oid"
        /// The intermediate lacks Apple's marker for WWDR.
        case missingIntermediateOID = "missing_intermediate_oid"
        /// The leaf's key is not on P-256.
        case badLeafKey = "bad_leaf_key"
        /// A certificate of the chain is not valid at the date that counts.
        case expiredChain = "expired_chain"
        /// Not 64 bytes, or not the leaf's signature over these bytes.
        case badSignature = "bad_signature"
        /// A claim is absent that every payload has, of the wrong type, or out of range.
        case badClaim = "bad_claim"
        /// Signed later than the clock here allows.
        case signedInFuture = "signed_in_future"
        /// Apple signed it, but as something else: renewal info, a notification, an app transaction.
        case notATransaction = "not_a_transaction"
        /// A transaction of another app.
        case bundleMismatch = "bundle_mismatch"
        /// A transaction of an environment that is not accepted, or that names none.
        case wrongEnvironment = "wrong_environment"
    }

    package let reason: Reason
    /// One line for an operator, in fixed words: nothing of the token is quoted.
    package let detail: String

    package init(_ reason: Reason, _ detail: String) {
        self.reason = reason
        self.detail = detail
    }
}
