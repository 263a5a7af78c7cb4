import TestSupport
import Testing

@testable import Trust

@Suite struct CacheTests {
    @Test func aGoodChainIsRememberedOnceWhateverTheHeader() throws {
        let bench = try Bench()
        #expect(bench.verifier.knownChainCount == 0)
        for _ in 1...3 { #expect(bench.verdict(of: bench.pki.sign(TestPKITransaction())).facts != nil) }
        let header = bench.header.replacing("{\"alg\"", with: "{\"kid\":\"k\",\"alg\"")
        for _ in 1...3 { #expect(bench.verdict(underHeader: header).facts != nil) }
        #expect(bench.verifier.knownChainCount == 1)
    }

    @Test func badChainsAreNotRemembered() throws {
        let bench = try Bench()
        for _ in 1...3 { #expect(bench.verdict(of: TestPKI().sign(TestPKITransaction())).reason == .untrustedRoot) }
        let unmarked = bench.pki.leaf.with { $0.markers = [] }
        #expect(
            bench.verdict(x5c: [unmarked.der(), bench.pki.intermediateDER, bench.pki.rootDER]).reason
                == .missingLeafOID)
        #expect(bench.verifier.knownChainCount == 0)
    }

    @Test func aRememberedChainIsStillDatedByEachSignature() throws {
        let bench = try Bench()
        func reason(signedDate: Int64) -> Refusal.Reason? {
            bench.verdict(of: bench.pki.sign(TestPKITransaction().with { $0.signedDate = signedDate }), now: .max)
                .reason
        }
        let (first, last) = (bench.pki.leaf.notBefore * 1000, bench.pki.leaf.notAfter * 1000)
        // Out of date first, so that the chain enters the cache by way of a refusal, then good, then out again.
        #expect(reason(signedDate: first - 1) == .expiredChain)
        #expect(reason(signedDate: first) == nil)
        #expect(reason(signedDate: last + 999) == nil)
        #expect(reason(signedDate: last + 1000) == .expiredChain)
        #expect(bench.verifier.knownChainCount == 1)
    }

    @Test func aRememberedLeafUnderAnotherIntermediateIsJudgedAnew() throws {
        let bench = try Bench()
        #expect(bench.verdict(of: bench.pki.sign(TestPKITransaction())).facts != nil)
        let forged = TestPKICertificate.intermediate(under: .root(subject: bench.pki.root.subject)).der()
        #expect(bench.verdict(x5c: [bench.pki.leafDER, forged, bench.pki.rootDER]).reason == .badChain)
        let leaf = TestPKICertificate.leaf(under: .intermediate(under: .root()))
        #expect(
            bench.verdict(x5c: [leaf.der(), bench.pki.intermediateDER, bench.pki.rootDER], key: leaf.key).reason
                == .badChain)
    }

    @Test func theCacheIsBounded() throws {
        let bench = try Bench()
        for _ in 0..<40 {
            let leaf = TestPKICertificate.leaf(under: bench.pki.intermediate)
            let x5c = [leaf.der(), bench.pki.intermediateDER, bench.pki.rootDER]
            #expect(bench.verdict(x5c: x5c, key: leaf.key).facts != nil)
        }
        #expect(bench.verifier.knownChainCount == ChainVerifier.capacity)
    }

    @Test func theLeastRecentlyUsedLeavesFirst() {
        var list = RecentList<Int>(capacity: 2)
        list.insert(1, unless: { $0 == 1 })
        list.insert(2, unless: { $0 == 2 })
        list.insert(2, unless: { $0 == 2 })
        #expect(list.count == 2)
        #expect(list.use { $0 == 1 } == 1)
        list.insert(3, unless: { $0 == 3 })
        #expect(list.use { $0 == 2 } == nil)
        #expect(list.use { $0 == 1 } == 1)
        #expect(list.use { $0 == 3 } == 3)
    }

    @Test func manyThreadsVerifyAtOnce() async throws {
        let bench = try Bench()
        let leaves = (0..<36).map { _ in TestPKICertificate.leaf(under: bench.pki.intermediate) }
        let tokens = leaves.map { leaf in
            TestPKI.jws(
                header: TestPKI.header(x5c: [leaf.der(), bench.pki.intermediateDER, bench.pki.rootDER]),
                payload: Array(TestPKITransaction().json.utf8), key: leaf.key)
        }
        let verdicts = await withTaskGroup(of: Bool.self) { group in
            for round in 0..<8 {
                for (index, token) in tokens.enumerated() {
                    let bad = (round + index) % 5 == 0
                    group.addTask {
                        guard bad else { return bench.verdict(of: token).facts != nil }
                        var parts = decodedParts(token)
                        parts[2][40] ^= 1
                        return bench.verdict(of: encodedJWS(parts)).reason == .badSignature
                    }
                }
            }
            return await group.reduce(into: [Bool]()) { $0.append($1) }
        }
        #expect(verdicts.count == 8 * 36 && verdicts.allSatisfy { $0 })
    }
}
