import Bytes
import TestSupport
import Testing

@testable import Trust

@Suite struct RootTests {
    private func code(_ body: () throws -> Void) -> TrustError.Code? {
        do {
            try body()
            return nil
        } catch { return (error as? TrustError)?.code }
    }

    @Test func theBuiltInRootIsApplesG3() throws {
        let root = try TrustedRoot.appleRootCAG3()
        #expect(root.subject == "C=US,O=Apple Inc.,OU=Apple Certification Authority,CN=Apple Root CA - G3")
        #expect(root.fingerprint == "63343abfb89a6a03ebb57e9b3f5fa7be7c4f5c756f3017b3a8c488c3653e9179")
        // 2039-04-30T18:19:06Z.
        #expect(root.notAfter == 2_187_800_346_000)
        #expect(root.millisecondsLeft(at: 2_187_800_345_000) == 1000)
        #expect(root.millisecondsLeft(at: 2_187_800_347_000) == -1000)
        #expect(root.millisecondsLeft(at: .min) == .max)
        #expect(try SignedTransactionVerifier().roots.map(\.fingerprint) == [root.fingerprint])
    }

    @Test func aRootOfAnotherFingerprintIsRefused() throws {
        let other = TestPKI().rootDER
        #expect(
            code { _ = try TrustedRoot(der: other, sha256: TrustedRoot.appleRootCAG3Fingerprint) } == .wrongFingerprint)
        #expect(code { _ = try TrustedRoot(der: other, sha256: "") } == .wrongFingerprint)
        let digest = SHA256Digest(of: other).hex
        #expect(code { _ = try TrustedRoot(der: other, sha256: digest.uppercased()) } == nil)
        var damaged = try TrustedRoot.appleRootCAG3().der
        damaged[300] ^= 1
        #expect(code { _ = try TrustedRoot(der: damaged, sha256: TrustedRoot.appleRootCAG3Fingerprint) } != nil)
    }

    @Test func whatIsNoDERIsAConfigurationErrorThatSaysSo() {
        let pki = TestPKI()
        #expect(code { _ = try TrustedRoot(der: []) } == .empty)
        #expect(code { _ = try TrustedRoot(der: Array(pki.rootPEM.utf8)) } == .wrongFormat)
        #expect(code { _ = try TrustedRoot(der: Array("<!DOCTYPE html><html>".utf8)) } == .wrongFormat)
        #expect(code { _ = try TrustedRoot(der: Array("\n  ".utf8)) } == .wrongFormat)
        #expect(code { _ = try TrustedRoot(der: pki.rootDER + [0]) } == .malformed)
        #expect(code { _ = try TrustedRoot(der: Array(pki.rootDER.dropLast())) } == .malformed)
        do {
            _ = try TrustedRoot(der: Array("<html>".utf8))
        } catch { #expect(error.description.contains("HTML")) }
    }

    @Test func aCertificateThatIsNoRootIsRefused() {
        let pki = TestPKI()
        #expect(code { _ = try TrustedRoot(der: pki.leafDER) } == .notARoot)
        #expect(code { _ = try TrustedRoot(der: pki.intermediateDER) } == .notARoot)
        #expect(
            code { _ = try TrustedRoot(der: pki.root.with { $0.issuerKey = TestPKIKey(.p384) }.der()) } == .notARoot)
        #expect(code { _ = try TrustedRoot(der: pki.root.with { $0.basicConstraints = nil }.der()) } == .notARoot)
    }

    @Test func aPEMTextYieldsEveryCertificateInIt() throws {
        let (first, second) = (TestPKI(), TestPKI())
        let text = "Comment\n" + first.rootPEM + "between\r\n" + second.rootPEM.replacing("\n", with: "\r\n")
        #expect(try PEM.certificates(in: Array(text.utf8)) == [first.rootDER, second.rootDER])
        #expect(PEM.encode(certificate: first.rootDER) == first.rootPEM)
        let verifier = try SignedTransactionVerifier(extraRootsPEM: Array(text.utf8))
        #expect(verifier.roots.count == 3)
        for pki in [first, second] {
            let verdict = verifier.verify(
                jws: pki.sign(TestPKITransaction()), expectation: TransactionExpectation(bundleID: "com.example.app"),
                nowMilliseconds: defaultNow)
            #expect(verdict.facts != nil)
        }
    }

    @Test func whatIsNoPEMIsAConfigurationError() {
        let pki = TestPKI()
        let pem = pki.rootPEM
        func code(_ text: String) -> TrustError.Code? {
            self.code { _ = try SignedTransactionVerifier(extraRootsPEM: Array(text.utf8)) }
        }
        #expect(code("") == .empty)
        #expect(code("<html></html>") == .wrongFormat)
        #expect(code("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n") == .wrongFormat)
        #expect(code(pem.replacing("-----END CERTIFICATE-----", with: "")) == .malformed)
        #expect(code(pem.replacing("MII", with: "M!I")) == .malformed)
        #expect(code("-----BEGIN CERTIFICATE-----\n" + pem) == .malformed)
        #expect(code("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n") == .malformed)
        #expect(code(PEM.encode(certificate: pki.leafDER)) == .notARoot)
        #expect(self.code { _ = try SignedTransactionVerifier(extraRootsPEM: pki.rootDER) } == .wrongFormat)
        #expect(self.code { _ = try SignedTransactionVerifier(roots: []) } == .empty)
    }
}
