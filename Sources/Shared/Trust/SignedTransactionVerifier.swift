internal import Bytes
internal import Glibc
internal import JSON
internal import Synchronization
internal import Wire

/// Verifies StoreKit 2 signed transactions offline: against pinned roots only, with every certificate valid when Apple
/// signed (`signedDate`), so that what old devices kept still counts after its leaf has expired.
///
/// Pure: no I/O, no clock, no randomness; the verdict depends on the arguments alone, never on what was verified before.
/// Any number of threads may verify at once. There is no switch that skips a check, and tokens of Xcode's StoreKit
/// testing, which only Xcode signs, never pass.
package final class SignedTransactionVerifier: Sendable {
    /// How far a `signedDate` may lie ahead of this machine's clock, in milliseconds: a day. Whoever got hold of a leaf's
    /// key could otherwise date signatures as late as the leaf lives.
    package static let maximumSkewMilliseconds: Int64 = 86_400_000
    /// The longest token that is looked at.
    package static let maximumBytes = CompactJWS.maximumBytes

    /// In the order they are tried.
    package let roots: [TrustedRoot]

    private let chains: ChainVerifier
    /// Headers under which a signature has been good, byte for byte. The header is part of what is signed, so only
    /// Apple's own come in here: one for each leaf.
    private let headers = Mutex(RecentList<KnownHeader>(capacity: ChainVerifier.capacity))

    private let signatures: Mutex<GoodSignatures>
    /// What a busy verifier sees in some seconds: a token that comes again mostly comes soon.
    package static let signaturesRemembered = 20_000

    /// With these roots and no others. Throws `.empty` without any.
    /// - Parameter signaturesRemembered: in each of two generations; few where every signature is to be checked.
    package init(
        roots: [TrustedRoot], signaturesRemembered: Int = SignedTransactionVerifier.signaturesRemembered
    ) throws(TrustError) {
        signatures = Mutex(GoodSignatures(capacity: signaturesRemembered))
        guard !roots.isEmpty else { throw TrustError(.empty, "no root certificate is given") }
        self.roots = roots
        chains = ChainVerifier(roots: roots)
    }

    /// With Apple Root CA - G3 and, for development, the certificates of a PEM text beside it. Throws what
    /// `TrustedRoot.appleRootCAG3()` and `TrustedRoot.roots(pem:)` throw; then the process must not start.
    package convenience init(extraRootsPEM: [UInt8]? = nil) throws(TrustError) {
        var roots = [try TrustedRoot.appleRootCAG3()]
        if let extraRootsPEM { roots += try TrustedRoot.roots(pem: extraRootsPEM) }
        try self.init(roots: roots)
    }

    /// Judges one JWS in compact form. `nowMilliseconds` (since 1970) only bounds `signedDate` from above.
    package func verify(
        jws: String, expectation: TransactionExpectation, nowMilliseconds: Int64
    ) -> TransactionVerdict {
        var jws = jws
        return jws.withUTF8 { verify(bytes: $0, expectation, nowMilliseconds) }
    }

    /// The same for bytes, which may be anything.
    package func verify(
        jws: [UInt8], expectation: TransactionExpectation, nowMilliseconds: Int64
    ) -> TransactionVerdict {
        jws.withUnsafeBufferPointer { verify(bytes: $0, expectation, nowMilliseconds) }
    }

    private func verify(
        bytes: UnsafeBufferPointer<UInt8>, _ expectation: TransactionExpectation, _ now: Int64
    ) -> TransactionVerdict {
        do throws(Refusal) {
            let signed = try authenticate(bytes, nowMilliseconds: now)
            let facts = try signed.claims.facts(
                signedDate: signed.signedDate, digest: SHA256Digest(of: signed.payload).hex)
            try signed.claims.checkAudience(expectation)
            return .verified(facts)
        } catch {
            return .refused(error)
        }
    }

    /// Everything up to the claims: form, header, chain, signature, dates. Nothing of the payload is read before its
    /// signature is good. `checkDate` (milliseconds since 1970) replaces `signedDate` as the date at which certificates
    /// must be valid: only tests judge by it, which need the rule of Apple's online mode too.
    func authenticate(
        _ bytes: UnsafeBufferPointer<UInt8>, nowMilliseconds: Int64, checkDate: Int64? = nil
    ) throws(Refusal) -> SignedPayload {
        let jws = try CompactJWS(bytes)
        let known = headers.withLock { $0.use { $0.matches(jws.header) } }
        let chain: VerifiedChain
        if let known { chain = known.chain } else { chain = try self.chain(header: jws.decodedHeader()) }

        guard jws.signature.count == 64 else { throw Refusal(.badSignature, "the signature has not 64 bytes") }
        let good = GoodSignatures.Entry(digest: SHA256Digest(of: jws.signingInput), signature: jws.signature)
        if known == nil || !signatures.withLock({ $0.contains(good) }) {
            guard chain.key.verifies(signature: good.signature, of: good.digest) else {
                throw Refusal(.badSignature, "the signature does not fit")
            }
            signatures.withLock { $0.insert(good) }
        }
        if known == nil {
            let entry = KnownHeader(text: Array(jws.header), chain: chain)
            headers.withLock { $0.insert(entry, unless: { $0.text == entry.text }) }
        }

        let claims = try TransactionClaims(jws.payload)
        let signedDate = try claims.signedDate()
        let (latest, overflow) = nowMilliseconds.addingReportingOverflow(Self.maximumSkewMilliseconds)
        guard overflow || signedDate <= latest else {
            throw Refusal(.signedInFuture, "signedDate is more than a day ahead")
        }
        try chain.checkValidity(at: checkDate ?? signedDate)
        return SignedPayload(payload: jws.payload, claims: claims, signedDate: signedDate)
    }

    /// The chain that a header (decoded) brings, judged but for dates.
    func chain(header bytes: [UInt8]) throws(Refusal) -> VerifiedChain {
        let header = try TransactionClaims.object(bytes, "the header is not one strict JSON object")
        let algorithm = header["alg"]?.withStringBytes { $0.elementsEqual("ES256".utf8) }
        guard algorithm == true else { throw Refusal(.badAlgorithm, "alg is not ES256") }
        guard header["crit"] == nil else { throw Refusal(.criticalHeader, "the header demands extensions") }
        guard let x5c = header["x5c"], x5c.kind == .array, x5c.count == 3 else {
            throw Refusal(.badX5CLength, "x5c is not an array of three")
        }
        var certificates: [[UInt8]] = []
        for entry in x5c.elements {
            guard let der = entry.withStringBytes({ Base64.decode($0, .standard) }) ?? nil else {
                throw Refusal(.malformedX5C, "an x5c entry is not exact base64 text")
            }
            certificates.append(der)
        }
        return try chains.chain(leaf: certificates[0], intermediate: certificates[1], root: certificates[2])
    }

    /// How many signatures are remembered; for tests.
    var knownSignatureCount: Int { signatures.withLock { $0.count } }

    /// How many chains are remembered; for tests.
    var knownChainCount: Int { chains.knownCount }
}

/// A payload that Apple signed, whatever it is.
struct SignedPayload {
    let payload: [UInt8]
    let claims: TransactionClaims
    let signedDate: Int64
}

/// A header part (still base64url) under which a signature was good.
private struct KnownHeader: Sendable {
    let text: [UInt8]
    let chain: VerifiedChain

    func matches(_ other: UnsafeBufferPointer<UInt8>) -> Bool {
        guard text.count == other.count, let base = other.baseAddress else { return false }
        return memcmp(text, base, text.count) == 0
    }
}
