/// Appends compact JSON to bytes: no white space, raw UTF-8, and only the escapes that RFC 8259 §7 demands (`"`, `\`
/// and control characters, the short forms where there are some).
///
/// Commas and colons are put by the writer; that containers are closed and keys stand only in objects is the caller's.
package struct JSONWriter {
    /// What was written so far.
    package private(set) var bytes: [UInt8]
    private var needsComma = false

    /// Appends to `bytes`, as if they were the start of the text.
    package init(appendingTo bytes: [UInt8] = [], reservingCapacity capacity: Int = 0) {
        self.bytes = bytes
        if capacity > 0 { self.bytes.reserveCapacity(bytes.count + capacity) }
    }

    package mutating func beginObject() { open(UInt8(ascii: "{")) }
    package mutating func endObject() { close(UInt8(ascii: "}")) }
    package mutating func beginArray() { open(UInt8(ascii: "[")) }
    package mutating func endArray() { close(UInt8(ascii: "]")) }

    /// A member's name; its value comes next.
    package mutating func key(_ name: StaticString) {
        separate()
        name.withUTF8Buffer { JSONWriter.appendQuoted($0, to: &bytes) }
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    package mutating func key(_ name: String) {
        separate()
        JSONWriter.appendQuoted(name, to: &bytes)
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    package mutating func string(_ value: String) {
        separate()
        JSONWriter.appendQuoted(value, to: &bytes)
        needsComma = true
    }

    /// A string from its UTF-8, which the caller knows to be valid.
    package mutating func string(utf8 value: [UInt8]) {
        separate()
        value.withUnsafeBufferPointer { JSONWriter.appendQuoted($0, to: &bytes) }
        needsComma = true
    }

    package mutating func int(_ value: Int64) {
        raw(String(value))
    }

    package mutating func bool(_ value: Bool) {
        raw(value ? "true" : "false")
    }

    package mutating func null() {
        raw("null")
    }

    /// Text that is one JSON value already.
    package mutating func raw(_ json: String) {
        separate()
        bytes.append(contentsOf: json.utf8)
        needsComma = true
    }

    package mutating func raw(_ json: [UInt8]) {
        separate()
        bytes.append(contentsOf: json)
        needsComma = true
    }

    private mutating func separate() {
        if needsComma { bytes.append(UInt8(ascii: ",")) }
    }

    private mutating func open(_ bracket: UInt8) {
        separate()
        bytes.append(bracket)
        needsComma = false
    }

    private mutating func close(_ bracket: UInt8) {
        bytes.append(bracket)
        needsComma = true
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
        var bytes: [UInt8] = []
        bytes.reserveCapacity(value.count + 8)
        appendQuoted(value, to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
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

    private static func appendQuoted(_ value: String, to bytes: inout [UInt8]) {
        var value = value
        value.withUTF8 { appendQuoted($0, to: &bytes) }
    }

    private static func appendQuoted(_ value: UnsafeBufferPointer<UInt8>, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        var start = 0
        while true {
            let stop = firstToEscape(in: value, from: start)
            bytes.append(contentsOf: UnsafeBufferPointer(rebasing: value[start..<stop]))
            guard stop < value.count else { break }
            appendEscape(of: value[stop], to: &bytes)
            start = stop + 1
        }
        bytes.append(UInt8(ascii: "\""))
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

    private static func appendEscape(of byte: UInt8, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\\"))
        switch byte {
        case 0x22, 0x5c: bytes.append(byte)
        case 0x08: bytes.append(UInt8(ascii: "b"))
        case 0x09: bytes.append(UInt8(ascii: "t"))
        case 0x0a: bytes.append(UInt8(ascii: "n"))
        case 0x0c: bytes.append(UInt8(ascii: "f"))
        case 0x0d: bytes.append(UInt8(ascii: "r"))
        default:
            let digits: StaticString = "0123456789abcdef"
            digits.withUTF8Buffer { digits in
                bytes.append(contentsOf: [0x75, 0x30, 0x30, digits[Int(byte >> 4)], digits[Int(byte & 15)]])
            }
        }
    }
}
