internal import Bytes

/// Writes JSON (RFC 8259) for log lines and operations answers; commas and nesting are the caller's.
struct JSONText {
    private(set) var bytes: [UInt8] = []
    private static let hexadecimal = Array("0123456789abcdef".utf8)

    var text: String { String(decoding: bytes, as: UTF8.self) }

    /// Appends structure as it stands.
    mutating func raw(_ text: StaticString) {
        text.withUTF8Buffer { bytes.append(contentsOf: $0) }
    }

    mutating func append(_ other: JSONText) { bytes.append(contentsOf: other.bytes) }

    mutating func newline() { bytes.append(0x0A) }

    mutating func integer(_ value: some BinaryInteger) { bytes.append(contentsOf: String(value).utf8) }

    mutating func flag(_ value: Bool) { raw(value ? "true" : "false") }

    /// JSON has no infinity and no NaN: those are written as null.
    mutating func decimal(_ value: Double) {
        guard value.isFinite else { return raw("null") }
        bytes.append(contentsOf: "\(value)".utf8)
    }

    mutating func time(milliseconds: Int64) {
        bytes.append(0x22)
        Timestamps.append(milliseconds: milliseconds, to: &bytes)
        bytes.append(0x22)
    }

    /// Appends a string with its quotes. Besides what JSON demands, everything is escaped that could act on a terminal
    /// or reorder the line on a screen: DEL and C1 controls, line separators, marks of writing direction.
    /// - Parameter limit: bytes, as written, after which the rest gives way to one `…`.
    mutating func string(_ value: String, limit: Int = .max) {
        bytes.append(0x22)
        let start = bytes.count
        for scalar in value.unicodeScalars {
            let before = bytes.count
            append(scalar)
            if bytes.count - start > limit {
                bytes.removeLast(bytes.count - before)
                bytes.append(contentsOf: "…".utf8)
                break
            }
        }
        bytes.append(0x22)
    }

    private mutating func append(_ scalar: Unicode.Scalar) {
        switch scalar.value {
        case 0x22: bytes.append(contentsOf: [0x5C, 0x22])
        case 0x5C: bytes.append(contentsOf: [0x5C, 0x5C])
        case 0x0A: bytes.append(contentsOf: [0x5C, UInt8(ascii: "n")])
        case 0x00..<0x20, 0x7F...0x9F, 0x200E...0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xFEFF: escape(scalar.value)
        case 0x20..<0x7F: bytes.append(UInt8(truncatingIfNeeded: scalar.value))
        default: bytes.append(contentsOf: UTF8.encode(scalar)!)  // A scalar always has an UTF-8 form.
        }
    }

    private mutating func escape(_ value: UInt32) {
        bytes.append(contentsOf: [0x5C, UInt8(ascii: "u")])
        for shift in [12, 8, 4, 0] as [UInt32] { bytes.append(Self.hexadecimal[Int(value >> shift & 15)]) }
    }
}
