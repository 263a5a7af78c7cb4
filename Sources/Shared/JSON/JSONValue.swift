internal import CSimdjson

/// What a JSON value is.
package enum JSONKind: Sendable {
    case null, bool, number, string, array, object
}

/// A view of one value of a parsed document: a place in it and a hold on the parser. Cheap to copy.
///
/// Valid until the parser reads another document; a later use traps. Reading a value as what it is not gives nil.
package struct JSONValue {
    let parser: JSONParser
    let generation: UInt64
    let index: Int

    private var node: csimdjson_node { parser.node(at: index, of: generation) }

    package var kind: JSONKind {
        let kind = node.kind
        return if kind == CSIMDJSON_STRING.rawValue {
            .string
        } else if kind == CSIMDJSON_NUMBER.rawValue {
            .number
        } else if kind == CSIMDJSON_OBJECT.rawValue {
            .object
        } else if kind == CSIMDJSON_ARRAY.rawValue {
            .array
        } else if kind == CSIMDJSON_NULL.rawValue {
            .null
        } else {
            .bool
        }
    }

    package var isNull: Bool { node.kind == CSIMDJSON_NULL.rawValue }

    package var bool: Bool? {
        switch node.kind {
        case CSIMDJSON_TRUE.rawValue: true
        case CSIMDJSON_FALSE.rawValue: false
        default: nil
        }
    }

    /// The text of a string, escapes resolved.
    package var string: String? {
        let node = node
        guard node.kind == CSIMDJSON_STRING.rawValue else { return nil }
        return parser.withBytes(of: node) { String(decoding: $0, as: UTF8.self) }
    }

    /// The UTF-8 of a string, escapes resolved; a copy. Never holds 0.
    package var stringBytes: [UInt8]? {
        let node = node
        guard node.kind == CSIMDJSON_STRING.rawValue else { return nil }
        return parser.withBytes(of: node) { Array($0) }
    }

    /// Lends the bytes that `stringBytes` copies, without the copy; nil when this is no string. They are valid during
    /// the call only, and the parser must not be used for another document meanwhile.
    package func withStringBytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result? {
        let node = node
        guard node.kind == CSIMDJSON_STRING.rawValue else { return nil }
        return parser.withBytes(of: node, body)
    }

    /// A number's text as it stood in the document: any size and precision, valid by the grammar.
    package var rawNumber: String? {
        let node = node
        guard node.kind == CSIMDJSON_NUMBER.rawValue else { return nil }
        return parser.withBytes(of: node) { String(decoding: $0, as: UTF8.self) }
    }

    /// The value of a number that is written as an integer (no fraction, no exponent) and fits; else nil.
    package var int64: Int64? {
        let node = node
        guard node.kind == CSIMDJSON_NUMBER.rawValue else { return nil }
        return parser.withBytes(of: node) { digits in
            let negative = digits.first == UInt8(ascii: "-")
            var value: Int64 = 0
            for byte in digits.dropFirst(negative ? 1 : 0) {
                guard byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9") else { return nil }
                let (shifted, tooLarge) = value.multipliedReportingOverflow(by: 10)
                let digit = Int64(byte - UInt8(ascii: "0"))
                let (sum, overflow) = shifted.addingReportingOverflow(negative ? -digit : digit)
                if tooLarge || overflow { return nil }
                value = sum
            }
            return value
        }
    }

    /// How many members an object or elements an array has, duplicates counted; 0 for anything else.
    package var count: Int {
        let node = node
        return node.kind == CSIMDJSON_OBJECT.rawValue || node.kind == CSIMDJSON_ARRAY.rawValue ? Int(node.length) : 0
    }

    /// The value of an object's member, compared as UTF-8 bytes; of duplicates the last. Nil when there is none or this
    /// is no object. Looks at every member.
    package func member(named name: StaticString) -> JSONValue? {
        name.withUTF8Buffer { member($0) }
    }

    /// The same for a name that is known only at run time.
    package func member(named name: [UInt8]) -> JSONValue? {
        name.withUnsafeBufferPointer { member($0) }
    }

    package subscript(_ name: StaticString) -> JSONValue? { member(named: name) }

    private func member(_ name: UnsafeBufferPointer<UInt8>) -> JSONValue? {
        let object = node
        guard object.kind == CSIMDJSON_OBJECT.rawValue else { return nil }
        return parser.lastMember(named: name, ofObjectAt: index, count: object.length).map {
            JSONValue(parser: parser, generation: generation, index: $0)
        }
    }

    /// True when an object names some member twice.
    package var hasDuplicateMembers: Bool {
        _ = node
        return parser.hasDuplicateMembers(at: index)
    }

    /// An object's members in the order of the document, duplicates included; empty for anything else.
    package var members: Members { Members(of: self, count: kind == .object ? count : 0) }

    /// An array's elements in order; empty for anything else.
    package var elements: Elements { Elements(of: self, count: kind == .array ? count : 0) }

    /// The members of an object, each a key (always a string) and a value.
    package struct Members: Sequence, IteratorProtocol {
        private let parser: JSONParser
        private let generation: UInt64
        private var position: Int
        private var left: Int

        fileprivate init(of value: JSONValue, count: Int) {
            parser = value.parser
            generation = value.generation
            position = value.index + 1
            left = count
        }

        package mutating func next() -> (key: JSONValue, value: JSONValue)? {
            guard left > 0 else { return nil }
            left -= 1
            let key = JSONValue(parser: parser, generation: generation, index: position)
            let value = JSONValue(parser: parser, generation: generation, index: position + 1)
            position = Int(value.node.next)
            return (key, value)
        }
    }

    /// The elements of an array.
    package struct Elements: Sequence, IteratorProtocol {
        private let parser: JSONParser
        private let generation: UInt64
        private var position: Int
        private var left: Int

        fileprivate init(of value: JSONValue, count: Int) {
            parser = value.parser
            generation = value.generation
            position = value.index + 1
            left = count
        }

        package mutating func next() -> JSONValue? {
            guard left > 0 else { return nil }
            left -= 1
            let element = JSONValue(parser: parser, generation: generation, index: position)
            position = Int(element.node.next)
            return element
        }
    }
}
