internal import Bytes
internal import JSON
package import Service
internal import Trust
internal import Wire

/// The verifier's own judgement on one signed transaction, for the question why a purchase is unverified.
package struct TokenInspection: Sendable {
    /// What a token is held against.
    package struct Question: Sendable {
        /// Nil leaves the bundle unchecked.
        package var bundleID: String?
        /// Nil leaves the environment unchecked; Xcode's are never accepted all the same.
        package var environment: String?
        /// Milliseconds since 1970: what the clock says.
        package var nowMilliseconds: Int64

        package init(bundleID: String? = nil, environment: String? = nil, nowMilliseconds: Int64) {
            self.bundleID = bundleID
            self.environment = environment
            self.nowMilliseconds = nowMilliseconds
        }
    }

    package struct Finding: Equatable, Sendable {
        package let verified: Bool
        /// One of the verifier's fixed words; nil when verified.
        package let reason: String?
        /// The reason in a few more words.
        package let detail: String?
        /// What the payload says, proven or not; null when it can't be read.
        package let claims: Document
        /// Of `bundle` and `environment`, what was not checked.
        package let unchecked: [String]
        /// More white space than one line end was taken off the token. The verifier itself takes none off: sent so by an
        /// app, it proves nothing.
        package let trimmed: Bool
    }

    private let verifier: SignedTransactionVerifier

    /// Environments of Xcode's StoreKit testing, which signs with keys that everybody has.
    private static let neverAccepted: Set<String> = ["Xcode", "LocalTesting"]

    /// With the roots that the verifier process of this installation believes: Apple's, and in development those of
    /// RATCHET_EXTRA_APPLE_ROOTS.
    /// - Throws: `.configuration` for a file of roots that can't be read or used.
    package init(settings: Settings) throws(OpsError) {
        let extra = try Self.extraRoots(settings)
        do throws(TrustError) {
            verifier = try SignedTransactionVerifier(extraRootsPEM: extra)
        } catch {
            throw OpsError(.configuration, "root certificates: \(error.message)")
        }
    }

    /// The file of RATCHET_EXTRA_APPLE_ROOTS; nil when none is set.
    static func extraRoots(_ settings: Settings) throws(OpsError) -> [UInt8]? {
        guard let path = settings.extraAppleRoots else { return nil }
        guard let bytes = TextFile.read(path) else {
            throw OpsError(.configuration, "RATCHET_EXTRA_APPLE_ROOTS: cannot read \(path)")
        }
        return bytes
    }

    /// With the roots of a PEM text and no others.
    /// - Throws: `.usage` when it holds no root.
    package init(rootPEM: [UInt8]) throws(OpsError) {
        do throws(TrustError) {
            verifier = try SignedTransactionVerifier(roots: TrustedRoot.roots(pem: rootPEM))
        } catch {
            throw OpsError(.usage, "--root: \(error.message)")
        }
    }

    /// SHA-256 of the roots that chains may end in, lower-case hex.
    package var rootFingerprints: [String] { verifier.roots.map(\.fingerprint) }

    /// - Parameter token: a JWS in compact form; white space around it is ignored, since people paste.
    package func judge(_ token: [UInt8], _ question: Question) -> Finding {
        let given = token
        let token = Self.trimmed(given)
        let accepted = question.environment.map { Self.neverAccepted.contains($0) ? [] : Set([$0]) }
        let expectation = TransactionExpectation(bundleID: question.bundleID, environments: accepted)
        var verdict = verifier.verify(
            jws: token, expectation: expectation, nowMilliseconds: question.nowMilliseconds)
        if case .verified(let facts) = verdict, Self.neverAccepted.contains(facts.environment) {
            verdict = .refused(Refusal(.wrongEnvironment, "tokens of Xcode's own testing never count"))
        }
        var unchecked: [String] = []
        if question.bundleID == nil { unchecked.append("bundle") }
        if question.environment == nil { unchecked.append("environment") }
        var refusal: Refusal?
        if case .refused(let why) = verdict { refusal = why }
        return Finding(
            verified: refusal == nil, reason: refusal?.reason.rawValue, detail: refusal?.detail,
            claims: Self.claims(of: token), unchecked: unchecked,
            trimmed: ![token, token + [0x0a], token + [0x0d, 0x0a]].contains(given))
    }

    private static func trimmed(_ bytes: [UInt8]) -> [UInt8] {
        let isSpace: (UInt8) -> Bool = { $0 == 0x20 || (0x09...0x0d).contains($0) }
        var slice = bytes[...]
        while let first = slice.first, isSpace(first) { slice.removeFirst() }
        while let last = slice.last, isSpace(last) { slice.removeLast() }
        return Array(slice)
    }

    private static func claims(of token: [UInt8]) -> Document {
        guard token.count <= SignedTransactionVerifier.maximumBytes else { return .null }
        let parts = token.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count >= 2, let payload = Base64.decode(parts[1], .url),
            let document = try? JSONDocument(parsing: payload, refusingDuplicateMembers: true),
            document.root.kind == .object
        else { return .null }
        return Document(document.root)
    }
}

extension Document {
    package init(_ finding: TokenInspection.Finding) {
        self = .members([
            "verified": .bool(finding.verified), "reason": .text(finding.reason), "detail": .text(finding.detail),
            "notChecked": .list(finding.unchecked.map { .string($0) }), "trimmed": .bool(finding.trimmed),
            "claims": finding.claims,
        ])
    }
}
