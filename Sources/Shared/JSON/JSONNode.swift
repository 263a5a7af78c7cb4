internal import CSimdjson

/// What `csimdjson_node` is, field by field: a type of this module, so that other modules can read it in place.
@usableFromInline
struct JSONToken {
    @usableFromInline let kind: UInt32
    @usableFromInline let offset: UInt32
    @usableFromInline let length: UInt32
    @usableFromInline let end: UInt32
    @usableFromInline let next: UInt32

    // The values of `csimdjson_kind`.
    @inlinable static var null: UInt32 { 0 }
    @inlinable static var no: UInt32 { 1 }
    @inlinable static var yes: UInt32 { 2 }
    @inlinable static var number: UInt32 { 3 }
    @inlinable static var string: UInt32 { 4 }
    @inlinable static var array: UInt32 { 5 }
    @inlinable static var object: UInt32 { 6 }
}

/// One value of a document that is lent for the length of a call (`JSONValue.withNode`): what `JSONValue` is for
/// anybody, without its hold on the parser and its checks, for paths that look at every member of every request.
///
/// It must not leave the call. Every place it can be moved to was laid out by the shim, which counts nodes as it appends
/// them: `next` of the last member or element is never followed, because `count` and `length` end the loop.
package struct JSONNode {
    @usableFromInline let place: UnsafePointer<JSONToken>
    @usableFromInline let nodes: UnsafePointer<JSONToken>
    @usableFromInline let text: UnsafePointer<UInt8>

    @usableFromInline
    init(place: UnsafePointer<JSONToken>, nodes: UnsafePointer<JSONToken>, text: UnsafePointer<UInt8>) {
        self.place = place
        self.nodes = nodes
        self.text = text
    }

    package var kind: JSONKind {
        switch place.pointee.kind {
        case JSONToken.string: .string
        case JSONToken.number: .number
        case JSONToken.object: .object
        case JSONToken.array: .array
        case JSONToken.null: .null
        default: .bool
        }
    }

    @inlinable package var isNull: Bool { place.pointee.kind == JSONToken.null }
    @inlinable package var isString: Bool { place.pointee.kind == JSONToken.string }

    @inlinable package var isNumber: Bool { place.pointee.kind == JSONToken.number }
    @inlinable package var isObject: Bool { place.pointee.kind == JSONToken.object }
    @inlinable package var isContainer: Bool { place.pointee.kind >= JSONToken.array }

    package var bool: Bool? {
        switch place.pointee.kind {
        case JSONToken.yes: true
        case JSONToken.no: false
        default: nil
        }
    }

    /// The UTF-8 of a string, escapes resolved, or the text of a number or literal. Of no use for a container.
    @inlinable package var bytes: UnsafeBufferPointer<UInt8> {
        UnsafeBufferPointer(start: text + Int(place.pointee.offset), count: Int(place.pointee.length))
    }

    /// The text of a string, escapes resolved.
    package var string: String? { isString ? String(decoding: bytes, as: UTF8.self) : nil }

    /// The text of a value as it was read, quotes and brackets included. Spoilt where a string with escapes is or was
    /// inside: they are resolved in place. `isPlain` tells of a string.
    @inlinable package var source: UnsafeBufferPointer<UInt8> {
        let start = Int(place.pointee.offset) - (isString ? 1 : 0)
        return UnsafeBufferPointer(start: text + start, count: Int(place.pointee.end) - start)
    }

    /// True when a string was written without escapes, so that `source` is its compact JSON.
    @inlinable package var isPlain: Bool {
        place.pointee.end &- place.pointee.offset == place.pointee.length &+ 1
    }

    /// Members of an object, elements of an array.
    @inlinable package var count: Int { Int(place.pointee.length) }

    /// The first key or element of a container that is not empty; of a key its value.
    @inlinable package var inner: JSONNode { JSONNode(place: place + 1, nodes: nodes, text: text) }

    /// What follows a value and all that is in it: the next key or element.
    @inlinable package var next: JSONNode {
        JSONNode(place: nodes + Int(place.pointee.next), nodes: nodes, text: text)
    }

    /// True when an object names some member twice; short memory reads as true, the careful answer.
    package var hasDuplicateMembers: Bool { Self.hasDuplicates(nodes, text, place) }

    /// `next` as an index of the document.
    var nextIndex: Int { Int(place.pointee.next) }

    /// The value of an object's member, compared as UTF-8 bytes; of duplicates the last. Nil when there is none or this
    /// is no object. Looks at every member.
    package func member(named name: StaticString) -> JSONNode? {
        name.withUTF8Buffer { member(named: $0) }
    }

    @inline(__always)
    func member(named name: UnsafeBufferPointer<UInt8>) -> JSONNode? {
        guard place.pointee.kind == JSONToken.object else { return nil }
        var found: UnsafePointer<JSONToken>?
        var key = place + 1
        for _ in 0..<place.pointee.length {
            if Int(key.pointee.length) == name.count, Self.equal(text + Int(key.pointee.offset), name) {
                found = key + 1
            }
            key = nodes + Int(key[1].next)
        }
        return found.map { JSONNode(place: $0, nodes: nodes, text: text) }
    }

    private static func hasDuplicates(
        _ nodes: UnsafePointer<JSONToken>, _ text: UnsafePointer<UInt8>, _ place: UnsafePointer<JSONToken>
    ) -> Bool {
        // They are nodes of the shim's; see `JSONParser.node`.
        let node = UnsafeRawPointer(place).assumingMemoryBound(to: csimdjson_node.self)
        return csimdjson_has_duplicates(
            UnsafeRawPointer(nodes).assumingMemoryBound(to: csimdjson_node.self), text, node) != 0
    }

    @inline(__always)
    private static func equal(_ bytes: UnsafePointer<UInt8>, _ name: UnsafeBufferPointer<UInt8>) -> Bool {
        var index = 0
        while index < name.count {
            guard bytes[index] == name[index] else { return false }
            index += 1
        }
        return true
    }
}

