package import JSON

extension Validated where Write == IdentifyWrite {
    /// Reads `POST /api/sdk/v1/identify`. The parser is only borrowed: nothing of its document is kept.
    package init(body: [UInt8], using parser: JSONParser) throws(WireError) {
        try self.init(validating: Self.object(in: body, using: parser))
    }

    /// Checks a parsed body. The first fault in this order is the one that is told: no object; a required field that is
    /// missing (appUserId, bundleId); an invalid one (the same order); attributes. `proof` is left at its default.
    package init(validating body: JSONValue) throws(WireError) {
        var fields = try RequestFields(body)
        let userID = try fields.required("appUserId")
        let bundleID = try fields.required("bundleId")
        var write = IdentifyWrite(
            appUserID: try RequestFields.userID(userID), bundleID: try RequestFields.bundleID(bundleID))
        if let attributes = fields.value("attributes") {
            write.attributes = try IdentifyWrite.attributes(of: attributes)
        }
        write.platform = fields.optional(.platform, "platform", TextRules.isPlatform)
        write.osVersion = fields.optional(.osVersion, "osVersion", TextRules.isDeviceField)
        write.deviceModel = fields.optional(.deviceModel, "deviceModel", TextRules.isDeviceField)
        write.locale = fields.optional(.locale, "locale", TextRules.isDeviceField)
        // Not used by this call; a bad one is counted all the same, since other calls will refuse it.
        _ = fields.optional(.installId, "installId", TextRules.isUserID)
        self.init(write: write, ignoredFields: fields.ignored)
        if TextRules.isOddUserID(write.appUserID) { oddities.append(.oddUserID) }
    }
}
