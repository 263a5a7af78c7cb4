package import JSON

extension IdentifyWrite {
    /// The payload of an identify job: compact JSON in the names of the request and `proof`; what is nil is left out.
    package func encodePayload() -> [UInt8] { encodePayload(proof: proof) }

    /// The same with another proof than its own: the door learns it after the fields, and a changed copy would cost more
    /// than the encoding.
    package func encodePayload(proof: WriteProof) -> [UInt8] {
        var writer = JSONWriter(reservingCapacity: 512 + encodedAttributes.json.count)
        writer.beginObject()
        writer.member("appUserId", appUserID)
        writer.member("bundleId", bundleID)
        writer.member("platform", platform)
        writer.member("osVersion", osVersion)
        writer.member("deviceModel", deviceModel)
        writer.member("locale", locale)
        if !encodedAttributes.isEmpty {
            writer.key("attributes")
            writer.raw(encodedAttributes.json)
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
                "appUserId", "bundleId", "platform", "osVersion", "deviceModel", "locale", "attributes", "proof",
            ])
        self.init(
            appUserID: try reader.string("appUserId", TextRules.isUserID),
            bundleID: try reader.string("bundleId", TextRules.isBundleID),
            platform: try reader.optionalString("platform", TextRules.isPlatform),
            osVersion: try reader.optionalString("osVersion", TextRules.isDeviceField),
            deviceModel: try reader.optionalString("deviceModel", TextRules.isDeviceField),
            locale: try reader.optionalString("locale", TextRules.isDeviceField))
        if let attributes = reader.value("attributes") {
            encodedAttributes = try attributes.withNode { node throws(WireError) in
                try EncodedAttributes(validating: node)
            }
            // In a payload a key twice is a slip of the editor, not a client's habit.
            if attributes.hasDuplicateMembers { throw reader.invalid("attributes") }
        }
        proof = try WriteProof(payload: reader.value("proof"))
    }
}
