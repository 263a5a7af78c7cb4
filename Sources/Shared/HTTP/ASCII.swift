/// The byte classes of RFC 9110 and 9112, and the few byte values the parser names.
enum ASCII {
    static let tab: UInt8 = 0x09
    static let lineFeed: UInt8 = 0x0a
    static let carriageReturn: UInt8 = 0x0d
    static let space: UInt8 = 0x20
    static let percent: UInt8 = 0x25
    static let zero: UInt8 = 0x30
    static let colon: UInt8 = 0x3a
    static let semicolon: UInt8 = 0x3b
    static let questionMark: UInt8 = 0x3f

    /// tchar: letters, digits and "!#$%&'*+-.^_`|~", as two bit maps over the ASCII range.
    @inline(__always)
    static func isToken(_ byte: UInt8) -> Bool {
        let low: UInt64 = 0x03ff_6cfa_0000_0000
        let high: UInt64 = 0x57ff_ffff_c7ff_fffe
        return byte < 64 ? low >> UInt64(byte) & 1 == 1 : byte < 128 && high >> UInt64(byte - 64) & 1 == 1
    }

    /// What a request target is made of here: visible ASCII. "#" would start a fragment, which never travels.
    @inline(__always)
    static func isTarget(_ byte: UInt8) -> Bool { byte > 0x20 && byte < 0x7f && byte != 0x23 }

    /// What a field value is made of: visible ASCII, space, tab, and obs-text, but no control byte.
    @inline(__always)
    static func isFieldValue(_ byte: UInt8) -> Bool { byte >= 0x20 && byte != 0x7f || byte == tab }

    /// A field value's bytes but for space and tab.
    @inline(__always)
    static func isFieldText(_ byte: UInt8) -> Bool { byte > 0x20 && byte != 0x7f }

    /// What a Host value is made of here: names, IPv4, bracketed IPv6, a port. The sub-delims that RFC 3986 adds are
    /// found in no real name and mean something to some proxies.
    /// Letters, digits and "%-.:[]_~", as two bit maps over the ASCII range.
    @inline(__always)
    static func isHost(_ byte: UInt8) -> Bool {
        let low: UInt64 = 0x07ff_6020_0000_0000
        let high: UInt64 = 0x47ff_fffe_afff_fffe
        return byte < 64 ? low >> UInt64(byte) & 1 == 1 : byte < 128 && high >> UInt64(byte - 64) & 1 == 1
    }

    @inline(__always)
    static func isDigit(_ byte: UInt8) -> Bool { byte >= 0x30 && byte <= 0x39 }

    @inline(__always)
    static func hexValue(_ byte: UInt8) -> Int? {
        switch byte {
        case 0x30...0x39: Int(byte - 0x30)
        case 0x41...0x46: Int(byte - 0x41 + 10)
        case 0x61...0x66: Int(byte - 0x61 + 10)
        default: nil
        }
    }

    @inline(__always)
    static func lowercased(_ byte: UInt8) -> UInt8 { byte >= 0x41 && byte <= 0x5a ? byte | 0x20 : byte }

    /// Equality of bytes and a lower-case word, whatever the case of the bytes.
    @inline(__always)
    static func equals(_ bytes: Span<UInt8>, _ lowercaseWord: StaticString) -> Bool {
        guard bytes.count == lowercaseWord.utf8CodeUnitCount else { return false }
        return lowercaseWord.withUTF8Buffer { word in
            for index in 0..<bytes.count where lowercased(bytes[index]) != word[index] { return false }
            return true
        }
    }
}
