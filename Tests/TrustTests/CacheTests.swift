import Bytes
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

    @Test func aGoodSignatureIsRememberedForItsOwnTokenAlone() throws {
        let bench = try Bench()
        let token = bench.pki.sign(TestPKITransaction())
        for _ in 1...3 { #expect(bench.verdict(of: token).facts != nil) }
        #expect(bench.verifier.knownSignatureCount == 1)
        // Another payload under that signature, that payload under another one, and one that is bent.
        let parts = decodedParts(token)
        var other = decodedParts(bench.pki.sign(TestPKITransaction().with { $0.originalTransactionID = "2" }))
        #expect(bench.verdict(of: encodedJWS([parts[0], other[1], parts[2]])).reason == .badSignature)
        #expect(bench.verdict(of: encodedJWS([parts[0], parts[1], other[2]])).reason == .badSignature)
        other = parts
        other[2][63] ^= 1
        #expect(bench.verdict(of: encodedJWS(other)).reason == .badSignature)
        #expect(bench.verifier.knownSignatureCount == 1)
        #expect(bench.verdict(of: token).facts != nil)
        // What is remembered is the signature: dates and audience are judged each time.
        let late = bench.pki.sign(TestPKITransaction().with { $0.signedDate = (bench.pki.leaf.notAfter + 1) * 1000 })
        for _ in 1...2 { #expect(bench.verdict(of: late, now: .max).reason == .expiredChain) }
    }

    @Test func signaturesAreForgottenByGenerations() {
        var memory = GoodSignatures(capacity: 2)
        func entry(_ number: UInt8) -> GoodSignatures.Entry {
            GoodSignatures.Entry(
                digest: SHA256Digest(of: [number]), signature: Array(repeating: number, count: 64))
        }
        for number in 1...3 as ClosedRange<UInt8> { memory.insert(entry(number)) }
        #expect(memory.count == 3)
        // Asked for, the first goes on into the younger generation; the second goes with the older one.
        let first = memory.contains(entry(1))
        memory.insert(entry(4))
        let found = ([1, 3, 4, 2] as [UInt8]).map { memory.contains(entry($0)) }
        #expect(first && found == [true, true, true, false])
        #expect(memory.count <= 4)
        // The digest counts as much as the signature.
        let mixed = GoodSignatures.Entry(digest: SHA256Digest(of: [9]), signature: Array(repeating: 4, count: 64))
        let isMixed = memory.contains(mixed)
        #expect(!isMixed)
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
