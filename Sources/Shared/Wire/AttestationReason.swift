/// Why an App Attest attestation proves nothing. The raw values go into answers and metrics: add, never rename.
package enum AttestationReason: String, Sendable, CaseIterable {
    /// Not the CBOR map that App Attest makes, cut short, or beyond the size bound.
    case malformedCBOR = "malformed_cbor"
    /// CBOR in a form that no device writes: indefinite lengths, tags, long heads, equal keys.
    case nonCanonicalCBOR = "non_canonical_cbor"
    /// Bytes after the object.
    case trailingData = "trailing_data"
    /// `fmt` is not `apple-appattest`.
    case badFormat = "bad_format"
    /// `x5c` has not two byte strings.
    case badX5CLength = "bad_x5c_length"
    /// An entry of `x5c` is not exactly one DER certificate.
    case malformedCertificate = "malformed_certificate"
    /// No pinned root vouches for the chain.
    case untrustedRoot = "untrusted_root"
    /// The path holds, and the certificate is of another sort than a device's.
    case badChain = "bad_chain"
    /// A certificate is not valid now. Devices get theirs for three days or some months.
    case expiredChain = "expired_chain"
    /// The certificate does not state the challenge at all.
    case missingNonce = "missing_nonce"
    /// The certificate was not made for this challenge and these data.
    case badNonce = "bad_nonce"
    /// The key identifier is not that of the certified key.
    case badKeyID = "bad_key_id"
    /// The authenticator data have another layout.
    case malformedAuthenticatorData = "malformed_authenticator_data"
    /// Another app, or another team's.
    case appMismatch = "app_mismatch"
    /// The key has signed before.
    case badCounter = "bad_counter"
    /// A development key where production is asked for, or the other way round.
    case wrongEnvironment = "wrong_environment"
    /// The credential's identifier is not the key's.
    case badCredentialID = "bad_credential_id"
    /// The key inside the data is not the certified one.
    case badPublicKey = "bad_public_key"
}
