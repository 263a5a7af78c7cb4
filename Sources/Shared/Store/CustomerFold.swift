internal import Bytes
internal import Wire

/// What a batch says of one customer.
struct CustomerFold {
    /// Keys a customer keeps: those with the greatest (stamp, key bytes).
    static let mostAttributes = 256

    let id: UUIDv8
    let organization: String
    let appUserID: String
    private(set) var firstSeen: Int64
    private(set) var lastSeen: Int64
    private(set) var attested = false
    private(set) var lastWrite = LastWrite()
    private(set) var platform = StampedText()
    private(set) var osVersion = StampedText()
    private(set) var deviceModel = StampedText()
    private(set) var locale = StampedText()
    /// By the key's bytes: Swift compares strings by canonical equivalence.
    private var attributes: [[UInt8]: StampedText] = [:]

    init(id: UUIDv8, organization: String, appUserID: String, stamp: Int64) {
        self.id = id
        self.organization = organization
        self.appUserID = appUserID
        firstSeen = stamp
        lastSeen = stamp
    }

    mutating func touch(stamp: Int64, proof: WriteProof) {
        firstSeen = min(firstSeen, stamp)
        lastSeen = max(lastSeen, stamp)
        attested = attested || proof.attested
        lastWrite.join(
            stamp: stamp, attested: proof.attested, reason: proof.attested ? nil : proof.unattestedReason)
    }

    mutating func merge(_ write: IdentifyWrite, stamp: Int64) {
        if let value = write.platform { platform.join(value, at: stamp) }
        if let value = write.osVersion { osVersion.join(value, at: stamp) }
        if let value = write.deviceModel { deviceModel.join(value, at: stamp) }
        if let value = write.locale { locale.join(value, at: stamp) }
        for (key, value) in write.encodedAttributes {
            attributes[key, default: StampedText()].join(value, at: stamp)
        }
    }

    /// The attributes as the column holds them, cut to what is kept.
    func attributesJSON() -> (json: [UInt8], cut: Bool) {
        guard !attributes.isEmpty else { return ([0x7b, 0x7d], false) }
        var kept = Array(attributes)
        let cut = kept.count > Self.mostAttributes
        if cut {
            kept.sort { a, b in
                if a.value.stamp != b.value.stamp { return a.value.stamp > b.value.stamp }
                return b.key.lexicographicallyPrecedes(a.key)
            }
            kept.removeLast(kept.count - Self.mostAttributes)
        }
        var json: [UInt8] = [0x7b]
        for (index, (key, text)) in kept.enumerated() {
            if index > 0 { json.append(0x2c) }
            JSONText.appendString(key, to: &json)
            json.append(contentsOf: [0x3a, 0x5b])
            json.append(contentsOf: String(text.stamp).utf8)
            json.append(0x2c)
            if let value = text.value {
                JSONText.appendString(value.utf8, to: &json)
            } else {
                json.append(contentsOf: "null".utf8)
            }
            json.append(0x5d)
        }
        json.append(0x7d)
        return (json, cut)
    }
}

/// JSON text made by hand where it is on the hot path.
enum JSONText {
    private static let digits = Array("0123456789abcdef".utf8)

    /// Appends a string with its quotes, with only the escapes that JSON demands.
    static func appendString(_ bytes: some Sequence<UInt8>, to json: inout [UInt8]) {
        json.append(0x22)
        for byte in bytes {
            switch byte {
            case 0x22, 0x5c:
                json.append(0x5c)
                json.append(byte)
            case 0..<0x20:
                json.append(contentsOf: [0x5c, 0x75, 0x30, 0x30, digits[Int(byte >> 4)], digits[Int(byte & 15)]])
            default: json.append(byte)
            }
        }
        json.append(0x22)
    }

    /// An object of strings and nulls, keys in the order given.
    static func object(_ members: [(String, String?)]) -> String {
        var json: [UInt8] = [0x7b]
        for (index, member) in members.enumerated() {
            if index > 0 { json.append(0x2c) }
            appendString(member.0.utf8, to: &json)
            json.append(0x3a)
            if let value = member.1 {
                appendString(value.utf8, to: &json)
            } else {
                json.append(contentsOf: "null".utf8)
            }
        }
        json.append(0x7d)
        return String(decoding: json, as: UTF8.self)
    }
}
