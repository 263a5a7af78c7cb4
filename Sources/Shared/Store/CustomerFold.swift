internal import Bytes
internal import Wire

/// What a batch says of one customer.
struct CustomerFold {
    /// Keys a customer keeps: those with the greatest (stamp, key bytes).
    static let mostAttributes = 256
    /// Hold no more than those: each takes six bytes at least (`"a":1,`).
    private static let bytesOfFewAttributes = 6 * mostAttributes

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
    /// The attributes of the only write that had some, as they came, each key once: what most customers have in a batch.
    private var ofOneWrite: (attributes: EncodedAttributes, stamp: Int64)?
    /// Those of several writes. By the key's bytes: Swift compares strings by canonical equivalence.
    private var joined: [[UInt8]: StampedText] = [:]

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
        guard !write.encodedAttributes.isEmpty else { return }
        if ofOneWrite == nil && joined.isEmpty && write.encodedAttributes.json.count <= Self.bytesOfFewAttributes {
            ofOneWrite = (write.encodedAttributes, stamp)
            return
        }
        if let (attributes, stamp) = ofOneWrite {
            ofOneWrite = nil
            join(attributes, at: stamp)
        }
        join(write.encodedAttributes, at: stamp)
    }

    private mutating func join(_ attributes: EncodedAttributes, at stamp: Int64) {
        for (key, value) in attributes {
            joined[key, default: StampedText()].join(value, at: stamp)
        }
    }

    /// Appends the attributes as the column holds them, cut to what is kept.
    /// - Returns: whether some were cut.
    func appendAttributes(to json: inout [UInt8]) -> Bool {
        json.append(0x7b)
        defer { json.append(0x7d) }
        if let (attributes, stamp) = ofOneWrite {
            let stampText = Array(String(stamp).utf8)
            for (index, (key, value)) in attributes.enumerated() {
                if index > 0 { json.append(0x2c) }
                key.withUnsafeBufferPointer { JSONText.appendString($0, to: &json) }
                Self.append(value, stampText, to: &json)
            }
            return false
        }
        var kept = Array(joined)
        let cut = kept.count > Self.mostAttributes
        if cut {
            kept.sort { a, b in
                if a.value.stamp != b.value.stamp { return a.value.stamp > b.value.stamp }
                return b.key.lexicographicallyPrecedes(a.key)
            }
            kept.removeLast(kept.count - Self.mostAttributes)
        }
        for (index, (key, text)) in kept.enumerated() {
            if index > 0 { json.append(0x2c) }
            key.withUnsafeBufferPointer { JSONText.appendString($0, to: &json) }
            Self.append(text.value, Array(String(text.stamp).utf8), to: &json)
        }
        return cut
    }

    /// Appends `:[stamp,"text of the value"]`.
    private static func append(_ value: String?, _ stamp: [UInt8], to json: inout [UInt8]) {
        json.append(0x3a)
        json.append(0x5b)
        json.append(contentsOf: stamp)
        json.append(0x2c)
        if let value {
            JSONText.appendString(value, to: &json)
        } else {
            json.append(contentsOf: "null".utf8)
        }
        json.append(0x5d)
    }
}

/// JSON text made by hand where it is on the hot path.
enum JSONText {
    private static let digits = Array("0123456789abcdef".utf8)

    static func appendString(_ text: String, to json: inout [UInt8]) {
        var text = text
        text.withUTF8 { appendString($0, to: &json) }
    }

    /// Appends a string with its quotes, with only the escapes that JSON demands; what stands between them is copied as
    /// a whole.
    static func appendString(_ bytes: UnsafeBufferPointer<UInt8>, to json: inout [UInt8]) {
        json.append(0x22)
        var start = 0
        for (index, byte) in bytes.enumerated() where byte < 0x20 || byte == 0x22 || byte == 0x5c {
            json.append(contentsOf: UnsafeBufferPointer(rebasing: bytes[start..<index]))
            start = index + 1
            json.append(0x5c)
            if byte < 0x20 {
                json.append(contentsOf: [0x75, 0x30, 0x30, digits[Int(byte >> 4)], digits[Int(byte & 15)]])
            } else {
                json.append(byte)
            }
        }
        json.append(contentsOf: UnsafeBufferPointer(rebasing: bytes[start...]))
        json.append(0x22)
    }

    /// An object of strings and nulls, keys in the order given.
    static func object(_ members: [(String, String?)]) -> String {
        var json: [UInt8] = [0x7b]
        for (index, member) in members.enumerated() {
            if index > 0 { json.append(0x2c) }
            appendString(member.0, to: &json)
            json.append(0x3a)
            if let value = member.1 {
                appendString(value, to: &json)
            } else {
                json.append(contentsOf: "null".utf8)
            }
        }
        json.append(0x7d)
        return String(decoding: json, as: UTF8.self)
    }
}
