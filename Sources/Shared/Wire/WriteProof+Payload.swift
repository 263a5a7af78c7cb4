internal import JSON

extension WriteProof {
    func encode(to writer: inout JSONWriter) {
        writer.key("proof")
        writer.beginObject()
        writer.member("attested", attested)
        writer.member("unattestedReason", unattestedReason)
        writer.member("deviceId", deviceID)
        writer.member("addressHash", addressHash)
        writer.endObject()
    }

    init(payload value: JSONValue?) throws(WireError) {
        guard let value else { throw .missing("proof") }
        let reader = try PayloadReader(
            value, path: "proof.", members: ["attested", "unattestedReason", "deviceId", "addressHash"])
        guard let attested = try reader.optionalBool("attested") else { throw .missing("proof.attested") }
        self.init(
            attested: attested,
            unattestedReason: try reader.optionalString("unattestedReason") { UnattestedReason(rawValue: $0) != nil },
            deviceID: try reader.optionalString("deviceId", TextRules.isDeviceID),
            addressHash: try reader.optionalString("addressHash") {
                TextRules.isLowerHex($0, count: SDKLimits.addressHashCharacters)
            })
    }
}
