internal import Bytes
internal import Synchronization
internal import Wire

/// Which of App Attest's two environments made a key.
package enum AttestEnvironment: String, CaseIterable, Sendable {
    case production
    /// Apps that were run from Xcode.
    case development

    /// The environment's identifier in the authenticator data, 16 bytes.
    var identifier: [UInt8] {
        switch self {
        case .production: Array("appattest".utf8) + Array(repeating: 0, count: 7)
        case .development: Array("appattestdevelop".utf8)
        }
    }
}

/// The app that an attestation must come from.
package struct AttestationExpectation: Sendable {
    /// As App Store Connect shows it, such as `ABCDE12345`.
    package let teamID: String
    package let bundleID: String
    package let environments: Set<AttestEnvironment>

    package init(teamID: String, bundleID: String, environments: Set<AttestEnvironment> = [.production]) {
        self.teamID = teamID
        self.bundleID = bundleID
        self.environments = environments
    }
}

/// A key that Apple says was made in a device's Secure Enclave by this app. What Apple says holds for good; nothing of
/// it is to be checked again later, when the certificate has expired.
package struct AttestedKey: Equatable, Sendable {
    /// Which of the apps that were asked for it is of: an index.
    package let app: Int
    /// 04, x, y: 65 bytes (SEC 1 §2.3.3).
    package let publicKey: [UInt8]
    package let environment: AttestEnvironment
    /// The opaque receipt for Apple's fraud metric, about 4 KB.
    package let receipt: [UInt8]
    /// `apple_bundle_version_01`, from iOS 27 on; nil when it does not say.
    package let bundleVersion: String?
    /// `apple_validation_category_01`, from iOS 27 on: lower-case hexadecimal of its bytes; nil when it does not say.
    package let validationCategory: String?
}

package enum AttestationVerdict: Equatable, Sendable {
    case verified(AttestedKey)
    case refused(AttestationRefusal)
}

