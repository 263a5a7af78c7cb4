import Bytes
import TestSupport
import Testing
import Wire

@testable import Trust

/// The intermediate of good attestations is remembered, and nothing else gets by for it.
@Suite struct AttestationIssuerTests {
    private let authenticator = TestAuthenticator()
    private let challenge = "AAECAwQFBgcICQoLDA0ODw"
    private let nowSeconds: Int64 = 1_795_996_800

    private func verifier() throws -> AttestationVerifier {
        try AttestationVerifier(roots: TrustedRoot.roots(pem: Array(authenticator.rootPEM.utf8)))
    }

    private func judge(
        _ verifier: AttestationVerifier, by device: TestAuthenticator, at seconds: Int64? = nil,
        _ change: (inout TestAuthenticator.Parts) -> Void = { _ in }
    ) -> AttestationRefusal.Reason? {
        let made = device.attest(
            challenge: challenge, team: "ABCDE12345", bundle: "com.example.app", nowSeconds: nowSeconds, change)
        let verdict = verifier.verify(
            attestation: made.object, keyID: made.keyID, clientDataHash: device.clientDataHash(challenge),
            expectation: AttestationExpectation(teamID: "ABCDE12345", bundleID: "com.example.app"),
            nowMilliseconds: (seconds ?? nowSeconds) * 1000)
        guard case .refused(let refusal) = verdict else { return nil }
        return refusal.reason
    }

    @Test func theIntermediateIsRememberedAndEachDeviceIsJudged() throws {
        let verifier = try verifier()
        for _ in 1...3 { #expect(judge(verifier, by: authenticator) == nil) }
        #expect(verifier.knownIssuerCount == 1)
        #expect(judge(verifier, by: authenticator) { $0.counter = 1 } == .badCounter)
        #expect(judge(verifier, by: authenticator) { $0.clientDataHash[0] ^= 1 } == .badNonce)
        #expect(judge(verifier, by: authenticator, at: nowSeconds + 4 * 86_400) == .expiredChain)
        #expect(judge(verifier, by: authenticator, at: nowSeconds - 2 * 86_400) == .expiredChain)
    }

    /// Another authority of the same names, alone and with the remembered certificate put beside its leaf.
    @Test func aStrangersLeafUnderTheRememberedIntermediateIsRefused() throws {
        let stranger = TestAuthenticator()
        for warm in [false, true] {
            let verifier = try verifier()
            if warm { #expect(judge(verifier, by: authenticator) == nil) }
            #expect(judge(verifier, by: stranger) == .untrustedRoot)
            #expect(judge(verifier, by: stranger) { $0.intermediate = authenticator.intermediateDER } == .untrustedRoot)
            #expect(judge(verifier, by: authenticator) { $0.intermediate = stranger.intermediateDER } == .untrustedRoot)
            #expect(verifier.knownIssuerCount == (warm ? 1 : 0), "what failed was remembered")
        }
    }

    /// The intermediate's own window still counts once it is remembered.
    @Test func aRememberedIntermediateStillExpires() throws {
        let verifier = try verifier()
        #expect(judge(verifier, by: authenticator) == nil)
        let certificate = try #require(Certificate(der: authenticator.intermediateDER)?.window)
        let late = certificate.upperBound + 1
        let reason = judge(verifier, by: authenticator, at: late) { $0.validity = (late - 10, late + 10) }
        #expect(reason == .expiredChain)
    }
}
