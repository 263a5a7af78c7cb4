internal import Bytes
package import JSON

/// An AdServices token on its way from the door to the writer, and what came with it.
package struct AdServicesWrite: Equatable, Sendable {
    /// Where the caller says that its app runs; nobody proves it. The raw values are stored and shown.
    package enum Environment: String, CaseIterable, Sendable {
        case production = "Production"
        case sandbox = "Sandbox"
        case xcode = "Xcode"

        /// What a call said, whatever the case of its letters; everything unknown is production.
        init(sent text: String?) {
            self =
                Self.allCases.first { known in
                    text.map { TextRules.same($0.lowercased(), known.rawValue.lowercased()) } ?? false
                } ?? .production
        }
    }

    package var bundleID: String
    /// As sent.
    package var installID: String
    /// For `AdServicesToken.context` of the organization, `bundleID` and `subject`.
    package var sealedToken: [UInt8]
    package var appVersion: String?
    package var storefront: String?
    package var environment: Environment
    package var proof: WriteProof

    /// What the install is known by: of one subject only the first token counts.
    package var subject: String { TextRules.foldedInstallID(installID) }

    package init(
        bundleID: String, installID: String, sealedToken: [UInt8], appVersion: String? = nil,
        storefront: String? = nil, environment: Environment = .production, proof: WriteProof = WriteProof()
    ) {
        self.bundleID = bundleID
        self.installID = installID
        self.sealedToken = sealedToken
        self.appVersion = appVersion
        self.storefront = storefront
        self.environment = environment
        self.proof = proof
    }
}

extension AdServicesWrite {
    /// The payload of an AdServices job: compact JSON in the names of the request, `sealedToken` instead of the token,
    /// and `proof`; what is nil is left out.
    package func encodePayload() -> [UInt8] {
        var writer = JSONWriter(reservingCapacity: 1_536)
        writer.beginObject()
        writer.member("bundleId", bundleID)
        writer.member("installId", installID)
        writer.member("sealedToken", Base64.encode(sealedToken, .standard))
        writer.member("appVersion", appVersion)
        writer.member("storefront", storefront)
        writer.member("environment", environment.rawValue)
        proof.encode(to: &writer)
        writer.endObject()
        return writer.bytes
    }

    /// Reads what `encodePayload` wrote, with every limit of the door checked again but those of the sealed text. An
    /// error can't be mended by a retry: the job is dead. The parser is only borrowed; a worker keeps one for all its
    /// jobs.
    package init(payload: [UInt8], using parser: JSONParser = JSONParser()) throws(WireError) {
        let reader = try PayloadReader(
            PayloadReader.root(of: payload, using: parser),
            members: ["bundleId", "installId", "sealedToken", "appVersion", "storefront", "environment", "proof"])
        let sealed = try reader.base64("sealedToken")
        let lengths = SDKLimits.adServicesTokenBytes
        guard
            (lengths.lowerBound + TextSealer.overheadBytes...lengths.upperBound + TextSealer.overheadBytes)
                .contains(sealed.count)
        else { throw reader.invalid("sealedToken") }
        let environment = try reader.string("environment") { Environment(rawValue: $0) != nil }
        self.init(
            bundleID: try reader.string("bundleId", TextRules.isBundleID),
            installID: try reader.string("installId", TextRules.isUserID), sealedToken: sealed,
            appVersion: try reader.optionalString("appVersion", TextRules.isDeviceField),
            storefront: try reader.optionalString("storefront", TextRules.isStorefront),
            environment: Environment(rawValue: environment) ?? .production,
            proof: try WriteProof(payload: reader.value("proof")))
    }
}
