/// One item of CBOR (RFC 8949) in the strict form that Apple's devices write: definite lengths, shortest heads, no tags,
/// no floats, no equal keys in a map.
package enum CBORValue: Equatable, Sendable {
    case unsigned(UInt64)
    /// −1 − n.
    case negative(UInt64)
    case bytes([UInt8])
    /// Valid UTF-8.
    case text(String)
    case array([CBORValue])
    /// In the order they came.
    case map([(key: CBORValue, value: CBORValue)])
    case simple(Bool?)

    /// Why bytes are not one strict item.
    package enum Fault: Error, Equatable {
        /// Not CBOR, cut short, or beyond the bounds below.
        case malformed
        /// CBOR, but in a form that the strict one forbids.
        case nonCanonical
        /// One item, and bytes after it.
        case trailing
    }

    /// Attestations are three deep; a map beside the key would be no deeper.
    package static let maximumDepth = 4
    /// Most items of all containers together. A real attestation has about twenty; without a bound, bytes of the
    /// greatest size would become a tree that is forty times larger.
    package static let maximumItems = 256

    /// Reads exactly one item from all of the bytes.
    package init(_ bytes: ArraySlice<UInt8>) throws(Fault) {
        var reader = CBORReader(bytes)
        self = try reader.item(depth: 1)
        guard reader.rest.isEmpty else { throw .trailing }
    }

    package static func == (one: CBORValue, other: CBORValue) -> Bool {
        switch (one, other) {
        case (.unsigned(let a), .unsigned(let b)), (.negative(let a), .negative(let b)): a == b
        case (.bytes(let a), .bytes(let b)): a == b
        // As bytes: what Unicode calls equal is not.
        case (.text(let a), .text(let b)): a.utf8.elementsEqual(b.utf8)
        case (.array(let a), .array(let b)): a == b
        case (.map(let a), .map(let b)):
            a.count == b.count && zip(a, b).allSatisfy { $0.key == $1.key && $0.value == $1.value }
        case (.simple(let a), .simple(let b)): a == b
        default: false
        }
    }

    /// The value of a text key in a map; nil for another item or key.
    package subscript(_ key: String) -> CBORValue? { self[.text(key)] }

    /// The value of a whole number's key in a map, as COSE has them.
    subscript(_ key: Int) -> CBORValue? { self[CBORValue(key)] }

    private subscript(_ key: CBORValue) -> CBORValue? {
        guard case .map(let pairs) = self else { return nil }
        return pairs.first { $0.key == key }?.value
    }

    init(_ number: Int) {
        self = number >= 0 ? .unsigned(UInt64(number)) : .negative(UInt64(-(number + 1)))
    }

    /// The content of a byte string; nil for another item.
    package var bytes: [UInt8]? {
        if case .bytes(let bytes) = self { bytes } else { nil }
    }

    var text: String? {
        if case .text(let text) = self { text } else { nil }
    }
}

/// Takes items off the front of bytes that anybody may have sent. Nothing is taken that is not there, and no memory is
/// asked for by a length that the bytes only claim.
struct CBORReader {
    private(set) var rest: ArraySlice<UInt8>
    private var itemsLeft = CBORValue.maximumItems

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    /// - Parameter depth: of this item; the outermost is 1.
    mutating func item(depth: Int) throws(CBORValue.Fault) -> CBORValue {
        guard depth <= CBORValue.maximumDepth, itemsLeft > 0 else { throw .malformed }
        itemsLeft -= 1
        guard let first = rest.popFirst() else { throw .malformed }
        let argument = try argument(first & 31)
        switch first >> 5 {
        case 0: return .unsigned(argument)
        case 1: return .negative(argument)
        case 2: return .bytes(Array(try take(argument)))
        case 3:
            guard let text = String(validating: try take(argument), as: UTF8.self) else { throw .malformed }
            return .text(text)
        case 4: return .array(try array(argument, depth))
        case 5: return .map(try map(argument, depth))
        case 6: throw .nonCanonical
        default: return try simple(first & 31)
        }
    }

    private mutating func array(_ count: UInt64, _ depth: Int) throws(CBORValue.Fault) -> [CBORValue] {
        guard count <= UInt64(itemsLeft) else { throw .malformed }
        var items: [CBORValue] = []
        for _ in 0..<count { items.append(try item(depth: depth + 1)) }
        return items
    }

    private mutating func map(
        _ count: UInt64, _ depth: Int
    ) throws(CBORValue.Fault) -> [(key: CBORValue, value: CBORValue)] {
        guard count <= UInt64(itemsLeft / 2) else { throw .malformed }
        var pairs: [(key: CBORValue, value: CBORValue)] = []
        for _ in 0..<count {
            let key = try item(depth: depth + 1)
            let value = try item(depth: depth + 1)
            guard !pairs.contains(where: { $0.key == key }) else { throw .nonCanonical }
            pairs.append((key, value))
        }
        return pairs
    }

    /// What follows the head's lower five bits, which is a number, a length or a count.
    private mutating func argument(_ low: UInt8) throws(CBORValue.Fault) -> UInt64 {
        switch low {
        case 0..<24: return UInt64(low)
        case 24...27:
            let size = 1 << Int(low - 24)
            guard rest.count >= size else { throw .malformed }
            let number = rest.prefix(size).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
            rest = rest.dropFirst(size)
            let isShortest = size == 1 ? number >= 24 : number >> (UInt64(size) * 4) != 0
            guard isShortest else { throw .nonCanonical }
            return number
        case 31: throw .nonCanonical
        default: throw .malformed
        }
    }

    private mutating func take(_ count: UInt64) throws(CBORValue.Fault) -> ArraySlice<UInt8> {
        guard count <= UInt64(rest.count) else { throw .malformed }
        let taken = rest.prefix(Int(count))
        rest = rest.dropFirst(Int(count))
        return taken
    }

    /// True, false and null; floats and everything else have no place in what Apple signs.
    private func simple(_ low: UInt8) throws(CBORValue.Fault) -> CBORValue {
        switch low {
        case 20: return .simple(false)
        case 21: return .simple(true)
        case 22: return .simple(nil)
        default: throw .nonCanonical
        }
    }
}
