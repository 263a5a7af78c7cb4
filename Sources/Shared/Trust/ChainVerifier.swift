internal import Synchronization

/// Judges [leaf, intermediate] against the pinned roots and remembers the good ones. Dates stay open: a path that holds
/// is good or not depending on the date of the signature that leans on it.
///
/// Two P-384 checks make some 97 % of a verification's cost, and Apple signs everything with one leaf at a time.
final class ChainVerifier: Sendable {
    /// Markers of Apple's certificate practice: receipt signing on the leaf, WWDR on the intermediate. Without them any
    /// developer's certificate under the same root would pass.
    static let leafOID = "1.2.840.113635.100.6.11.1"
    static let intermediateOID = "1.2.840.113635.100.6.2.1"
    /// Apple has used three leaves from 2021 to 2027; the rest is room for test roots.
    static let capacity = 32

    private let roots: [TrustedRoot]
    private let known = Mutex(RecentList<VerifiedChain>(capacity: ChainVerifier.capacity))

    init(roots: [TrustedRoot]) { self.roots = roots }

    /// How many chains are remembered; for tests.
    var knownCount: Int { known.withLock { $0.count } }

    /// The path from `x5c`'s three certificates (DER). The third is never trusted: it has to be a certificate, and only
    /// names the refusal when no path holds.
    func chain(leaf: [UInt8], intermediate: [UInt8], root claimed: [UInt8]) throws(Refusal) -> VerifiedChain {
        let claimedRoot = roots.first { $0.der == claimed }
        if claimedRoot == nil && Certificate(der: claimed) == nil { throw Self.malformed }
        if let chain = known.withLock({ $0.use { $0.consists(of: leaf, intermediate) } }) { return chain }
        guard let leafCertificate = Certificate(der: leaf), let issuer = Certificate(der: intermediate) else {
            throw Self.malformed
        }
        let root = try root(of: leafCertificate, issuer, claimed: claimedRoot)
        let chain = try judge(leafCertificate, issuer, under: root, bytes: (leaf, intermediate))
        known.withLock { $0.insert(chain, unless: { $0.consists(of: leaf, intermediate) }) }
        return chain
    }

    private static let malformed = Refusal(.malformedCertificate, "an x5c entry is not exactly one DER certificate")

    /// Each root is tried by itself, so that one that doesn't fit, or that bears the same name, can't end the search.
    private func root(
        of leaf: Certificate, _ intermediate: Certificate, claimed: TrustedRoot?
    ) throws(Refusal) -> TrustedRoot {
        for root in roots where Certificate.pathFault(leaf: leaf, intermediate: intermediate, root: root.store) == nil {
            return root
        }
        guard let claimed else { throw Refusal(.untrustedRoot, "no pinned root vouches for the chain") }
        let fault = Certificate.pathFault(leaf: leaf, intermediate: intermediate, root: claimed.store)
        throw Refusal(.badChain, fault ?? "the path does not hold")
    }

    private func judge(
        _ leaf: Certificate, _ intermediate: Certificate, under root: TrustedRoot, bytes: (leaf: [UInt8], [UInt8])
    ) throws(Refusal) -> VerifiedChain {
        guard !leaf.isAuthority else { throw Refusal(.badChain, "the leaf is an authority") }
        guard leaf.maySignData else { throw Refusal(.badChain, "the leaf's key usage forbids signatures") }
        guard leaf.hasExtension(Self.leafOID) else {
            throw Refusal(.missingLeafOID, "the leaf is not marked for receipt signing")
        }
        guard intermediate.hasExtension(Self.intermediateOID) else {
            throw Refusal(.missingIntermediateOID, "the intermediate is not marked as WWDR")
        }
        guard let key = leaf.p256Key else { throw Refusal(.badLeafKey, "the leaf's key is not on P-256") }
        guard let leafWindow = leaf.window, let intermediateWindow = intermediate.window else {
            throw Refusal(.badChain, "a certificate has no proper validity dates")
        }
        let notBefore = max(leafWindow.lowerBound, intermediateWindow.lowerBound, root.window.lowerBound)
        let notAfter = min(leafWindow.upperBound, intermediateWindow.upperBound, root.window.upperBound)
        guard notBefore <= notAfter else {
            throw Refusal(.expiredChain, "the certificates are at no time valid together")
        }
        return VerifiedChain(
            leaf: bytes.leaf, intermediate: bytes.1, key: key, window: notBefore...notAfter, root: root.fingerprint)
    }
}

/// A path that holds, with all that later signatures under it need.
final class VerifiedChain: Sendable {
    let leaf: [UInt8]
    let intermediate: [UInt8]
    let key: P256Key
    /// Seconds since 1970 at which all three certificates are valid, both ends inside (RFC 5280 §4.1.2.5).
    let window: ClosedRange<Int64>
    /// The fingerprint of the pinned root it ends in.
    let root: String

    init(leaf: [UInt8], intermediate: [UInt8], key: P256Key, window: ClosedRange<Int64>, root: String) {
        self.leaf = leaf
        self.intermediate = intermediate
        self.key = key
        self.window = window
        self.root = root
    }

    func consists(of leaf: [UInt8], _ intermediate: [UInt8]) -> Bool {
        self.leaf == leaf && self.intermediate == intermediate
    }

    /// Throws unless every certificate is valid at a date (milliseconds since 1970).
    func checkValidity(at milliseconds: Int64) throws(Refusal) {
        // Rounds down also before 1970, as certificate dates are whole seconds.
        let seconds = milliseconds >= 0 ? milliseconds / 1000 : (milliseconds + 1) / 1000 - 1
        guard window.contains(seconds) else {
            throw Refusal(
                .expiredChain,
                seconds < window.lowerBound
                    ? "a certificate was not valid yet" : "a certificate was not valid any more")
        }
    }
}
