package import JSON

extension Validated where Write == AttributeWrite {
    /// Reads `POST /api/sdk/v1/attribute`. The parser is only borrowed: nothing of its document is kept.
    package init(body: [UInt8], using parser: JSONParser) throws(WireError) {
        try self.init(body: body, using: parser) { body throws(WireError) in try Self(validating: body) }
    }

    /// Checks a parsed body. The first fault in this order is the one that is told: no object; a required field that is
    /// missing (appUserId, bundleId, originalTransactionId); an invalid one (the same order). `proof` is left at its
    /// default, `store` says what the body alone says (`PurchaseStore.init(platform:hasJWS:originalTransactionID:)`).
    init(validating body: JSONNode) throws(WireError) {
        var fields = try RequestFields(body)
        let userID = try fields.required(.appUserId)
        let bundleID = try fields.required(.bundleId)
        let transactionID = try fields.required(.originalTransactionId)
        var write = AttributeWrite(
            appUserID: try RequestFields.userID(userID), bundleID: try RequestFields.bundleID(bundleID),
            store: .appStore, originalTransactionID: try RequestFields.originalTransactionID(transactionID))
        let platform = fields.optional(.platform, TextRules.isPlatform)
        write.productID = fields.optional(.productId, TextRules.isProductID)
        let jws = fields.optional(.jws, TextRules.isJWS)
        if let jws { write.evidence = .unverified(jws: jws) }
        write.store = PurchaseStore(
            platform: platform, hasJWS: jws != nil, originalTransactionID: write.originalTransactionID)
        // Not used by this call; a bad one is counted all the same, since other calls will refuse it.
        fields.check(.installId, TextRules.isUserID)
        self.init(write: write, ignoredFields: fields.ignored)
        if TextRules.isOddUserID(write.appUserID) { oddities.append(.oddUserID) }
    }
}

extension PurchaseStore {
    /// The store that a call means when the bundle has an app in both: the platform says so; else a signed transaction
    /// or an id of digits alone is Apple's; any other id is a Play purchase token. A `jws` that was ignored is no jws.
    package init(platform: String?, hasJWS: Bool, originalTransactionID: String) {
        switch platform {
        case "ios": self = .appStore
        case "android": self = .playStore
        default: self = hasJWS || TextRules.isAllDigits(originalTransactionID) ? .appStore : .playStore
        }
    }
}
