internal import Bytes
internal import Trust

extension FuzzTarget {
    /// Each input is tried as an attestation, under one root, challenge and key, and as the authenticator data that an
    /// attestation holds, which no fuzzer gets past the signature. Nothing but the genuine one verifies.
    static let attestation = FuzzTarget(name: "attestation", maximumBytes: 6000) { bytes throws(BrokenProperty) in
        let bench = AttestationBench.shared
        switch bench.verdict(bytes) {
        case .verified(let key):
            try require(
                key.publicKey == bench.genuine.publicKey && key.environment == bench.genuine.environment
                    && key.bundleVersion == nil && key.validationCategory == nil,
                "a key that nobody certified")
        case .refused(let refusal): try require(bytes != bench.attestation, "the genuine one is refused: \(refusal)")
        }
        if let data = try? AuthenticatorData(bytes) {
            try require(data.credentialID.count == 32, "an identifier of another length")
            try require(data.publicKey.count == 65 && data.publicKey[0] == 4, "a key of another form")
            if let extensions = data.extensions {
                try require(bytes.suffix(extensions.encoded.count) == extensions.encoded[...], "bytes after the data")
            }
        }
    }
}

/// One genuine attestation, made by TestAuthenticator, and all that it verifies with.
private struct AttestationBench {
    static let shared = AttestationBench()

    let attestation = PackageResources.attestation_cbor
    let genuine: AttestedKey
    private let verifier: AttestationVerifier
    private let keyID: [UInt8]

    private init() {
        guard let roots = try? TrustedRoot.roots(pem: PackageResources.attestation_root_pem),
            let verifier = try? AttestationVerifier(roots: roots),
            let data = (try? CBORValue(attestation[...]))?["authData"]?.bytes,
            let keyID = (try? AuthenticatorData(data))?.credentialID
        else { fatalError("the attestation of Fixtures cannot be read") }
        let verdict = Self.verdict(attestation, verifier, keyID)
        guard case .verified(let genuine) = verdict else { fatalError("the attestation of Fixtures: \(verdict)") }
        self.verifier = verifier
        self.keyID = keyID
        self.genuine = genuine
    }

    func verdict(_ bytes: [UInt8]) -> AttestationVerdict { Self.verdict(bytes, verifier, keyID) }

    private static func verdict(
        _ bytes: [UInt8], _ verifier: AttestationVerifier, _ keyID: [UInt8]
    ) -> AttestationVerdict {
        verifier.verify(
            attestation: bytes, keyID: keyID, clientDataHash: SHA256Digest(of: Array(FuzzFacts.challenge.utf8)).bytes,
            expectation: AttestationExpectation(teamID: FuzzFacts.teamID, bundleID: FuzzFacts.bundleID),
            nowMilliseconds: FuzzFacts.nowSeconds * 1000)
    }
}
