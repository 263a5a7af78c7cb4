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
        var bytes: [UInt8] = []
        bytes.reserveCapacity(value.utf8.count + 2)
        appendQuoted(value, to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// How many bytes `quoted` would give.
    package static func quotedCount(_ value: String) -> Int {
        var count = 2
        for byte in value.utf8 {
            count += 1
            if byte < 0x20 {
                count += byte == 8 || byte == 9 || byte == 0x0a || byte == 0x0c || byte == 0x0d ? 1 : 5
            } else if byte == 0x22 || byte == 0x5c {
                count += 1
            }
        }
        return count
    }

    private static func appendQuoted(_ value: String, to bytes: inout [UInt8]) {
        var value = value
        value.withUTF8 { appendQuoted($0, to: &bytes) }
    }

    private static func appendQuoted(_ value: UnsafeBufferPointer<UInt8>, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        var start = 0
        for (index, byte) in value.enumerated() where byte < 0x20 || byte == 0x22 || byte == 0x5c {
            bytes.append(contentsOf: value[start..<index])
            appendEscape(of: byte, to: &bytes)
            start = index + 1
        }
        bytes.append(contentsOf: value[start...])
        bytes.append(UInt8(ascii: "\""))
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
