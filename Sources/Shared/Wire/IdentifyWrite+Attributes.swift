internal import JSON

extension IdentifyWrite {
    /// Reads an `attributes` object: of duplicate keys the last, at its place. Faults are told in the order of the
    /// members, the size last, once all else is right.
    static func attributes(of value: JSONValue) throws(WireError) -> [Attribute] {
        guard value.kind == .object else { throw notFlat("attributes must be a flat JSON object") }
        // Keys are unique but for oddities, and finding that out is cheap.
        let winners = value.hasDuplicateMembers ? lastMembers(of: value) : nil
        var attributes: [Attribute] = []
        attributes.reserveCapacity(value.count)
        var position = 0
        // The braces; then every member's key, colon, value and comma, less the last comma.
        var size = 2
        for (key, value) in value.members {
            defer { position += 1 }
            if let winners, !winners.contains(position) { continue }
            let attribute = try attribute(key: key, value: value)
            size += JSONWriter.quotedCount(attribute.key) + (attribute.value?.utf8.count ?? "null".utf8.count) + 2
            attributes.append(attribute)
        }
        if !attributes.isEmpty { size -= 1 }
        guard size <= SDKLimits.attributesBytes else {
            throw WireError(
                .attributesTooLarge, "attributes take more than \(SDKLimits.attributesBytes) bytes as compact JSON",
                field: "attributes")
        }
        return attributes
    }

    private static func attribute(key: JSONValue, value: JSONValue) throws(WireError) -> Attribute {
        guard let name = key.string, !name.utf8.isEmpty, name.utf8.count <= SDKLimits.attributeKeyBytes else {
            throw invalid("a key of attributes must have 1 to \(SDKLimits.attributeKeyBytes) bytes")
        }
        switch value.kind {
        case .null: return Attribute(key: name, value: nil)
        case .bool: return Attribute(key: name, value: value.bool == true ? "true" : "false")
        case .string: return Attribute(key: name, value: value.withStringBytes { JSONWriter.quoted(utf8: $0) })
        case .number:
            guard let text = value.rawNumber, isStorableNumber(text) else {
                throw invalid(
                    "a number in attributes must be finite and have at most \(SDKLimits.attributeNumberDigits) digits")
            }
            return Attribute(key: name, value: text)
        case .array, .object: throw notFlat("attributes must not hold objects or arrays")
        }
    }

    /// Few digits, and finite as a double. The text itself is what is stored.
    private static func isStorableNumber(_ text: String) -> Bool {
        let digits = text.utf8.lazy.filter(TextRules.isDigit).count
        guard digits <= SDKLimits.attributeNumberDigits else { return false }
        // Without an exponent 30 digits are far from a double's end.
        guard text.utf8.contains(where: { $0 | 0x20 == UInt8(ascii: "e") }) else { return true }
        return Double(text)?.isFinite == true
    }

    /// The positions of the last member of each name.
    private static func lastMembers(of object: JSONValue) -> Set<Int> {
        var last: [[UInt8]: Int] = [:]
        for (position, member) in object.members.enumerated() { last[member.key.stringBytes ?? []] = position }
        return Set(last.values)
    }

    private static func invalid(_ message: String) -> WireError {
        WireError(.invalidField, message, field: "attributes")
    }

    private static func notFlat(_ message: String) -> WireError {
        WireError(.attributesNotFlat, message, field: "attributes")
    }
}
