internal import Bytes
internal import Trust
internal import Wire

extension FuzzTarget {
    /// Each input is tried as a signed transaction under one root, and as the payload of one, which no fuzzer gets past
    /// the signature. Nothing but the genuine one verifies, and what was verified before changes no verdict.
    static let jws = FuzzTarget(name: "jws", maximumBytes: 4096) { bytes throws(BrokenProperty) in
        let bench = TransactionBench.shared
        let verdict = bench.verdict(bytes, bench.warm)
        switch verdict {
        case .verified(let facts): try require(facts == bench.genuine, "facts that nobody signed")
        case .refused(let refusal): try require(bytes != bench.token, "the genuine one is refused: \(refusal)")
        }
        // A chain that is new costs two signatures more.
        if bytes.count % 4 == 0 {
            try require(
                bench.verdict(bytes, bench.cold()) == verdict, "another verdict without what was verified before")
        }
        try checkClaims(bytes)
    }

    private static func checkClaims(_ payload: [UInt8]) throws(BrokenProperty) {
        guard let claims = try? TransactionClaims(payload), let signedDate = try? claims.signedDate(),
            let facts = try? claims.facts(signedDate: signedDate, digest: SHA256Digest(of: payload).hex)
        else { return }
        let isForUs = (try? claims.checkAudience(TransactionExpectation(bundleID: FuzzFacts.bundleID))) != nil
        if isForUs {
            try require(
                facts.bundleID.utf8.elementsEqual(FuzzFacts.bundleID.utf8), "facts of another app pass for ours")
            try require(
                TransactionExpectation.appStoreEnvironments.contains { $0.utf8.elementsEqual(facts.environment.utf8) },
                "facts of another environment pass")
        }
        // A writer reads the facts from a job that the verifier wrote.
        let write = AttributeWrite(
            appUserID: "user", bundleID: FuzzFacts.bundleID, store: .appStore,
            originalTransactionID: facts.originalTransactionID, evidence: .verified(facts))
        guard let read = try? AttributeWrite(payload: write.encodePayload()) else { return }
        try require(read == write, "facts change on their way to the writer")
    }
}

/// One genuine token, made by TestPKI, and all that it verifies with.
private struct TransactionBench {
    static let shared = TransactionBench()

    let token = PackageResources.transaction_jws
    let genuine: TransactionFacts
    /// Has the genuine token's chain and header in memory.
    let warm: SignedTransactionVerifier

    private init() {
        guard let roots = try? TrustedRoot.roots(pem: PackageResources.transaction_root_pem),
            let warm = try? SignedTransactionVerifier(roots: roots)
        else { fatalError("the root of Fixtures cannot be read") }
        let verdict = Self.verdict(token, warm)
        guard case .verified(let genuine) = verdict else { fatalError("the token of Fixtures: \(verdict)") }
        self.warm = warm
        self.genuine = genuine
    }

    /// One that has verified nothing yet.
    func cold() -> SignedTransactionVerifier {
        guard let cold = try? SignedTransactionVerifier(roots: warm.roots) else { fatalError("there is no root") }
        return cold
    }

    func verdict(_ bytes: [UInt8], _ verifier: SignedTransactionVerifier) -> TransactionVerdict {
        Self.verdict(bytes, verifier)
    }

    private static func verdict(_ bytes: [UInt8], _ verifier: SignedTransactionVerifier) -> TransactionVerdict {
        verifier.verify(
            jws: bytes, expectation: TransactionExpectation(bundleID: FuzzFacts.bundleID),
            nowMilliseconds: FuzzFacts.nowSeconds * 1000)
    }
}
