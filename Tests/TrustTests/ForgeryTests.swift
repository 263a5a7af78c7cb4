import Bytes
import TestSupport
import Testing
import Wire

@testable import Trust

/// Chains and signatures that somebody made to deceive.
@Suite struct ForgeryTests {
    let bench: Bench
    let pki: TestPKI

    init() throws {
        bench = try Bench()
        pki = bench.pki
    }

    /// The verdict on a leaf of one's own under the genuine intermediate.
    private func verdict(leaf: TestPKICertificate) -> TransactionVerdict {
        bench.verdict(x5c: [leaf.der(), pki.intermediateDER, pki.rootDER], key: leaf.key)
    }

    /// The verdict on an intermediate of one's own under the genuine root, with a leaf made for it.
    private func verdict(intermediate: TestPKICertificate) -> TransactionVerdict {
        let leaf = TestPKICertificate.leaf(under: intermediate)
        return bench.verdict(x5c: [leaf.der(), intermediate.der(), pki.rootDER], key: leaf.key)
    }

    @Test func theGenuineChainVerifies() {
        #expect(bench.verdict(of: pki.sign(TestPKITransaction())).facts?.transactionID == "2000000000000001")
        #expect(verdict(leaf: .leaf(under: pki.intermediate)).facts != nil)
        #expect(verdict(intermediate: .intermediate(under: pki.root)).facts != nil)
    }

    @Test func aChainWithoutKeyIdentifiersOrKeyUsageVerifies() throws {
        // As in the test chain of Apple's libraries.
        let root = TestPKICertificate.root(key: TestPKIKey(.p256)).with {
            $0.hasKeyIdentifiers = false
            $0.keyUsage = nil
            $0.digest = "sha256"
        }
        let intermediate = TestPKICertificate.intermediate(under: root, key: TestPKIKey(.p256)).with {
            $0.hasKeyIdentifiers = false
            $0.keyUsage = nil
        }
        let leaf = TestPKICertificate.leaf(under: intermediate).with {
            $0.hasKeyIdentifiers = false
            $0.keyUsage = nil
        }
        let rootDER = root.der()
        let verifier = try SignedTransactionVerifier(roots: [TrustedRoot(der: rootDER)])
        let header = TestPKI.header(x5c: [leaf.der(), intermediate.der(), rootDER])
        let jws = TestPKI.jws(header: header, payload: Array(TestPKITransaction().json.utf8), key: leaf.key)
        let verdict = verifier.verify(
            jws: jws, expectation: TransactionExpectation(bundleID: nil), nowMilliseconds: defaultNow)
        #expect(verdict.facts != nil)
    }

