/// Appends compact JSON to bytes: no white space, raw UTF-8, and only the escapes that RFC 8259 §7 demands (`"`, `\`
/// and control characters, the short forms where there are some).
///
/// Commas and colons are put by the writer; that containers are closed and keys stand only in objects is the caller's.
package struct JSONWriter: ~Copyable {
    /// Owned: allocated by `init` and `makeRoom`, freed by `deinit`. Every write is preceded by a `makeRoom` for it.
    private var start: UnsafeMutablePointer<UInt8>
    private var capacity: Int
    private var count: Int
    private var needsComma = false

    /// What a writer starts with unless it knows better.
    private static let leastCapacity = 256
    /// Words of eight bytes are stored whole, so the last may stand over by so much.
    private static let slack = 8

    /// Appends to `bytes`, as if they were the start of the text.
    package init(appendingTo bytes: [UInt8] = [], reservingCapacity capacity: Int = 0) {
        self.capacity = max(Self.leastCapacity, bytes.count + capacity + Self.slack)
        start = .allocate(capacity: self.capacity)
        count = bytes.count
        bytes.withUnsafeBufferPointer { if let base = $0.baseAddress { start.update(from: base, count: $0.count) } }
    }

    deinit { start.deallocate() }

    /// What was written so far; a copy.
    package var bytes: [UInt8] { Array(UnsafeBufferPointer(start: start, count: count)) }

    package mutating func beginObject() { open(UInt8(ascii: "{")) }
    package mutating func endObject() { close(UInt8(ascii: "}")) }
    package mutating func beginArray() { open(UInt8(ascii: "[")) }
    package mutating func endArray() { close(UInt8(ascii: "]")) }

    /// A member's name; its value comes next. It must need no escape, as no name in code does.
    package mutating func key(_ name: StaticString) {
        name.withUTF8Buffer { name in
            assert(Self.firstToEscape(in: name, from: 0) == name.count)
            makeRoom(for: name.count + 4)
            separate()
            put(UInt8(ascii: "\""))
            if let base = name.baseAddress { (start + count).update(from: base, count: name.count) }
            count &+= name.count
            put(UInt8(ascii: "\""))
            put(UInt8(ascii: ":"))
            needsComma = false
        }
    }

    @_disfavoredOverload
    package mutating func key(_ name: String) {
        var name = name
        name.withUTF8 { key(utf8: $0) }
    }

    /// A member's name from its UTF-8, which the caller knows to be valid.
    package mutating func key(utf8 name: UnsafeBufferPointer<UInt8>) {
        appendQuoted(name)
        // `appendQuoted` leaves room for a colon.
        put(UInt8(ascii: ":"))
        needsComma = false
    }

    package mutating func string(_ value: String) {
        var value = value
        value.withUTF8 { string(utf8: $0) }
    }

    /// A string from its UTF-8, which the caller knows to be valid.
    package mutating func string(utf8 value: [UInt8]) {
        value.withUnsafeBufferPointer { string(utf8: $0) }
    }

    package mutating func string(utf8 value: UnsafeBufferPointer<UInt8>) {
        appendQuoted(value)
        needsComma = true
    }

    package mutating func int(_ value: Int64) {
        raw(String(value))
    }

    package mutating func bool(_ value: Bool) {
        raw(value ? "true" : "false" as StaticString)
    }

    package mutating func null() {
        raw("null" as StaticString)
    }

    /// Text that is one JSON value already.
    package mutating func raw(_ json: String) {
        var json = json
        json.withUTF8 { raw($0) }
    }

    package mutating func raw(_ json: [UInt8]) {
        json.withUnsafeBufferPointer { raw($0) }
    }

    package mutating func raw(_ json: UnsafeBufferPointer<UInt8>) {
        makeRoom(for: json.count + 1)
        separate()
        if let base = json.baseAddress { (start + count).update(from: base, count: json.count) }
        count += json.count
        needsComma = true
    }

    private mutating func raw(_ json: StaticString) {
        json.withUTF8Buffer { raw($0) }
    }

    private mutating func open(_ bracket: UInt8) {
        makeRoom(for: 2)
        separate()
        put(bracket)
        needsComma = false
    }

    private mutating func close(_ bracket: UInt8) {
        makeRoom(for: 1)
        put(bracket)
        needsComma = true
    }

    /// - Precondition: there is room.
    @inline(__always)
    private mutating func separate() {
        if needsComma { put(UInt8(ascii: ",")) }
    }

    /// - Precondition: there is room.
    @inline(__always)
    private mutating func put(_ byte: UInt8) {
        start[count] = byte
        count &+= 1
    }

    @inline(__always)
    private mutating func makeRoom(for bytes: Int) {
        if capacity - count < bytes + Self.slack { grow(by: bytes) }
    }

    @inline(never)
    private mutating func grow(by bytes: Int) {
        capacity = max(2 * capacity, count + bytes + Self.slack)
        let larger = UnsafeMutablePointer<UInt8>.allocate(capacity: capacity)
        larger.update(from: start, count: count)
        start.deallocate()
        start = larger
    }

    /// Appends the comma that is due, the string in quotes, and room for one more byte.
    private mutating func appendQuoted(_ value: UnsafeBufferPointer<UInt8>) {
        makeRoom(for: value.count + 4)
        separate()
        put(UInt8(ascii: "\""))
        var index = 0
        let raw = UnsafeRawBufferPointer(value)
        // Eight bytes at a time: nearly all texts have nothing to escape.
        while index &+ 8 <= raw.count {
            let word = raw.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            guard !Self.mayNeedEscape(word) else { break }
            UnsafeMutableRawPointer(start + count).storeBytes(of: word, as: UInt64.self)
            count &+= 8
            index &+= 8
        }
        while index < value.count {
            let byte = value[index]
            if byte < 0x20 || byte == 0x22 || byte == 0x5c {
                // Six for this one, and one for each that follows, beside quote and colon.
                makeRoom(for: value.count - index + 8)
                putEscape(of: byte)
            } else {
                put(byte)
            }
            index &+= 1
        }
        put(UInt8(ascii: "\""))
    }

    /// - Precondition: there is room for six bytes.
    private mutating func putEscape(of byte: UInt8) {
        put(UInt8(ascii: "\\"))
        switch byte {
        case 0x22, 0x5c: put(byte)
        case 0x08: put(UInt8(ascii: "b"))
        case 0x09: put(UInt8(ascii: "t"))
        case 0x0a: put(UInt8(ascii: "n"))
        case 0x0c: put(UInt8(ascii: "f"))
        case 0x0d: put(UInt8(ascii: "r"))
        default:
            for digit in [0x75, 0x30, 0x30, 0x30 + (byte >> 4), byte & 15 + (byte & 15 < 10 ? 0x30 : 0x57)] {
                put(digit)
            }
        }
    }

    /// The compact JSON text of a string, quotes included.
    package static func quoted(_ value: String) -> String {
        var value = value
        return value.withUTF8 { quoted(utf8: $0) }
    }

    /// The compact JSON text of a string from its UTF-8, which the caller knows to be valid.
    package static func quoted(utf8 value: UnsafeBufferPointer<UInt8>) -> String {
        if firstToEscape(in: value, from: 0) == value.count {
            return String(unsafeUninitializedCapacity: value.count + 2) { buffer in
                buffer[0] = UInt8(ascii: "\"")
                _ = UnsafeMutableBufferPointer(rebasing: buffer[1...]).update(fromContentsOf: value)
                buffer[value.count + 1] = UInt8(ascii: "\"")
                return value.count + 2
            }
        }
        var writer = JSONWriter(reservingCapacity: value.count + 8)
        writer.string(utf8: value)
        return String(decoding: UnsafeBufferPointer(start: writer.start, count: writer.count), as: UTF8.self)
    }

    /// How many bytes `quoted` would give.
    package static func quotedCount(_ value: String) -> Int {
        var value = value
        return value.withUTF8 { bytes in
            var count = bytes.count + 2
            var index = firstToEscape(in: bytes, from: 0)
            while index < bytes.count {
                switch bytes[index] {
                case 0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x22, 0x5c: count += 1
                default: count += 5
                }
                index = firstToEscape(in: bytes, from: index + 1)
            }
            return count
        }
    }

    /// Where the first byte stands that has to be escaped, or the end. Eight bytes at a time: nearly all texts have none.
    private static func firstToEscape(in value: UnsafeBufferPointer<UInt8>, from start: Int) -> Int {
        var index = start
        if let base = value.baseAddress {
            let start = UnsafeRawPointer(base)
            while index + 8 <= value.count {
                let word = start.loadUnaligned(fromByteOffset: index, as: UInt64.self)
                guard !mayNeedEscape(word) else { break }
                index += 8
            }
        }
        while index < value.count {
            let byte = value[index]
            if byte < 0x20 || byte == 0x22 || byte == 0x5c { return index }
            index += 1
        }
        return index
    }

    /// Whether one of eight bytes is a control character, `"` or `\\`; may also say so of a byte right after one.
    @inline(__always)
    private static func mayNeedEscape(_ word: UInt64) -> Bool {
        let ones: UInt64 = 0x0101_0101_0101_0101
        let highs: UInt64 = 0x8080_8080_8080_8080
        let quotes = word ^ (ones &* 0x22)
        let backslashes = word ^ (ones &* 0x5c)
        // A byte below n borrows into its high bit when n is taken away; one that had that bit set is no such byte.
        let found =
            ((word &- ones &* 0x20) & ~word) | ((quotes &- ones) & ~quotes) | ((backslashes &- ones) & ~backslashes)
        return found & highs != 0
    }
}
