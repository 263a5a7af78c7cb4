/// Reads the usual head in one go where all of it lies in one buffer: eight bytes at a time, and nothing is copied
/// before it is known to be good.
///
/// It knows only heads that `HTTPRequestParser` takes, and not all of these: for anything rare, broken, cut off or past
/// a limit it says nil, and the parser reads the same bytes one by one. So it can't decide otherwise than the parser,
/// and needs no error of its own.
struct HTTPHeadScanner {
    /// What the head says.
    struct Finding {
        var head: HTTPRequestHead
        var contentLength: Int?
        var wantsClose: Bool
        /// Where the body starts.
        var end: Int
    }

    private struct RequestLine {
        var method: HTTPMethod
        var targetStart: Int
        var targetEnd: Int
    }

    private struct Framing {
        var hasHost = false
        var contentLength: Int?
        var wantsClose = false
    }

    /// Fields beyond this many are rare enough to be read byte by byte.
    private static let mostFields = 24
    /// Digits that can't overflow 64 bits.
    private static let mostLengthDigits = 18

    /// Bounds-checked by `word(at:)` and `byte(at:)`, through which every read goes.
    private let bytes: UnsafeRawBufferPointer

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    /// - Returns: nil when the head is for the parser to read.
    func scan(limits: HTTPServerConfiguration) -> Finding? {
        withUnsafeTemporaryAllocation(of: HTTPHeaders.Field.self, capacity: Self.mostFields) { fields in
            scan(limits, fields)
        }
    }

    @inline(__always)
    private func scan(
        _ limits: HTTPServerConfiguration, _ fields: UnsafeMutableBufferPointer<HTTPHeaders.Field>
    ) -> Finding? {
        guard let line = requestLine(), line.targetEnd + 9 <= limits.maxRequestLineBytes else { return nil }
        let headerStart = line.targetEnd + 11
        let mostFields = min(fields.count, limits.maxHeaders)
        var framing = Framing()
        var count = 0
        var index = headerStart
        while byte(at: index) != ASCII.carriageReturn {
            guard count < mostFields, let field = field(at: &index), note(field, &framing) else { return nil }
            fields.initializeElement(at: count, to: field)
            count += 1
        }
        let end = index + 2
        guard byte(at: index + 1) == ASCII.lineFeed, framing.hasHost, end - headerStart <= limits.maxHeaderBytes else {
            return nil
        }
        // The usual way to make an array of uninitialized memory is not specialized, and costs as much as all the rest.
        var storage = Array(UnsafeBufferPointer(rebasing: bytes.assumingMemoryBound(to: UInt8.self)[..<end]))
        let found = UnsafeBufferPointer(rebasing: fields[..<count])
        storage.withUnsafeMutableBytes { Self.lowercase(found, in: $0) }
        return Finding(
            head: HTTPRequestHead(
                method: line.method, headers: HTTPHeaders(storage: storage, fields: Array(found)),
                path: line.targetStart..<line.targetEnd, query: nil, isHTTP10: false),
            contentLength: framing.contentLength, wantsClose: framing.wantsClose, end: end)
    }

    /// "POST" or "GET", a path without query and escapes, HTTP/1.1.
    @inline(__always)
    private func requestLine() -> RequestLine? {
        let start: Int
        let method: HTTPMethod
        let first = word(at: 0)
        if first & 0xff_ffff_ffff == 0x20_5453_4f50 {
            (method, start) = (.post, 5)
        } else if first & 0xffff_ffff == 0x2054_4547 {
            (method, start) = (.get, 4)
        } else {
            return nil
        }
        guard byte(at: start) == 0x2f else { return nil }
        var index = start
        while true {
            let word = word(at: index)
            let stop =
                Self.below(0x21, word) | Self.atLeast127(word) | Self.equal(ASCII.questionMark, word)
                | Self.equal(ASCII.percent, word) | Self.equal(0x23, word)
            if stop & Self.highs == 0 {
                index += 8
                continue
            }
            index += (stop & Self.highs).trailingZeroBitCount >> 3
            break
        }
        // " HTTP/1." and "1\r\n".
        guard word(at: index) == 0x2e31_2f50_5454_4820, word(at: index + 8) & 0xff_ffff == 0x0a_0d31 else {
            return nil
        }
        return RequestLine(method: method, targetStart: start, targetEnd: index)
    }

    /// One field line, whose name is of letters, digits and "-" alone and whose value has no tab.
    @inline(__always)
    private func field(at index: inout Int) -> HTTPHeaders.Field? {
        let nameStart = index
        var stop: UInt64
        repeat {
            stop = Self.notInName(word(at: index))
            index += stop == 0 ? 8 : stop.trailingZeroBitCount >> 3
        } while stop == 0
        let nameEnd = index
        guard nameEnd > nameStart, byte(at: index) == ASCII.colon else { return nil }
        index += 1
        while byte(at: index) == ASCII.space { index += 1 }
        let valueStart = index
        repeat {
            let word = word(at: index)
            stop = (Self.below(0x20, word) | Self.equal(0x7f, word)) & Self.highs
            index += stop == 0 ? 8 : stop.trailingZeroBitCount >> 3
        } while stop == 0
        guard byte(at: index) == ASCII.carriageReturn, byte(at: index + 1) == ASCII.lineFeed else { return nil }
        var valueEnd = index
        while valueEnd > valueStart, byte(at: valueEnd - 1) == ASCII.space { valueEnd -= 1 }
        index += 2
        return HTTPHeaders.Field(
            nameStart: UInt32(truncatingIfNeeded: nameStart), nameEnd: UInt32(truncatingIfNeeded: nameEnd),
            valueStart: UInt32(truncatingIfNeeded: valueStart), valueEnd: UInt32(truncatingIfNeeded: valueEnd))
    }

