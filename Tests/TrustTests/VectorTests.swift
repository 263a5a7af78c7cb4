import Bytes
import Foundation
import JSON
import TestSupport
import Testing
import Wire

@testable import Trust

private typealias Shared = SharedVectors
private typealias JWSCase = SharedVectors.SignedTransaction

private struct ChainCase: Decodable {
    var name: String
    var x5c: [String]
    var trustedRoot: String
    var time: Int64
    var expected: String
}

/// The vectors' names for reasons, and ours of the same kind.
private let reasons: [String: Set<Refusal.Reason>] = [
    "bad-alg": [.badAlgorithm], "bad-chain": [.badChain], "bad-claim": [.badClaim],
    "bad-signature": [.badSignature], "bad-x5c-length": [.badX5CLength], "expired-chain": [.expiredChain],
    "malformed-cert": [.malformedCertificate], "malformed-json": [.malformedJSON], "malformed-jws": [.malformedJWS],
    "malformed-x5c": [.malformedX5C], "missing-leaf-oid": [.missingLeafOID],
    "missing-intermediate-oid": [.missingIntermediateOID], "not-a-transaction": [.notATransaction],
    "signed-in-future": [.signedInFuture], "untrusted-root": [.untrustedRoot], "wrong-bundle": [.bundleMismatch],
    "wrong-environment": [.wrongEnvironment],
]

@Suite struct VectorTests {
    private func verifiers() throws -> [String: SignedTransactionVerifier] {
        let files = [
            "apple-g3": "certs/AppleRootCA-G3.pem", "synthetic": "certs/synthetic-root.pem",
            "apple-library-test": "certs/apple-library-testCA.pem",
        ]
        return try files.mapValues { file in
            try SignedTransactionVerifier(roots: TrustedRoot.roots(pem: Shared.bytes(file)))
        }
    }

    private func judge(_ vector: JWSCase, with verifier: SignedTransactionVerifier) throws -> Refusal? {
        let expectation = TransactionExpectation(bundleID: vector.bundleId, environments: [vector.environment])
        let now =
            try vector.now.map { Int64(try Date($0, strategy: .iso8601).timeIntervalSince1970) * 1000 } ?? defaultNow
        if vector.want == "minimal" || vector.checkAt == "now" {
            return Array(vector.jws.utf8).withUnsafeBufferPointer { bytes in
                do throws(Refusal) {
                    let signed = try verifier.authenticate(
                        bytes, nowMilliseconds: now, checkDate: vector.checkAt == "now" ? now : nil)
                    if vector.want != "minimal" {
                        _ = try signed.claims.facts(signedDate: signed.signedDate, digest: "")
                    }
                    try signed.claims.checkAudience(expectation)
                    return nil
                } catch { return error }
            }
        }
        switch verifier.verify(jws: vector.jws, expectation: expectation, nowMilliseconds: now) {
        case .verified(let facts):
            #expect(facts.bundleID == vector.bundleId && facts.environment == vector.environment)
            return nil
        case .refused(let refusal): return refusal
        }
    }

    @Test func everySignedTransactionOfTheVectorsComesOutAsExpected() throws {
        let verifiers = try verifiers()
        let vectors: [JWSCase] = try Shared.cases("vectors/storekit_jws.json")
        #expect(vectors.count >= 80)
        for vector in vectors {
            let verifier = try #require(verifiers[vector.root], "\(vector.name): unknown root")
            // Twice: the second time from what the first one left remembered.
            for _ in 1...2 {
                let refusal = try judge(vector, with: verifier)
                if vector.expected == "ok" {
                    #expect(refusal == nil, "\(vector.name)")
                } else {
                    let wanted = try #require(reasons[vector.expected], "\(vector.name): unknown reason")
                    #expect(refusal.map { wanted.contains($0.reason) } == true, "\(vector.name): \(refusal as Any)")
                }
            }
        }
    }