/// Judges App Attest attestations (Apple, "Validating apps that connect to your server"; verification.md §2). Sockets
/// and clocks are not touched; safe from any number of threads at once. There is no switch that skips a check.
package final class AttestationVerifier: Sendable {
    /// The largest object that is looked at; real ones have 5.2 to 5.7 KB.
    package static let maximumBytes = 65_536
    /// A key identifier is the SHA-256 of the key.
    package static let keyIDBytes = 32

    /// In the order they are tried.
    package let roots: [TrustedRoot]
    private let issuers = Mutex(RecentList<KnownIssuer>(capacity: AttestationVerifier.mostIssuers))

    private static let nonceOID = "1.2.840.113635.100.8.2"
    /// SEQUENCE { [1] { OCTET STRING of 32 bytes } }: the only encoding of it.
    private static let noncePrefix: [UInt8] = [0x30, 0x24, 0xA1, 0x22, 0x04, 0x20]

    /// With these roots and no others. Throws `.empty` without any.
    package init(roots: [TrustedRoot]) throws(TrustError) {
        guard !roots.isEmpty else { throw TrustError(.empty, "no root certificate is given") }
        self.roots = roots
    }

    /// With Apple's root and, for development, the certificates of a PEM text beside it. Throws as
    /// `SignedTransactionVerifier.init(extraRootsPEM:)`.
    package convenience init(extraRootsPEM: [UInt8]? = nil) throws(TrustError) {
        var roots = [try TrustedRoot.appleAppAttestation()]
        if let extraRootsPEM { roots += try TrustedRoot.roots(pem: extraRootsPEM) }
        try self.init(roots: roots)
    }

    /// Judges one attestation object for one app.
    /// - Parameters: as `verify(apps:)`.
    package func verify(
        attestation: [UInt8], keyID: [UInt8], clientDataHash: [UInt8], expectation: AttestationExpectation,
        nowMilliseconds: Int64
    ) -> AttestationVerdict {
        verify(
            attestation: attestation, keyID: keyID, clientDataHash: clientDataHash, apps: [expectation],
            nowMilliseconds: nowMilliseconds)
    }

    /// Judges one attestation object, which may be of any of several apps.
    /// - Parameters:
    ///   - keyID: the decoded key identifier.
    ///   - clientDataHash: what the device gave to `attestKey`: SHA-256 of the challenge.
    ///   - apps: of which the first that is named decides.
    ///   - nowMilliseconds: since 1970; certificates must be valid then.
    package func verify(
        attestation: [UInt8], keyID: [UInt8], clientDataHash: [UInt8], apps: [AttestationExpectation],
        nowMilliseconds: Int64
    ) -> AttestationVerdict {
        do throws(AttestationRefusal) {
            let object = try AttestationObject(attestation)
            let leaf = try leaf(of: object, nowMilliseconds: nowMilliseconds)
            guard let nonce = leaf.extensionValue(Self.nonceOID) else {
                throw AttestationRefusal(.missingNonce, "the certificate states no challenge")
            }
            let expected = SHA256Digest(of: object.authenticatorData + clientDataHash).bytes
            guard nonce == Self.noncePrefix + expected else {
                throw AttestationRefusal(.badNonce, "the certificate was made for another challenge or other data")
            }
            guard let point = leaf.p256Key?.point else {
                throw AttestationRefusal(.badChain, "the certified key is not on P-256")
            }
            guard SHA256Digest(of: point).bytes == keyID else {
                throw AttestationRefusal(.badKeyID, "the key identifier is not that of the certified key")
            }
            return .verified(try key(point, keyID, object, apps))
        } catch {
            return .refused(error)
        }
    }

    /// An intermediate whose path to a pinned root holds. Apple signs all devices with one, and its own signature is half
    /// of an enrolment's cost.
    private struct KnownIssuer: Sendable {
        let der: [UInt8]
        let store: IssuerStore
        /// The root's and its own.
        let windows: [ClosedRange<Int64>?]
    }

    /// Apple has one; the rest is room for its successors and test roots.
    private static let mostIssuers = 8

    /// Intermediates remembered; for tests.
    var knownIssuerCount: Int { issuers.withLock { $0.count } }

    /// The windows of intermediate and root, once the leaf's path to a pinned root holds.
    private func windows(
        above leaf: Certificate, intermediate der: [UInt8]
    ) throws(AttestationRefusal) -> [ClosedRange<Int64>?] {
        let untrusted = AttestationRefusal(.untrustedRoot, "no pinned root vouches for the chain")
        if let issuer = issuers.withLock({ $0.use { $0.der == der } }) {
            guard leaf.isIssued(by: issuer.store) else { throw untrusted }
            return issuer.windows
        }
        guard let intermediate = Certificate(der: der) else { throw Self.malformed }
        let trusted = roots.first {
            Certificate.pathFault(leaf: leaf, intermediate: intermediate, root: $0.store) == nil
        }
        guard let trusted else { throw untrusted }
        let windows = [intermediate.window, trusted.window]
        // What a root demands of names below it is looked at in the whole path alone.
        if !trusted.constrainsNames, let store = intermediate.makeIssuer() {
            let issuer = KnownIssuer(der: der, store: store, windows: windows)
            issuers.withLock { $0.insert(issuer, unless: { $0.der == der }) }
        }
        return windows
    }

    private static let malformed = AttestationRefusal(
        .malformedCertificate, "an x5c entry is not exactly one DER certificate")

    /// The device's certificate, once its path holds and is valid now. Each device has its own.
    private func leaf(
        of object: AttestationObject, nowMilliseconds: Int64
    ) throws(AttestationRefusal) -> Certificate {
        guard let leaf = Certificate(der: object.leaf) else { throw Self.malformed }
        let above = try windows(above: leaf, intermediate: object.intermediate)
        guard !leaf.isAuthority else { throw AttestationRefusal(.badChain, "the leaf is an authority") }
        let seconds = nowMilliseconds / 1000
        for window in [leaf.window] + above {
            guard let window else { throw AttestationRefusal(.badChain, "a certificate has no proper validity dates") }
            guard window.contains(seconds) else {
                throw AttestationRefusal(
                    .expiredChain,
                    seconds < window.lowerBound
                        ? "a certificate is not valid yet" : "a certificate is not valid any more")
            }
        }
        return leaf
    }

    private func key(
        _ point: [UInt8], _ keyID: [UInt8], _ object: AttestationObject, _ apps: [AttestationExpectation]
    ) throws(AttestationRefusal) -> AttestedKey {
        let data = try AuthenticatorData(object.authenticatorData)
        let app = apps.firstIndex {
            SHA256Digest(of: Array("\($0.teamID).\($0.bundleID)".utf8)).bytes == data.appIDHash
        }
        guard let app else {
            throw AttestationRefusal(.appMismatch, "the attestation is another app's")
        }
        guard data.counter == 0 else { throw AttestationRefusal(.badCounter, "the key has signed before") }
        let environment = AttestEnvironment.allCases.first { $0.identifier == data.environmentID }
        guard let environment, apps[app].environments.contains(environment) else {
            throw AttestationRefusal(.wrongEnvironment, "the key is of an environment that is not accepted")
        }
        guard data.credentialID == keyID else {
            throw AttestationRefusal(.badCredentialID, "the credential's identifier is not the key's")
        }
        guard data.publicKey == point else {
            throw AttestationRefusal(.badPublicKey, "the key in the data is not the certified one")
        }
        return AttestedKey(
            app: app, publicKey: point, environment: environment, receipt: object.receipt,
            bundleVersion: data.extensions?["apple_bundle_version_01"]?.text,
            validationCategory: data.extensions?["apple_validation_category_01"]?.bytes.map { Hex.encode($0) })
    }
}

/// An attestation object, taken apart and not judged.
struct AttestationObject {
    let leaf: [UInt8]
    let intermediate: [UInt8]
    let receipt: [UInt8]
    let authenticatorData: [UInt8]

    init(_ bytes: [UInt8]) throws(AttestationRefusal) {
        guard bytes.count <= AttestationVerifier.maximumBytes else {
            throw AttestationRefusal(.malformedCBOR, "the object is beyond the size bound")
        }
        let object: CBORValue
        do throws(CBORValue.Fault) {
            object = try CBORValue(bytes[...])
        } catch {
            throw AttestationRefusal(fault: error, in: "the object")
        }
        guard let format = object["fmt"]?.text, let statement = object["attStmt"],
            let data = object["authData"]?.bytes
        else { throw AttestationRefusal(.malformedCBOR, "fmt, attStmt or authData is missing") }
        guard format.utf8.elementsEqual("apple-appattest".utf8) else {
            throw AttestationRefusal(.badFormat, "fmt is not apple-appattest")
        }
        guard case .array(let chain) = statement["x5c"], chain.count == 2, let leaf = chain[0].bytes,
            let intermediate = chain[1].bytes
        else { throw AttestationRefusal(.badX5CLength, "x5c has not two byte strings") }
        guard let receipt = statement["receipt"]?.bytes else {
            throw AttestationRefusal(.malformedCBOR, "receipt is missing")
        }
        self.leaf = leaf
        self.intermediate = intermediate
        self.receipt = receipt
        authenticatorData = data
    }
}