    @Test func anotherRootIsUntrustedEvenUnderTheSameName() {
        for identifiers in [true, false] {
            let root = TestPKICertificate.root(subject: pki.root.subject).with { $0.hasKeyIdentifiers = identifiers }
            let intermediate = TestPKICertificate.intermediate(under: root).with { $0.hasKeyIdentifiers = identifiers }
            let leaf = TestPKICertificate.leaf(under: intermediate)
            #expect(
                bench.verdict(x5c: [leaf.der(), intermediate.der(), root.der()], key: leaf.key).reason
                    == .untrustedRoot)
            #expect(
                bench.verdict(x5c: [leaf.der(), intermediate.der(), pki.rootDER], key: leaf.key).reason == .badChain)
        }
        #expect(bench.verdict(of: TestPKI().sign(TestPKITransaction())).reason == .untrustedRoot)
    }

    @Test func theThirdCertificateIsNeverTrustedAndNeverNeeded() {
        let other = TestPKI()
        #expect(bench.verdict(x5c: [other.leafDER, other.intermediateDER, pki.rootDER]).reason == .badChain)
        // The path to the pinned root holds without it, so another certificate in its place changes nothing.
        #expect(bench.verdict(x5c: [pki.leafDER, pki.intermediateDER, other.rootDER]).facts != nil)
    }

    @Test func anyOtherOrderOrMixOfCertificatesIsRefused() {
        let (leaf, intermediate, root) = (pki.leafDER, pki.intermediateDER, pki.rootDER)
        for x5c in [
            [root, intermediate, leaf], [intermediate, leaf, root], [leaf, root, intermediate], [leaf, leaf, root],
            [intermediate, intermediate, root], [root, root, root], [leaf, root, root], [intermediate, root, root],
        ] {
            let reason = bench.verdict(x5c: x5c).reason
            #expect(reason == .badChain || reason == .untrustedRoot)
        }
    }

    @Test func aLeafRightUnderTheRootIsRefused() {
        let leaf = TestPKICertificate.leaf(under: pki.root)
        #expect(
            bench.verdict(x5c: [leaf.der(), pki.intermediateDER, pki.rootDER], key: leaf.key).reason == .badChain)
    }

    @Test func markersAreDemandedOnceOnTheRightCertificate() {
        #expect(verdict(leaf: .leaf(under: pki.intermediate).with { $0.markers = [] }).reason == .missingLeafOID)
        #expect(
            verdict(leaf: .leaf(under: pki.intermediate).with { $0.markers = ["1.2.840.113635.100.6.2.1"] }).reason
                == .missingLeafOID)
        #expect(
            verdict(leaf: .leaf(under: pki.intermediate).with { $0.markers = ["1.2.840.113635.100.6.11.2"] }).reason
                == .missingLeafOID)
        #expect(
            verdict(leaf: .leaf(under: pki.intermediate).with { $0.markers += $0.markers }).reason == .missingLeafOID)
        #expect(
            verdict(intermediate: .intermediate(under: pki.root).with { $0.markers = [] }).reason
                == .missingIntermediateOID)
        #expect(
            verdict(intermediate: .intermediate(under: pki.root).with { $0.markers = ["1.2.840.113635.100.6.11.1"] })
                .reason == .missingIntermediateOID)
    }

    @Test func unknownExtensionsPassUnlessTheyAreCritical() {
        #expect(verdict(leaf: .leaf(under: pki.intermediate).with { $0.markers.append("1.2.3.4.5") }).facts != nil)
        #expect(
            verdict(leaf: .leaf(under: pki.intermediate).with { $0.markers.append("!1.2.3.4.5") }).reason == .badChain)
        #expect(
            verdict(intermediate: .intermediate(under: pki.root).with { $0.markers.append("!1.2.3.4.5") }).reason
                == .badChain)
    }

    @Test func anAuthorityIsNoLeaf() {
        let leaf = TestPKICertificate.leaf(under: pki.intermediate)
        #expect(verdict(leaf: leaf.with { $0.basicConstraints = "critical,CA:TRUE" }).reason == .badChain)
        #expect(
            verdict(
                leaf: leaf.with {
                    $0.basicConstraints = nil
                    $0.keyUsage = "critical,digitalSignature,keyCertSign"
                }
            ).reason == .badChain)
        #expect(verdict(leaf: leaf.with { $0.keyUsage = "critical,keyAgreement" }).reason == .badChain)
    }

    @Test func onlyAnAuthoritySignsCertificates() {
        let intermediate = TestPKICertificate.intermediate(under: pki.root)
        #expect(
            verdict(intermediate: intermediate.with { $0.basicConstraints = "critical,CA:FALSE" }).reason == .badChain)
        #expect(verdict(intermediate: intermediate.with { $0.basicConstraints = nil }).reason == .badChain)
        #expect(
            verdict(intermediate: intermediate.with { $0.keyUsage = "critical,digitalSignature" }).reason == .badChain)
        // A genuine leaf that mints certificates of its own.
        let child = TestPKICertificate.leaf(under: pki.leaf.with { $0.key = pki.leaf.key })
        #expect(bench.verdict(x5c: [child.der(), pki.leafDER, pki.rootDER], key: child.key).reason == .badChain)
    }

    @Test func aPathOfFourIsRefused() {
        let upper = TestPKICertificate.intermediate(under: pki.root).with { $0.basicConstraints = "critical,CA:TRUE" }
        let lower = TestPKICertificate.intermediate(under: upper).with { $0.subject = "Lower" }
        let leaf = TestPKICertificate.leaf(under: lower)
        #expect(bench.verdict(x5c: [leaf.der(), lower.der(), upper.der()], key: leaf.key).reason == .untrustedRoot)
        #expect(
            bench.verdict(x5c: [leaf.der(), lower.der(), upper.der(), pki.rootDER], key: leaf.key).reason
                == .badX5CLength)
    }

    @Test func aCertificateThatSomeoneElseSignedIsRefused() {
        let stranger = TestPKIKey(.p384)
        #expect(verdict(leaf: .leaf(under: pki.intermediate).with { $0.issuerKey = stranger }).reason == .badChain)
        #expect(verdict(leaf: .leaf(under: pki.intermediate).with { $0.issuer = "Nobody" }).reason == .badChain)
        #expect(
            verdict(intermediate: .intermediate(under: pki.root).with { $0.issuerKey = stranger }).reason == .badChain)
    }

    @Test func weakDigestsAreRefused() {
        #expect(verdict(leaf: .leaf(under: pki.intermediate).with { $0.digest = "sha1" }).reason == .badChain)
        #expect(verdict(intermediate: .intermediate(under: pki.root).with { $0.digest = "sha1" }).reason == .badChain)
        #expect(verdict(leaf: .leaf(under: pki.intermediate).with { $0.digest = "sha256" }).facts != nil)
    }

    @Test func aLeafKeyOffP256IsRefused() {
        // A curve that is spelled out instead of named may be any curve; OpenSSL's path check stops it first.
        let keys = [
            (TestPKIKey(.p384), Refusal.Reason.badLeafKey), (TestPKIKey(.p256, spelledOut: true), .badChain),
            (TestPKIKey(.rsa), .badLeafKey), (TestPKIKey(.ed25519), .badLeafKey),
        ]
        for (key, reason) in keys {
            let leaf = TestPKICertificate.leaf(under: pki.intermediate, key: key)
            #expect(
                bench.verdict(x5c: [leaf.der(), pki.intermediateDER, pki.rootDER], key: pki.leaf.key).reason == reason)
        }
    }

    @Test func authoritiesMayHaveRSAKeys() throws {
        let root = TestPKICertificate.root(key: TestPKIKey(.rsa))
        let intermediate = TestPKICertificate.intermediate(under: root, key: TestPKIKey(.rsa))
        let leaf = TestPKICertificate.leaf(under: intermediate)
        let x5c = [leaf.der(), intermediate.der(), root.der()]
        let verifier = try SignedTransactionVerifier(roots: [TrustedRoot(der: x5c[2])])
        for (key, reason) in [(leaf.key, nil), (TestPKIKey(.p256), Refusal.Reason.badSignature)] {
            let jws = TestPKI.jws(
                header: TestPKI.header(x5c: x5c), payload: Array(TestPKITransaction().json.utf8), key: key)
            let verdict = verifier.verify(
                jws: jws, expectation: TransactionExpectation(bundleID: nil), nowMilliseconds: defaultNow)
            #expect(verdict.reason == reason)
        }
    }

    @Test func everyCertificateMustBeValidWhenItWasSigned() throws {
        let signed = TestPKITransaction().signedDate / 1000
        let leaf = TestPKICertificate.leaf(under: pki.intermediate)
        let intermediate = TestPKICertificate.intermediate(under: pki.root)
        #expect(verdict(leaf: leaf.with { $0.notAfter = signed - 1 }).reason == .expiredChain)
        #expect(verdict(leaf: leaf.with { $0.notBefore = signed + 1 }).reason == .expiredChain)
        #expect(verdict(intermediate: intermediate.with { $0.notAfter = signed - 1 }).reason == .expiredChain)
        #expect(verdict(intermediate: intermediate.with { $0.notBefore = signed + 1 }).reason == .expiredChain)
        // Both ends of the window are inside it (RFC 5280 §4.1.2.5).
        #expect(verdict(leaf: leaf.with { $0.notAfter = signed }).facts != nil)
        #expect(verdict(leaf: leaf.with { $0.notBefore = signed }).facts != nil)

        let oldRoot = TestPKICertificate.root().with { $0.notAfter = signed - 1 }
        let under = TestPKICertificate.intermediate(under: oldRoot)
        let last = TestPKICertificate.leaf(under: under)
        let rootDER = oldRoot.der()
        let jws = TestPKI.jws(
            header: TestPKI.header(x5c: [last.der(), under.der(), rootDER]),
            payload: Array(TestPKITransaction().json.utf8), key: last.key)
        let verifier = try SignedTransactionVerifier(roots: [TrustedRoot(der: rootDER)])
        #expect(
            verifier.verify(
                jws: jws, expectation: TransactionExpectation(bundleID: nil), nowMilliseconds: defaultNow
            ).reason == .expiredChain)
    }

    @Test func certificatesThatAreNeverValidTogetherAreRefused() {
        let leaf = TestPKICertificate.leaf(under: pki.intermediate)
        #expect(
            verdict(
                leaf: leaf.with {
                    $0.notBefore = pki.intermediate.notAfter + 1; $0.notAfter = $0.notBefore + 9
                }
            )
            .reason == .expiredChain)
        #expect(verdict(leaf: leaf.with { $0.notBefore = $0.notAfter + 1 }).reason == .badChain)
    }

    @Test func aLeafThatHasExpiredSinceStillCounts() {
        let jws = pki.sign(TestPKITransaction())
        // 2035: the leaf ended with 2026.
        #expect(bench.verdict(of: jws, now: 2_051_222_400_000).facts != nil)
        // By the rule of Apple's online mode it would not.
        let reason = Array(jws.utf8).withUnsafeBufferPointer { bytes -> Refusal.Reason? in
            do throws(Refusal) {
                _ = try bench.verifier.authenticate(
                    bytes, nowMilliseconds: 2_051_222_400_000, checkDate: 2_051_222_400_000)
                return nil
            } catch { return error.reason }
        }
        #expect(reason == .expiredChain)
    }
}
