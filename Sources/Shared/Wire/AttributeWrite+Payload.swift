package import JSON

extension AttributeWrite {
    /// The payload of an attribute job: compact JSON in the names of the request, `store`, `proof`, and one of `jws`
    /// (unverified), `verified` (an object of facts) and `jwsRefused` (a word), or none; what is nil is left out.
    package func encodePayload() -> [UInt8] { encodePayload(proof: proof) }

    /// The same with another proof than its own: the door learns it after the fields, and a changed copy would cost more
    /// than the encoding.
    package func encodePayload(proof: WriteProof) -> [UInt8] {
        var writer = JSONWriter(reservingCapacity: 512)
        writer.beginObject()
        writer.member("appUserId", appUserID)
        writer.member("bundleId", bundleID)
        writer.member("store", store.rawValue)
        writer.member("originalTransactionId", originalTransactionID)
        writer.member("productId", productID)
        switch evidence {
        case .none: break
        case .unverified(let jws): writer.member("jws", jws)
        case .verified(let facts):
            writer.key("verified")
            facts.encode(to: &writer)
        case .refused(let reason): writer.member("jwsRefused", reason)
        }
        proof.encode(to: &writer)
        writer.endObject()
        return writer.bytes
    }

    /// Reads what `encodePayload` wrote, with every limit of the door checked again. An error can't be mended by a
    /// retry: the job is dead. The parser is only borrowed; a worker keeps one for all its jobs.
    package init(payload: [UInt8], using parser: JSONParser = JSONParser()) throws(WireError) {
        let reader = try PayloadReader(
            PayloadReader.root(of: payload, using: parser),
            members: [
                "appUserId", "bundleId", "store", "originalTransactionId", "productId", "jws", "verified",
                "jwsRefused", "proof",
            ])
        let store = try reader.string("store") { PurchaseStore(rawValue: $0) != nil }
        self.init(
            appUserID: try reader.string("appUserId", TextRules.isUserID),
            bundleID: try reader.string("bundleId", TextRules.isBundleID),
            store: PurchaseStore(rawValue: store) ?? .appStore,
            originalTransactionID: try reader.string(
                "originalTransactionId", TextRules.isOriginalTransactionID),
            productID: try reader.optionalString("productId", TextRules.isProductID),
            evidence: try AttributeWrite.evidence(in: reader),
            proof: try WriteProof(payload: reader.value("proof")))
    }

    private static func evidence(in reader: PayloadReader) throws(WireError) -> Evidence {
        let jws = try reader.optionalString("jws", TextRules.isJWS)
        let refused = try reader.optionalString("jwsRefused", TextRules.isRefusalReason)
        let facts = reader.value("verified")
        guard [jws != nil, refused != nil, facts != nil].count(where: { $0 }) <= 1 else {
            throw WireError(.invalidField, "the payload has more than one of jws, verified and jwsRefused")
        }
        if let jws { return .unverified(jws: jws) }
        if let refused { return .refused(reason: refused) }
        if let facts { return .verified(try TransactionFacts(payload: facts)) }
        return .none
    }
}
