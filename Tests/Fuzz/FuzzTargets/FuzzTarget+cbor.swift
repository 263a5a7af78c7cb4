internal import Trust

extension FuzzTarget {
    /// The form is strict, so what is taken has one encoding, and that was the input.
    static let cbor = FuzzTarget(name: "cbor", maximumBytes: 4096) { bytes throws(BrokenProperty) in
        guard let value = try? CBORValue(bytes[...]) else { return }
        try require(value.depth <= CBORValue.maximumDepth, "the item is too deep")
        try require(value.itemCount <= CBORValue.maximumItems, "the item is too large")
        try require(value.encoded == bytes, "the item has another encoding")
        try require(value.hasUniqueKeys, "a map has equal keys")
    }
}

extension CBORValue {
    /// RFC 8949 §4.2.1, with the members of a map as they came.
    var encoded: [UInt8] {
        switch self {
        case .unsigned(let number): Self.head(0, number)
        case .negative(let number): Self.head(1, number)
        case .bytes(let bytes): Self.head(2, UInt64(bytes.count)) + bytes
        case .text(let text): Self.head(3, UInt64(text.utf8.count)) + Array(text.utf8)
        case .array(let items): Self.head(4, UInt64(items.count)) + items.flatMap(\.encoded)
        case .map(let pairs): Self.head(5, UInt64(pairs.count)) + pairs.flatMap { $0.key.encoded + $0.value.encoded }
        case .simple(let value): [value.map { $0 ? 0xF5 : 0xF4 } ?? 0xF6]
        }
    }

    private static func head(_ type: UInt8, _ number: UInt64) -> [UInt8] {
        let bytes = withUnsafeBytes(of: number.bigEndian) { Array($0) }
        return switch number {
        case 0..<24: [type << 5 | UInt8(number)]
        case 24..<0x100: [type << 5 | 24] + bytes.suffix(1)
        case 0x100..<0x1_0000: [type << 5 | 25] + bytes.suffix(2)
        case 0x1_0000..<0x1_0000_0000: [type << 5 | 26] + bytes.suffix(4)
        default: [type << 5 | 27] + bytes
        }
    }

    private var children: [CBORValue] {
        switch self {
        case .array(let items): items
        case .map(let pairs): pairs.flatMap { [$0.key, $0.value] }
        default: []
        }
    }

    fileprivate var hasUniqueKeys: Bool {
        if case .map(let pairs) = self, Set(pairs.map(\.key.encoded)).count < pairs.count { return false }
        return children.allSatisfy(\.hasUniqueKeys)
    }

    fileprivate var depth: Int { 1 + (children.map(\.depth).max() ?? 0) }
    fileprivate var itemCount: Int { 1 + children.reduce(0) { $0 + $1.itemCount } }
}
