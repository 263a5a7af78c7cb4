/// Hexadecimal text.
package enum Hex {
    /// Lower-case hexadecimal, two characters a byte.
    package static func encode(_ bytes: some Collection<UInt8>) -> String {
        bytes.withContiguousStorageIfAvailable { encode(contiguous: $0) }
            ?? Array(bytes).withUnsafeBufferPointer { encode(contiguous: $0) }
    }

    static func encode(contiguous bytes: UnsafeBufferPointer<UInt8>) -> String {
        String(unsafeUninitializedCapacity: 2 * bytes.count) { buffer in
            for index in 0..<bytes.count {
                buffer[2 * index] = digit(bytes[index] >> 4)
                buffer[2 * index + 1] = digit(bytes[index] & 15)
            }
            return 2 * bytes.count
        }
    }

    /// Appends the characters of the first bytes.
    /// - Parameter count: at most the number of bytes.
    package static func append(firstOf bytes: [UInt8], count: Int, to text: inout [UInt8]) {
        for index in 0..<count {
            text.append(digit(bytes[index] >> 4))
            text.append(digit(bytes[index] & 15))
        }
    }

    /// The character of a value below 16.
    @inline(__always)
    static func digit(_ value: UInt8) -> UInt8 { value < 10 ? 0x30 + value : 0x57 + value }

    /// The bytes of hexadecimal text in either case; nil for an odd length or a foreign character.
    package static func decode(_ text: some StringProtocol) -> [UInt8]? {
        let characters = Array(text.utf8)
        guard characters.count % 2 == 0 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(characters.count / 2)
        for index in stride(from: 0, to: characters.count, by: 2) {
            guard let high = nibble(characters[index]), let low = nibble(characters[index + 1]) else { return nil }
            bytes.append(high << 4 | low)
        }
        return bytes
    }

    private static func nibble(_ character: UInt8) -> UInt8? {
        switch character {
        case 0x30...0x39: character - 0x30
        case 0x41...0x46: character - 0x41 + 10
        case 0x61...0x66: character - 0x61 + 10
        default: nil
        }
    }
}