    @Test func everyChainOfTheVectorsComesOutAsExpected() throws {
        let vectors: [ChainCase] = try Shared.cases("vectors/storekit_chains.json")
        #expect(vectors.count >= 6)
        for vector in vectors {
            let root = try #require(Base64.decode(Array(vector.trustedRoot.utf8), .standard))
            let verifier = try SignedTransactionVerifier(roots: [TrustedRoot(der: root)])
            let entries = vector.x5c.map { "\"\($0)\"" }.joined(separator: ",")
            let header = Array("{\"alg\":\"ES256\",\"x5c\":[\(entries)]}".utf8)
            var refusal: Refusal?
            do throws(Refusal) {
                try verifier.chain(header: header).checkValidity(at: vector.time * 1000)
            } catch { refusal = error }
            if vector.expected == "ok" {
                #expect(refusal == nil, "\(vector.name): \(refusal as Any)")
            } else {
                // A chain under a root that is not pinned is told apart here from a broken one; the vectors don't.
                let wanted = vector.name == "test-foreign-root" ? [.untrustedRoot] : reasons[vector.expected]
                #expect(
                    refusal.map { wanted?.contains($0.reason) == true } == true, "\(vector.name): \(refusal as Any)")
            }
        }
    }

    @Test func aRealTransactionVerifiesUnderTheBuiltInRootWithItsFacts() throws {
        let verifier = try SignedTransactionVerifier()
        let vectors: [JWSCase] = try Shared.cases("vectors/storekit_jws.json")
        let vector = try #require(vectors.first { $0.name == "real-current-leaf-sandbox-renewal" })
        let verdict = verifier.verify(
            jws: vector.jws, expectation: TransactionExpectation(bundleID: vector.bundleId), nowMilliseconds: defaultNow
        )
        #expect(
            verdict
                == .verified(
                    TransactionFacts(
                        transactionID: "2000001069194137", originalTransactionID: "2000001052093162",
                        bundleID: "com.wizzmo.app", productID: "com.wizzmo.app.pro_annual", environment: "Sandbox",
                        purchaseDate: 1_764_557_544_000, originalPurchaseDate: 1_762_675_297_000,
                        expiresDate: 1_764_643_944_000, signedDate: 1_764_572_393_134,
                        type: "Auto-Renewable Subscription", ownership: "PURCHASED", price: 59_990, currency: "USD",
                        storefront: "USA", quantity: 1,
                        payloadDigest: SHA256Digest(of: decodedParts(vector.jws)[1]).hex)))
    }

    @Test func aRootThatDoesNotFitDoesNotEndTheSearch() throws {
        let other = try TrustedRoot.roots(pem: Shared.bytes("certs/synthetic-root.pem"))
        let vectors: [JWSCase] = try Shared.cases("vectors/storekit_jws.json")
        let vector = try #require(vectors.first { $0.name == "real-current-leaf-sandbox-renewal" })
        let roots = [try TrustedRoot.appleRootCAG3()]
        for order in [other + roots, roots + other] {
            let verifier = try SignedTransactionVerifier(roots: order)
            #expect(
                verifier.verify(
                    jws: vector.jws, expectation: TransactionExpectation(bundleID: vector.bundleId),
                    nowMilliseconds: defaultNow
                ).facts != nil)
        }
    }

    @Test func noRefusalQuotesItsInput() throws {
        let verifier = try SignedTransactionVerifier()
        let vectors: [JWSCase] = try Shared.cases("vectors/storekit_jws.json")
        for vector in vectors {
            let verdict = verifier.verify(
                jws: vector.jws, expectation: TransactionExpectation(bundleID: vector.bundleId),
                nowMilliseconds: defaultNow)
            guard case .refused(let refusal) = verdict else { continue }
            #expect(!refusal.detail.isEmpty && refusal.detail.utf8.count < 100, "\(vector.name)")
            #expect(refusal.detail.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7f }, "\(vector.name)")
            for secret in [vector.bundleId, "com.wizzmo", "com.example", "coins.100", "2000000000000001"] {
                #expect(!refusal.detail.contains(secret), "\(vector.name)")
            }
        }
    }
}
