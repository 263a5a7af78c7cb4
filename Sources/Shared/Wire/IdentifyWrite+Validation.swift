package import JSON

extension Validated where Write == IdentifyWrite {
    /// Reads `POST /api/sdk/v1/identify`. The parser is only borrowed: nothing of its document is kept.
    package init(body: [UInt8], using parser: JSONParser) throws(WireError) {
        try self.init(body: body, using: parser) { body throws(WireError) in try Self(validating: body) }
    }

    /// Checks a parsed body. The first fault in this order is the one that is told: no object; a required field that is
    /// missing (appUserId, bundleId); an invalid one (the same order); attributes. `proof` is left at its default.
    init(validating body: JSONNode) throws(WireError) {
        var fields = try RequestFields(body)
        let userID = try fields.required(.appUserId)
        let bundleID = try fields.required(.bundleId)
        let appUserID = try RequestFields.userID(userID)
        let bundle = try RequestFields.bundleID(bundleID)
        let oddities: [Oddity] = TextRules.isOddUserID(userID.bytes) ? [.oddUserID] : []
        var attributes = EncodedAttributes()
        if let value = fields.value(.attributes) { attributes = try EncodedAttributes(validating: value) }
        let platform = fields.optional(.platform, TextRules.isPlatform)
        let osVersion = fields.optional(.osVersion, TextRules.isDeviceField)
        let deviceModel = fields.optional(.deviceModel, TextRules.isDeviceField)
        let locale = fields.optional(.locale, TextRules.isDeviceField)
        // Not used by this call; a bad one is counted all the same, since other calls will refuse it.
        fields.check(.installId, TextRules.isUserID)
        // Made in one piece: each copy of it would hold and let go a dozen texts.
        self.init(
            write: IdentifyWrite(
                appUserID: appUserID, bundleID: bundle, platform: platform, osVersion: osVersion,
                deviceModel: deviceModel, locale: locale, encodedAttributes: attributes),
            ignoredFields: fields.ignored, oddities: oddities)
    }
}
