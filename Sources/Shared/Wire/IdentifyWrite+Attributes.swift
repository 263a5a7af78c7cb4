internal import JSON

extension EncodedAttributes {
    /// Reads an `attributes` object: of duplicate keys the last, at its place. Faults are told in the order of the
    /// members, the size last, once all else is right.
    init(validating value: JSONNode) throws(WireError) {
        guard value.isObject else { throw Self.notFlat("attributes must be a flat JSON object") }
        guard value.count > 0 else {
            self.init()
            return
        }
        // Keys are unique but for oddities, and finding that out is cheap.
        let winners = value.hasDuplicateMembers ? Self.lastMembers(of: value) : nil
        // What the object takes without white space, had it no escapes: the braces; then every member's key, its quotes
        // and colon, its value and a comma, less the last comma.
        var size = 1
        var key = value.inner
        for position in 0..<value.count {
            let member = key.inner
            if winners?.contains(position) ?? true {
                try Self.check(key: key.bytes)
                try Self.check(value: member)
                size += key.bytes.count + 4 + (member.isString ? 2 : 0) + member.bytes.count
            }
            key = member.next
        }
        let source = value.source
        // An escape is longer than what it stands for: the sizes are equal when there is neither an escape, nor white
        // space, nor a member that lost, and then the text is what the writer would write.
        let json = size == source.count ? Array(source) : Self.compact(value, winners)
        guard json.count <= SDKLimits.attributesBytes else {
            throw WireError(
                .attributesTooLarge, "attributes take more than \(SDKLimits.attributesBytes) bytes as compact JSON",
                field: "attributes")
        }
        self.init(checked: json)
    }

    private static func compact(_ object: JSONNode, _ winners: Set<Int>?) -> [UInt8] {
        var writer = JSONWriter(reservingCapacity: object.source.count)
        writer.beginObject()
        var key = object.inner
        for position in 0..<object.count {
            let member = key.inner
            if winners?.contains(position) ?? true {
                writer.key(utf8: key.bytes)
                if member.isString { writer.string(utf8: member.bytes) } else { writer.raw(member.bytes) }
            }
            key = member.next
        }
        writer.endObject()
        return writer.bytes
    }

    private static func check(key: UnsafeBufferPointer<UInt8>) throws(WireError) {
        guard 1...SDKLimits.attributeKeyBytes ~= key.count else {
            throw invalid("a key of attributes must have 1 to \(SDKLimits.attributeKeyBytes) bytes")
        }
    }

    private static func check(value: JSONNode) throws(WireError) {
        guard !value.isContainer else { throw notFlat("attributes must not hold objects or arrays") }
        guard !value.isNumber || isStorableNumber(value.bytes) else {
            throw invalid(
                "a number in attributes must be finite and have at most \(SDKLimits.attributeNumberDigits) digits")
        }
    }

    /// Few digits, and finite as a double. The text itself is what is stored.
    private static func isStorableNumber(_ text: UnsafeBufferPointer<UInt8>) -> Bool {
        if text.count > SDKLimits.attributeNumberDigits {
            guard text.count(where: TextRules.isDigit) <= SDKLimits.attributeNumberDigits else { return false }
        }
        // Without an exponent 30 digits are far from a double's end.
        var hasExponent = false
        for byte in text where byte | 0x20 == UInt8(ascii: "e") { hasExponent = true }
        guard hasExponent else { return true }
        return Double(String(decoding: text, as: UTF8.self))?.isFinite == true
    }

    /// The positions of the last member of each name.
    private static func lastMembers(of object: JSONNode) -> Set<Int> {
        var last: [[UInt8]: Int] = [:]
        var key = object.inner
        for position in 0..<object.count {
            last[Array(key.bytes)] = position
            key = key.inner.next
        }
        return Set(last.values)
    }

    private static func invalid(_ message: String) -> WireError {
        WireError(.invalidField, message, field: "attributes")
    }

    private static func notFlat(_ message: String) -> WireError {
        WireError(.attributesNotFlat, message, field: "attributes")
    }
}
