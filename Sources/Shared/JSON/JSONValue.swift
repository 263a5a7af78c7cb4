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

    private var node: JSONNode { parser.node(at: index, of: generation) }

    package var kind: JSONKind { node.kind }

    package var isNull: Bool { node.isNull }

    package var bool: Bool? { node.bool }

    /// The text of a string, escapes resolved.
    package var string: String? { withNode(\.string) }

    /// The UTF-8 of a string, escapes resolved; a copy. Never holds 0.
    package var stringBytes: [UInt8]? { withStringBytes { Array($0) } }

    /// Lends the bytes that `stringBytes` copies, without the copy; nil when this is no string. They are valid during
    /// the call only, and the parser must not be used for another document meanwhile.
    package func withStringBytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result? {
        withNode { $0.isString ? body($0.bytes) : nil }
    }

    /// A number's text as it stood in the document: any size and precision, valid by the grammar.
    package var rawNumber: String? {
        withNode { $0.kind == .number ? String(decoding: $0.bytes, as: UTF8.self) : nil }
    }

    /// The value of a number that is written as an integer (no fraction, no exponent) and fits; else nil.
    package var int64: Int64? {
        withNode { node in
            guard node.kind == .number else { return nil }
            let digits = node.bytes
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
        withNode { $0.kind == .object || $0.kind == .array ? $0.count : 0 }
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
        withNode { node in
            node.member(named: name).map {
                JSONValue(parser: parser, generation: generation, index: index + ($0.place - node.place))
            }
        }
    }

    /// True when an object names some member twice.
    package var hasDuplicateMembers: Bool { withNode(\.hasDuplicateMembers) }

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
            position = value.node.nextIndex
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
            position = element.node.nextIndex
            return element
        }
    }
}
