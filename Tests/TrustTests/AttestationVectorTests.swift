import Bytes
import Foundation
import TestSupport
import Testing
import Wire

@testable import Trust

private typealias AttestationCase = SharedVectors.Attestation

/// The vectors' names for reasons, and ours of the same kind.
private let reasons: [String: AttestationRefusal.Reason] = [
    "bad-nonce": .badNonce, "malformed-cbor": .malformedCBOR, "expired-chain": .expiredChain,
    "wrong-app": .appMismatch, "wrong-environment": .wrongEnvironment, "bad-x5c-length": .badX5CLength,
    "non-canonical-cbor": .nonCanonicalCBOR, "bad-fmt": .badFormat, "bad-counter": .badCounter,
    "bad-keyid": .badKeyID, "malformed-cert": .malformedCertificate, "trailing-data": .trailingData,
    "bad-credid": .badCredentialID, "malformed-authdata": .malformedAuthenticatorData, "bad-cose": .badPublicKey,
    "missing-nonce": .missingNonce,
]

@Suite struct AttestationVectorTests {
    private static func cases() throws -> [AttestationCase] {
        try SharedVectors.cases("vectors/appattest_attestations.json")
    }

    private static func bytes(_ text: String?) throws -> [UInt8] {
        try #require(Base64.decode(Array((text ?? "").utf8), .standard))
    }

    @Test func everyAttestationOfTheVectorsComesOutAsExpected() throws {
        let verifiers = [
            "apple-appattest": try AttestationVerifier(),
            "synthetic-appattest": try AttestationVerifier(
                roots: TrustedRoot.roots(pem: SharedVectors.bytes("certs/synthetic-appattest-root.pem"))),
        ]
        let cases = try Self.cases().filter { $0.kind == "appattest-attestation" }
        #expect(cases.count >= 64)
        for vector in cases {
            let verifier = try #require(verifiers[vector.root ?? ""], "\(vector.name): unknown root")
            let environment = try #require(AttestEnvironment(rawValue: vector.environment ?? ""))
            let now = try #require(vector.now)
            let parsed =
                try? Date(now, strategy: .iso8601.time(includingFractionalSeconds: true))
            let date = try parsed ?? Date(now, strategy: .iso8601)
            let object = try Self.bytes(vector.attestation)
            let (keyID, hash) = (try Self.bytes(vector.keyId), try Self.bytes(vector.clientDataHash))
            // By one that has seen nothing yet, and by one that remembers the intermediates of those before.
            let verdicts = [try AttestationVerifier(roots: verifier.roots), verifier].map {
                $0.verify(
                    attestation: object, keyID: keyID, clientDataHash: hash,
                    expectation: AttestationExpectation(
                        teamID: vector.teamId ?? "", bundleID: vector.bundleId ?? "", environments: [environment]),
                    nowMilliseconds: Int64(date.timeIntervalSince1970 * 1000))
            }
            let verdict = verdicts[0]
            #expect(verdicts[1] == verdict, "\(vector.name)")
            switch verdict {
            case .verified(let key):
                #expect(vector.expected == "ok", "\(vector.name)")
                #expect(key.environment == environment && key.publicKey.count == 65)
            case .refused(let refusal):
                #expect(refusal.reason == reasons[vector.expected], "\(vector.name): \(refusal)")
            }
        }
    }

    @Test func whatIOS27SaysBesideTheKeyIsRead() throws {
        let vector = try #require(try Self.cases().first { $0.name == "apple-guide-2026-ios27" })
        let object = try AttestationObject(Self.bytes(vector.attestation))
        let data = try AuthenticatorData(object.authenticatorData)
        #expect(object.authenticatorData.count == 226)
        #expect(data.extensions?["apple_validation_category_01"]?.bytes == [1, 0, 0, 0])
        #expect(data.extensions?["apple_bundle_version_01"]?.text?.isEmpty == false)
    }

    /// fido2-net-lib#552: devices leave leading zeros of a coordinate out.
    @Test func aKeyWithAShortCoordinateIsTheKeyItNames() throws {
        let vector = try #require(try Self.cases().first { $0.kind == "appattest-authdata" })
        let data = try AuthenticatorData(Self.bytes(vector.authData))
        #expect(data.publicKey.count == 65 && data.publicKey[1] == 0)
        #expect(SHA256Digest(of: data.publicKey).bytes == data.credentialID)
    }
}