    /// Looks at the fields that say where the message ends and whom it is for.
    /// - Returns: false when the field is for the parser to judge.
    @inline(__always)
    private func note(_ field: HTTPHeaders.Field, _ framing: inout Framing) -> Bool {
        let start = Int(field.nameStart)
        let value = Int(field.valueStart)..<Int(field.valueEnd)
        // A name has no byte that this bit changes but capitals.
        let lower: UInt64 = 0x2020_2020_2020_2020
        switch field.nameEnd - field.nameStart {
        case 4 where UInt32(truncatingIfNeeded: word(at: start) | lower) == 0x7473_6f68:  // host
            guard !framing.hasHost, !value.isEmpty else { return false }
            for index in value where !ASCII.isHost(byte(at: index)) { return false }
            framing.hasHost = true
        case 10
        where word(at: start) | lower == 0x6974_6365_6e6e_6f63 && word(at: start + 2) | lower == 0x6e6f_6974_6365_6e6e:
            // connection
            if value.count == 5, isAll(value.lowerBound, "close") {
                framing.wantsClose = true
            } else if value.count != 10 || !isAll(value.lowerBound, "keep-alive") {
                return false
            }
        case 14
        where word(at: start) | lower == 0x2d74_6e65_746e_6f63 && word(at: start + 6) | lower == 0x6874_676e_656c_2d74:
            // content-length
            guard framing.contentLength == nil, !value.isEmpty, value.count <= Self.mostLengthDigits else {
                return false
            }
            var length = 0
            for index in value {
                let digit = byte(at: index) &- ASCII.zero
                guard digit < 10 else { return false }
                length = length &* 10 &+ Int(digit)
            }
            framing.contentLength = length
        // Expect and Transfer-Encoding, and whatever looks like them.
        case 6 where UInt32(truncatingIfNeeded: word(at: start) | lower) == 0x6570_7865: return false  // expe
        case 17 where word(at: start) | lower == 0x7265_6673_6e61_7274: return false  // transfer
        default: break
        }
        return true
    }

    /// Whether a word stands there, whatever the case of its letters.
    private func isAll(_ start: Int, _ lowercaseWord: StaticString) -> Bool {
        lowercaseWord.withUTF8Buffer { word in
            for index in 0..<word.count where ASCII.lowercased(byte(at: start + index)) != word[index] { return false }
            return true
        }
    }

    /// 0 past the end, which no head has.
    @inline(__always)
    private func byte(at index: Int) -> UInt8 { index < bytes.count ? bytes[index] : 0 }

    /// Eight bytes, the first of them the lowest; zeros past the end.
    @inline(__always)
    private func word(at index: Int) -> UInt64 {
        if index &+ 8 <= bytes.count {
            return UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self))
        }
        return lastWord(at: index)
    }

    @inline(never)
    private func lastWord(at index: Int) -> UInt64 {
        var word: UInt64 = 0
        for place in 0..<8 { word |= UInt64(byte(at: index + place)) << UInt64(8 * place) }
        return word
    }
}

// MARK: - Eight bytes at once: the high bit of a byte says that it is of the class.

extension HTTPHeadScanner {
    private static let ones: UInt64 = 0x0101_0101_0101_0101
    private static let highs: UInt64 = 0x8080_8080_8080_8080

    /// Bytes below a bound; may also say so of one behind such a byte, so that only the first counts.
    @inline(__always)
    private static func below(_ bound: UInt8, _ word: UInt64) -> UInt64 { (word &- ones &* UInt64(bound)) & ~word }

    /// The same for bytes that are one.
    @inline(__always)
    private static func equal(_ byte: UInt8, _ word: UInt64) -> UInt64 { below(1, word ^ (ones &* UInt64(byte))) }

    /// The same for DEL and what is no ASCII.
    @inline(__always)
    private static func atLeast127(_ word: UInt64) -> UInt64 { word | (word &+ ones) }

    /// The bytes that are no letter, digit or "-", exactly: sums of seven bits don't carry.
    @inline(__always)
    private static func notInName(_ word: UInt64) -> UInt64 {
        let low = word & ~highs
        let folded = low | (ones &* 0x20)
        let letter = (folded &+ ones &* (0x80 - 0x61)) & ~(folded &+ ones &* (0x80 - 0x7b))
        let digit = (low &+ ones &* (0x80 - 0x30)) & ~(low &+ ones &* (0x80 - 0x3a))
        let dash = ~((low ^ (ones &* 0x2d)) &+ ones &* 0x7f)
        return ~((letter | digit | dash) & ~word) & highs
    }

    /// Puts names into lower case that were found to be of letters, digits and "-" alone.
    @inline(__always)
    private static func lowercase(
        _ fields: UnsafeBufferPointer<HTTPHeaders.Field>, in storage: UnsafeMutableRawBufferPointer
    ) {
        for field in fields {
            var index = Int(field.nameStart)
            let end = Int(field.nameEnd)
            while index < end, index + 8 <= storage.count {
                let word = UInt64(littleEndian: storage.loadUnaligned(fromByteOffset: index, as: UInt64.self))
                let left = end - index
                // Of these, letters alone have this bit.
                let letters = word & (ones &* 0x40) & (left < 8 ? (1 &<< UInt64(8 &* left)) &- 1 : ~0)
                storage.storeBytes(of: (word | letters >> 1).littleEndian, toByteOffset: index, as: UInt64.self)
                index += 8
            }
            while index < end {
                storage[index] = ASCII.lowercased(storage[index])
                index += 1
            }
        }
    }
}
