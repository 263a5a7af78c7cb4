package import Bytes
package import JSON

/// A validated `POST /api/sdk/v1/adservices`. Only `sealed` goes on from here: the token's text stays in this process.
package struct AdServicesCall: Equatable, Sendable {
    package var bundleID: String
    /// As sent.
    package var installID: String
    /// Without white space.
    package var token: String
    package var appVersion: String?
    package var storefront: String?
    package var environment: AdServicesWrite.Environment

    package init(
        bundleID: String, installID: String, token: String, appVersion: String? = nil, storefront: String? = nil,
        environment: AdServicesWrite.Environment = .production
    ) {
        self.bundleID = bundleID
        self.installID = installID
        self.token = token
        self.appVersion = appVersion
        self.storefront = storefront
        self.environment = environment
    }

    /// What the queue carries.
    package func sealed(by sealer: TextSealer, organization: String, proof: WriteProof) -> AdServicesWrite {
        var write = AdServicesWrite(
            bundleID: bundleID, installID: installID, sealedToken: [], appVersion: appVersion, storefront: storefront,
            environment: environment, proof: proof)
        write.sealedToken = sealer.seal(
            Array(token.utf8),
            context: AdServicesToken.context(
                organization: organization, bundleID: bundleID, subject: write.subject))
        return write
    }
}

extension Validated where Write == AdServicesCall {
    /// Reads `POST /api/sdk/v1/adservices`. The parser is only borrowed: nothing of its document is kept.
    package init(body: [UInt8], using parser: JSONParser) throws(WireError) {
        try self.init(body: body, using: parser) { body throws(WireError) in try Self(validating: body) }
    }

    /// Checks a parsed body. The first fault in this order is the one that is told: no object; a required field that is
    /// missing (bundleId, installId, token); an invalid one (the same order).
    init(validating body: JSONNode) throws(WireError) {
        var fields = try RequestFields(body)
        let bundleID = try fields.required(.bundleId)
        let installID = try fields.required(.installId)
        let token = try fields.required(.token)
        var call = AdServicesCall(
            bundleID: try RequestFields.bundleID(bundleID), installID: try RequestFields.installID(installID),
            token: try Self.token(token))
        call.appVersion = fields.optional(.appVersion, TextRules.isDeviceField)
        call.storefront = fields.optional(.storefront, TextRules.isStorefront)
        let environment = fields.optional(.environment) { _ in true }
        call.environment = AdServicesWrite.Environment(sent: environment)
        self.init(write: call, ignoredFields: fields.ignored)
        if TextRules.isOddUserID(call.installID) { oddities.append(.oddInstallID) }
    }

    /// Text of either base64 alphabet. White space is taken off anywhere: Apple's own sample has some inside, from where
    /// its lines were broken.
    private static func token(_ value: JSONNode) throws(WireError) -> String {
        let bytes = value.isString ? value.bytes.filter { $0 != 0x20 && !(0x09...0x0d).contains($0) } : nil
        guard let bytes, SDKLimits.adServicesTokenBytes.contains(bytes.count),
            bytes.allSatisfy({ TextRules.isBase64URL($0) || [0x2b, 0x2f, 0x3d].contains($0) })
        else {
            throw WireError(
                .invalidField, "token must be an AdServices token as the device gave it out", field: "token")
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
