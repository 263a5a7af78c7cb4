internal import Bytes

/// A device's enrolment on its way: from the ingress through the verifier to the writer. The token itself is not in it;
/// only the phone and the ingress that minted it ever see that.
package struct Enrolment: Equatable, Sendable {
    /// An app that the device may turn out to be of.
    package struct Candidate: Equatable, Sendable {
        package var organization: String
        /// `app_` and 24 hex.
        package var appID: String
        /// Apple's team id.
        package var teamID: String
        /// Whether keys of App Attest's development environment are accepted too.
        package var allowsDevelopment: Bool

        package init(organization: String, appID: String, teamID: String, allowsDevelopment: Bool) {
            self.organization = organization
            self.appID = appID
            self.teamID = teamID
            self.allowsDevelopment = allowsDevelopment
        }
    }

    package enum Evidence: Equatable, Sendable {
        /// As it came, with what the device must have attested its key with: SHA-256 of the challenge.
        case unverified(attestation: [UInt8], clientDataHash: [UInt8], candidates: [Candidate])
        /// What Apple says.
        case verified(DeviceKey)
    }

    /// A key that Apple vouches for.
    package struct DeviceKey: Equatable, Sendable {
        package var organization: String
        package var appID: String
        /// `production` or `development`.
        package var environment: String
        /// 04, x, y: 65 bytes.
        package var publicKey: [UInt8]
        /// Apple's receipt, opaque.
        package var receipt: [UInt8]
        package var bundleVersion: String?
        /// Hex.
        package var validationCategory: String?

        package init(
            organization: String, appID: String, environment: String, publicKey: [UInt8], receipt: [UInt8],
            bundleVersion: String? = nil, validationCategory: String? = nil
        ) {
            self.organization = organization
            self.appID = appID
            self.environment = environment
            self.publicKey = publicKey
            self.receipt = receipt
            self.bundleVersion = bundleVersion
            self.validationCategory = validationCategory
        }
    }

    /// 32 bytes.
    package var keyID: [UInt8]
    package var bundleID: String
    /// `AttestCall.digest`: an equal repeat has the same.
    package var callDigest: [UInt8]
    /// SHA-256 of the whole token's text.
    package var tokenHash: [UInt8]
    package var evidence: Evidence

    package init(keyID: [UInt8], bundleID: String, callDigest: [UInt8], tokenHash: [UInt8], evidence: Evidence) {
        self.keyID = keyID
        self.bundleID = bundleID
        self.callDigest = callDigest
        self.tokenHash = tokenHash
        self.evidence = evidence
    }

    /// An equal repeat of a call, whose answer was lost on the way, gets a new token so long after the first one: as
    /// long as a challenge lives (seed 000).
    package static let repeatMicroseconds: Int64 = 300_000_000

    /// `dev_` and 24 hex: the same for the same key wherever it is asked.
    package static func deviceID(organization: String, keyID: [UInt8]) -> String {
        "dev_" + SHA256Digest(ofParts: ["ratchet.device", organization, Hex.encode(keyID)]).hex.prefix(24)
    }
}

/// What became of an enrolment.
package enum EnrolmentAnswer: Equatable, Sendable {
    /// The device is durable and the token lives.
    case enrolled(DeviceFacts)
    /// Apple vouches for the device, but several organizations have connected its bundle id under its team.
    case ambiguous
    /// The attestation proves nothing, or its key is enrolled already; the word says why.
    case refused(reason: String)
    /// An equal call that came later was dealt with first, and its token is the one that lives.
    case superseded
}

/// Whose a live device token is.
package struct DeviceFacts: Equatable, Sendable {
    package var organization: String
    package var appID: String
    package var deviceID: String

    package init(organization: String, appID: String, deviceID: String) {
        self.organization = organization
        self.appID = appID
        self.deviceID = deviceID
    }
}

/// Asks whose a token is, by its hash alone.
package struct DeviceQuestion: Equatable, Sendable {
    /// SHA-256 of the whole token's text.
    package var tokenHash: [UInt8]

    package init(tokenHash: [UInt8]) { self.tokenHash = tokenHash }

    /// Stands in the job's header, where an organization must be and nobody knows yet which; none can be called that.
    package static let organization = "-"
}
