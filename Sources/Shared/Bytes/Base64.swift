/// Base64 (RFC 4648), strict both ways: one alphabet, exact padding, unused trailing bits zero, no white space.
package enum Base64 {
    /// Which of RFC 4648's alphabets and padding rules a text follows.
    package enum Form: Sendable {
        /// `+` and `/`, padded with `=` (§4).
        case standard
        /// `-` and `_`, never padded (§5, as JWS wants it).
        case url
    }

    private static let standardAlphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    private static let urlAlphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
    private static let standardValues = values(of: standardAlphabet)
    private static let urlValues = values(of: urlAlphabet)

    private static func values(of alphabet: [UInt8]) -> [UInt8] {
        var table = [UInt8](repeating: 0xff, count: 256)
        for (value, character) in alphabet.enumerated() { table[Int(character)] = UInt8(value) }
        return table
    }

    /// The text of some bytes.
    package static func encode(_ bytes: [UInt8], _ form: Form) -> String {
        let alphabet = form == .standard ? standardAlphabet : urlAlphabet
        var text: [UInt8] = []
        text.reserveCapacity((bytes.count + 2) / 3 * 4)
        var index = 0
        while index < bytes.count {
            let left = bytes.count - index
            let group =
                UInt32(bytes[index]) << 16 | (left > 1 ? UInt32(bytes[index + 1]) << 8 : 0)
                | (left > 2 ? UInt32(bytes[index + 2]) : 0)
            text.append(alphabet[Int(group >> 18)])
            text.append(alphabet[Int(group >> 12 & 63)])
            if left > 1 { text.append(alphabet[Int(group >> 6 & 63)]) }
            if left > 2 { text.append(alphabet[Int(group & 63)]) }
            index += 3
        }
        if form == .standard { while text.count % 4 != 0 { text.append(0x3d) } }
        return String(decoding: text, as: UTF8.self)
    }

    /// The bytes of a text, or nil when it is not exactly what `encode` would have written for some bytes.
    package static func decode(_ text: some Collection<UInt8>, _ form: Form) -> [UInt8]? {
        let fast = text.withContiguousStorageIfAvailable { decode(contiguous: $0, form) }
        if let fast { return fast }
        return Array(text).withUnsafeBufferPointer { decode(contiguous: $0, form) }
    }

    private static func decode(contiguous text: UnsafeBufferPointer<UInt8>, _ form: Form) -> [UInt8]? {
        var length = text.count
        if form == .standard {
            guard length % 4 == 0 else { return nil }
            if length > 0 && text[length - 1] == 0x3d { length -= 1 }
            if length > 0 && length % 4 == 3 && text[length - 1] == 0x3d { length -= 1 }
        }
        let tail = length % 4
        guard tail != 1 else { return nil }
        let table = form == .standard ? standardValues : urlValues
        let size = length / 4 * 3 + (tail == 0 ? 0 : tail - 1)
        var valid = true
        let bytes = [UInt8](unsafeUninitializedCapacity: size) { output, filled in
            // A foreign character reads as 0xff; its high bits survive in `seen` and are looked at once, at the end.
            var seen: UInt8 = 0
            var input = 0
            while input + 4 <= length {
                let a = table[Int(text[input])]
                let b = table[Int(text[input + 1])]
                let c = table[Int(text[input + 2])]
                let d = table[Int(text[input + 3])]
                seen |= a | b | c | d
                output[filled] = a << 2 | b >> 4
                output[filled + 1] = b << 4 | c >> 2
                output[filled + 2] = c << 6 | d
                filled += 3
                input += 4
            }
            if tail > 0 {
                let a = table[Int(text[input])]
                let b = table[Int(text[input + 1])]
                let c = tail == 3 ? table[Int(text[input + 2])] : 0
                seen |= a | b | c
                let unused = tail == 3 ? c & 3 : b & 15
                if unused != 0 { valid = false }
                output[filled] = a << 2 | b >> 4
                filled += 1
                if tail == 3 {
                    output[filled] = b << 4 | c >> 2
                    filled += 1
                }
            }
            if seen & 0xc0 != 0 { valid = false }
        }
        return valid ? bytes : nil
    }
}