/// Names of members that are looked for together, at most `JSONFields.most`.
package struct JSONNames: Sendable {
    fileprivate struct Name {
        let bytes: [UInt8]
        /// The first eight bytes, zeros for what is missing.
        let head: UInt64
    }

    fileprivate let names: [Name]

    package init(_ names: [String]) {
        precondition(names.count <= JSONFields.most, "more names than there is room for")
        self.names = names.map { name in
            let bytes = Array(name.utf8)
            return Name(bytes: bytes, head: bytes.prefix(8).reversed().reduce(0) { $0 << 8 | UInt64($1) })
        }
    }
}

/// The values of some members, found in one pass over their object. Lent as their nodes are.
package struct JSONFields {
    package static var most: Int { 24 }

    private let object: JSONNode
    /// By the place of the name: how far the value stands behind the object, 0 when there is none.
    private var places: InlineArray<24, UInt32>

    /// Compared as UTF-8 bytes; of duplicates the last. Finds nothing in what is no object.
    package init(_ object: JSONNode, _ wanted: JSONNames) {
        self.object = object
        places = InlineArray(repeating: 0)
        guard object.isObject else { return }
        var key = object.place + 1
        for _ in 0..<object.place.pointee.length {
            if let index = Self.index(of: key.pointee, in: object.text, wanted.names) {
                places[index] = UInt32(truncatingIfNeeded: key + 1 - object.place)
            }
            key = object.nodes + Int(key[1].next)
        }
    }

    /// The value of the name at that place of the names; nil when the object has no such member.
    package subscript(index: Int) -> JSONNode? {
        let place = places[index]
        return place == 0
            ? nil : JSONNode(place: object.place + Int(place), nodes: object.nodes, text: object.text)
    }

    @inline(__always)
    private static func index(of key: JSONToken, in text: UnsafePointer<UInt8>, _ names: [JSONNames.Name]) -> Int? {
        let start = text + Int(key.offset)
        let length = Int(key.length)
        // The shim keeps some bytes of padding behind the text.
        var head = UInt64(littleEndian: UnsafeRawPointer(start).loadUnaligned(as: UInt64.self))
        if length < 8 { head &= (1 &<< UInt64(8 &* length)) &- 1 }
        for index in names.indices where names[index].head == head {
            let bytes = names[index].bytes
            guard bytes.count == length else { continue }
            var place = 8
            while place < length, start[place] == bytes[place] { place += 1 }
            if place >= length { return index }
        }
        return nil
    }
}

extension JSONValue {
    /// Lends the document from this value on. The parser must not read another one meanwhile.
    package func withNode<Result, Failure: Error>(
        _ body: (JSONNode) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        defer { withExtendedLifetime(parser) {} }
        return try body(parser.node(at: index, of: generation))
    }
}
