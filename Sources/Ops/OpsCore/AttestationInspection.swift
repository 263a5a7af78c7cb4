internal import Bytes
package import Service
internal import Trust
internal import Wire

/// The verifier's own judgement on one App Attest attestation, for the question why a device can't enrol.
package struct AttestationInspection: Sendable {
    /// What an attestation is held against.
    package struct Question: Sendable {
        /// Standard base64 of 32 bytes, as the SDK sends it.
        package var keyID: String
        /// Base64, either alphabet, of what the device gave to `attestKey`: 32 bytes but for Apple's own samples.
        package var clientDataHash: String
        package var teamID: String
        package var bundleID: String
        /// `production` or `development`; nil accepts both.
        package var environment: String?
        /// Milliseconds since 1970: what the clock says.
        package var nowMilliseconds: Int64

        package init(
            keyID: String, clientDataHash: String, teamID: String, bundleID: String, environment: String? = nil,
            nowMilliseconds: Int64
        ) {
            self.keyID = keyID
            self.clientDataHash = clientDataHash
            self.teamID = teamID
            self.bundleID = bundleID
            self.environment = environment
            self.nowMilliseconds = nowMilliseconds
        }
    }

    private let verifier: AttestationVerifier

    /// With the roots that the verifier process of this installation believes: Apple's, and in development those of
    /// RATCHET_EXTRA_APPLE_ROOTS.
    /// - Throws: `.configuration` for a file of roots that can't be read or used.
    package init(settings: Settings) throws(OpsError) {
        let extra = try TokenInspection.extraRoots(settings)
        do throws(TrustError) {
            verifier = try AttestationVerifier(extraRootsPEM: extra)
        } catch {
            throw OpsError(.configuration, "root certificates: \(error.message)")
        }
    }

    /// With the roots of a PEM text and no others.
    /// - Throws: `.usage` when it holds no root.
    package init(rootPEM: [UInt8]) throws(OpsError) {
        do throws(TrustError) {
            verifier = try AttestationVerifier(roots: TrustedRoot.roots(pem: rootPEM))
        } catch {
            throw OpsError(.usage, "--root: \(error.message)")
        }
    }

    /// - Parameter attestation: base64 of the object, either alphabet; white space in it is ignored, since people paste.
    /// - Throws: `.usage` for text that is no base64, or an environment that there is not.
    package func judge(_ attestation: [UInt8], _ question: Question) throws(OpsError) -> Document {
        let isSpace: (UInt8) -> Bool = { $0 == 0x20 || (0x09...0x0d).contains($0) }
        let object = try Self.decoded(attestation.filter { !isSpace($0) }, "the attestation")
        let keyID = try Self.decoded(Array(question.keyID.utf8), "--key-id")
        let clientDataHash = try Self.decoded(Array(question.clientDataHash.utf8), "--client-data-hash")
        var environments = Set(AttestEnvironment.allCases)
        if let name = question.environment {
            guard let environment = AttestEnvironment(rawValue: name) else {
                throw OpsError(.usage, "--environment must be production or development; it is '\(name)'")
            }
            environments = [environment]
        }
        let verdict = verifier.verify(
            attestation: object, keyID: keyID, clientDataHash: clientDataHash,
            expectation: AttestationExpectation(
                teamID: question.teamID, bundleID: question.bundleID, environments: environments),
            nowMilliseconds: question.nowMilliseconds)
        return document(verdict, question)
    }

    private func document(_ verdict: AttestationVerdict, _ question: Question) -> Document {
        var key: AttestedKey?
        var refusal: AttestationRefusal?
        switch verdict {
        case .verified(let attested): key = attested
        case .refused(let why): refusal = why
        }
        return .members([
            "verified": .bool(refusal == nil), "reason": .text(refusal?.reason.rawValue),
            "detail": .text(refusal?.detail), "environment": .text(key?.environment.rawValue),
            "publicKey": .text(key.map { Base64.encode($0.publicKey, .standard) }),
            "bundleVersion": .text(key?.bundleVersion), "validationCategory": .text(key?.validationCategory),
            "notChecked": .list(question.environment == nil ? [.string("environment")] : []),
            "checkedAt": .time(milliseconds: question.nowMilliseconds),
            "roots": .list(verifier.roots.map { .string($0.fingerprint) }),
        ])
    }

    private static func decoded(_ text: [UInt8], _ name: String) throws(OpsError) -> [UInt8] {
        guard let bytes = Base64.decode(text, .standard) ?? Base64.decode(text, .url) else {
            throw OpsError(.usage, "\(name) must be base64")
        }
        return bytes
    }
}
