/// The checks on field texts that requests, payloads and operators' commands share. All look at UTF-8 bytes or scalars,
/// never at Swift's canonical equivalence.
package enum TextRules {
    /// 1 to 255 bytes, no control character, not only white space, none of the refused words.
    package static func isUserID(_ text: String) -> Bool { text.withUTF8Bytes(isUserID) }

    /// The same of valid UTF-8, as the others that take bytes.
    static func isUserID(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        guard let first = bytes.first, bytes.count <= SDKLimits.appUserIDBytes && !hasControl(bytes) else {
            return false
        }
        // Most ids start with a visible ASCII character.
        if first <= 0x20 || first >= 0x80 {
            let scalars = String(decoding: bytes, as: UTF8.self).unicodeScalars
            guard scalars.contains(where: { !$0.properties.isWhitespace }) else { return false }
        }
        return !refusedUserIDs.contains(bytes) { $0 }
    }

    /// True for ids that are taken but look like a default. Compared without regard to the case of ASCII letters.
    static func isOddUserID(_ text: String) -> Bool { text.withUTF8Bytes(isOddUserID) }

    static func isOddUserID(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        oddUserIDs.contains(bytes) { $0 >= UInt8(ascii: "A") && $0 <= UInt8(ascii: "Z") ? $0 | 0x20 : $0 }
    }

    private static let refusedUserIDs = WordList(SDKLimits.refusedUserIDs)
    private static let oddUserIDs = WordList(SDKLimits.oddUserIDs)

    /// 1 to 255 of `[A-Za-z0-9._-]`, a letter or digit first.
    package static func isBundleID(_ text: String) -> Bool { text.withUTF8Bytes(isBundleID) }

    static func isBundleID(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        guard let first = bytes.first, isAlphanumeric(first), bytes.count <= SDKLimits.bundleIDBytes else {
            return false
        }
        for byte in bytes where !isBundleByte(byte) { return false }
        return true
    }

    /// Letters, digits and "-._", as two bit maps over the ASCII range.
    private static func isBundleByte(_ byte: UInt8) -> Bool {
        let low: UInt64 = 0x03ff_6000_0000_0000
        let high: UInt64 = 0x07ff_fffe_87ff_fffe
        return byte < 64 ? low >> UInt64(byte) & 1 == 1 : byte < 128 && high >> UInt64(byte - 64) & 1 == 1
    }

    /// 1 to 4,096 bytes without white space or control characters.
    package static func isOriginalTransactionID(_ text: String) -> Bool { text.withUTF8Bytes(isOriginalTransactionID) }

    static func isOriginalTransactionID(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        guard !bytes.isEmpty && bytes.count <= SDKLimits.originalTransactionIDBytes else { return false }
        if bytes.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) { return true }
        return !hasControl(bytes)
            && !String(decoding: bytes, as: UTF8.self).unicodeScalars.contains { $0.properties.isWhitespace }
    }

    /// 1 to 255 bytes.
    package static func isProductID(_ text: String) -> Bool { text.withUTF8Bytes(isProductID) }

    static func isProductID(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        !bytes.isEmpty && bytes.count <= SDKLimits.productIDBytes
    }

    static func isDeviceField(_ text: String) -> Bool { text.withUTF8Bytes(isDeviceField) }

    static func isDeviceField(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        if bytes.count <= SDKLimits.deviceFieldScalars { return true }
        // Every scalar has one byte that is no continuation byte.
        return bytes.lazy.filter { $0 & 0xc0 != 0x80 }.count <= SDKLimits.deviceFieldScalars
    }

    static func isPlatform(_ text: String) -> Bool { text.withUTF8Bytes(isPlatform) }

    static func isPlatform(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool { same(bytes, "ios") || same(bytes, "android") }

    /// Three parts of base64url with dots between, no padding, none empty; at most 16 KiB.
    static func isJWS(_ text: String) -> Bool { text.withUTF8Bytes(isJWS) }

    static func isJWS(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        guard bytes.count <= SDKLimits.jwsBytes else { return false }
        var parts = 1
        var length = 0
        for byte in bytes {
            if byte == UInt8(ascii: ".") {
                guard isBase64URLLength(length) else { return false }
                parts += 1
                length = 0
            } else {
                guard isBase64URL(byte) else { return false }
                length += 1
            }
        }
        return parts == 3 && isBase64URLLength(length)
    }

    /// Two or three letters of ASCII.
    static func isStorefront(_ text: String) -> Bool { text.withUTF8Bytes(isStorefront) }

    static func isStorefront(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        (2...3).contains(bytes.count) && bytes.allSatisfy { isAlphanumeric($0) && !isDigit($0) }
    }

    /// The id by which an install is told from others: one of UUID shape in upper case, any other as it is. Phones
    /// print UUIDs in upper case, and much of what forwards them does not.
    package static func foldedInstallID(_ text: String) -> String {
        let groups = text.utf8.split(separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
        guard groups.map(\.count) == [8, 4, 4, 4, 12], groups.joined().allSatisfy(isHexDigit) else { return text }
        return text.uppercased()
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool {
        isDigit(byte) || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte | 0x20)
    }

    /// `word` characters of lower case, digits and `_`, at most 64: the fixed words for refused signatures.
    static func isRefusalReason(_ text: String) -> Bool {
        !text.utf8.isEmpty && text.utf8.count <= SDKLimits.refusalReasonBytes
            && text.utf8.allSatisfy { isLowerAlphanumeric($0) || $0 == UInt8(ascii: "_") }
    }

    static func isDeviceID(_ text: String) -> Bool {
        !text.utf8.isEmpty && text.utf8.count <= SDKLimits.deviceIDBytes && text.utf8.allSatisfy { isBase64URL($0) }
    }

    static func isLowerHex(_ text: String, count: Int) -> Bool {
        text.utf8.count == count
            && text.utf8.allSatisfy { isDigit($0) || ($0 >= UInt8(ascii: "a") && $0 <= UInt8(ascii: "f")) }
    }

    static func isAllDigits(_ text: String) -> Bool { text.utf8.allSatisfy(isDigit) }

    static func isDigit(_ byte: UInt8) -> Bool { byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9") }

    static func isLowerAlphanumeric(_ byte: UInt8) -> Bool {
        isDigit(byte) || (byte >= UInt8(ascii: "a") && byte <= UInt8(ascii: "z"))
    }

    static func isAlphanumeric(_ byte: UInt8) -> Bool {
        isLowerAlphanumeric(byte) || (byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z"))
    }

    static func isBase64URL(_ byte: UInt8) -> Bool {
        isAlphanumeric(byte) || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_")
    }

    /// Four characters carry three bytes; one character alone over that carries none.
    private static func isBase64URLLength(_ length: Int) -> Bool { length > 0 && length % 4 != 1 }

    /// C0, DEL and C1 (in UTF-8: C2 80 to C2 9F).
    static func hasControl(_ text: String) -> Bool { text.withUTF8Bytes(hasControl) }

    static func hasControl(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        var index = 0
        let raw = UnsafeRawBufferPointer(bytes)
        // Eight bytes at once, as long as all are visible ASCII or spaces.
        while index + 8 <= raw.count {
            let word = raw.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            let ones: UInt64 = 0x0101_0101_0101_0101
            guard ((word &- ones &* 0x20) | word | (word &+ ones)) & (ones &* 0x80) == 0 else { break }
            index += 8
        }
        var before: UInt8 = 0
        while index < bytes.count {
            let byte = bytes[index]
            if byte < 0x20 || byte == 0x7f || (before == 0xc2 && byte < 0xa0) { return true }
            before = byte
            index += 1
        }
        return false
    }

    static func same(_ a: String, _ b: String) -> Bool {
        guard a.utf8.count == b.utf8.count else { return false }
        return a.withUTF8Bytes { a in b.withUTF8Bytes { b in a.elementsEqual(b) } }
    }

    private static func same(_ bytes: UnsafeBufferPointer<UInt8>, _ word: StaticString) -> Bool {
        bytes.count == word.utf8CodeUnitCount && word.withUTF8Buffer { bytes.elementsEqual($0) }
    }
}

/// Words that few texts are: a look at the length tells most apart.
private struct WordList: Sendable {
    /// By their length.
    private let words: [[[UInt8]]]

    init(_ words: [String]) {
        var byLength = [[[UInt8]]](repeating: [], count: (words.map(\.utf8.count).max() ?? 0) + 1)
        for word in words { byLength[word.utf8.count].append(Array(word.utf8)) }
        self.words = byLength
    }

    /// Whether the bytes, each folded, are one of the words.
    @inline(__always)
    func contains(_ bytes: UnsafeBufferPointer<UInt8>, folded: (UInt8) -> UInt8) -> Bool {
        guard bytes.count < words.count else { return false }
        let sameLength = words[bytes.count]
        next: for place in sameLength.indices {
            for index in 0..<bytes.count where folded(bytes[index]) != sameLength[place][index] { continue next }
            return true
        }
        return false
    }
}

extension String {
    /// Lends the UTF-8 as one buffer, which loops over far faster than `utf8` does.
    fileprivate func withUTF8Bytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
        if let result = utf8.withContiguousStorageIfAvailable(body) { return result }
        var copy = self
        return copy.withUTF8(body)
    }
}
