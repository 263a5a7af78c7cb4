import Bytes
import TestSupport
import Wire

@testable import Trust

/// 2026-11-30T00:00:00Z, the clock of the public vectors; every test judges as of then unless it says otherwise.
let defaultNow: Int64 = 1_795_996_800_000

/// A test PKI, a verifier that pins its root, and shorthand for what most tests do with them.
struct Bench {
    let pki = TestPKI()
    let verifier: SignedTransactionVerifier

    init() throws {
        verifier = try SignedTransactionVerifier(roots: [TrustedRoot(der: pki.rootDER)])
    }

    func verdict(
        of jws: String, bundleID: String? = "com.example.app",
        environments: Set<String>? = TransactionExpectation.appStoreEnvironments, now: Int64 = defaultNow
    ) -> TransactionVerdict {
        verifier.verify(
            jws: jws, expectation: TransactionExpectation(bundleID: bundleID, environments: environments),
            nowMilliseconds: now)
    }

    /// The verdict on a payload that the leaf really signed.
    func verdict(ofPayload payload: String) -> TransactionVerdict { verdict(of: pki.sign(payload: payload)) }

    /// The verdict on a good transaction under a header of one's own, signed by the leaf's key or another.
    func verdict(underHeader header: String, key: TestPKIKey? = nil) -> TransactionVerdict {
        verdict(
            of: TestPKI.jws(header: header, payload: Array(TestPKITransaction().json.utf8), key: key ?? pki.leaf.key))
    }

    /// The verdict on a good transaction with these certificates.
    func verdict(x5c: [[UInt8]], key: TestPKIKey? = nil) -> TransactionVerdict {
        verdict(underHeader: TestPKI.header(x5c: x5c), key: key)
    }

    /// The standard header's JSON.
    var header: String { TestPKI.header(x5c: [pki.leafDER, pki.intermediateDER, pki.rootDER]) }
}

extension TransactionVerdict {
    var facts: TransactionFacts? {
        if case .verified(let facts) = self { facts } else { nil }
    }

    /// Nil when verified.
    var reason: Refusal.Reason? {
        if case .refused(let refusal) = self { refusal.reason } else { nil }
    }
}

/// The three parts of a JWS, decoded.
func decodedParts(_ jws: String) -> [[UInt8]] {
    jws.utf8.split(separator: UInt8(ascii: ".")).map { Base64.decode($0, .url) ?? [] }
}

/// A JWS of three decoded parts.
func encodedJWS(_ parts: [[UInt8]]) -> String {
    parts.map { Base64.encode($0, .url) }.joined(separator: ".")
}
