/// The grammar of the requests this server takes, as a state machine over bytes: a strict subset of RFC 9112.
///
/// It does no I/O, reads no clock and never traps on what it is fed. Every transition depends on the bytes so far and
/// on nothing else, so that the outcome is the same however they were split. After a failure it takes no more bytes.
///
/// Where the RFC leaves a choice, the stricter one is made, because a proxy in front may have made the other:
/// - lines end in CRLF; a bare CR or LF is an error. One empty line before a request is skipped (§2.2).
/// - one space between the parts of the request line; the target is a path with an optional query. Absolute-form is
///   for proxies and "*" for nobody here; both are refused.
/// - HTTP/1.1 needs exactly one Host, HTTP/1.0 at most one.
/// - a body has one Content-Length of digits alone, or "Transfer-Encoding: chunked" alone and not in HTTP/1.0.
/// - no folding, no space before the colon, no control byte in a value.
package struct HTTPRequestParser: Sendable {
    /// What the bytes so far amount to.
    package enum Step: Sendable {
        /// All bytes were taken and the request is not complete.
        case needsMore
        /// One request is complete. Bytes after it were not touched.
        case request(HTTPRequestHead, body: [UInt8])
        /// The connection can't go on: where the next request starts is not known for sure.
        case failure(HTTPFailure)
    }

    private enum State: Sendable {
        // The empty line that may come before a request.
        case start, startLineFeed, startAgain
        // "METHOD target HTTP/1.1" CRLF
        case method, target, version, requestLineFeed
        // name ":" OWS value OWS CRLF, and the empty line.
        case fieldStart, fieldName, fieldValueStart, fieldValue, fieldLineFeed, headLineFeed
        case fixedBody
        // size [";" extension] CRLF data CRLF
        case chunkSizeStart, chunkSize, chunkExtension, chunkSizeLineFeed
        case chunkData, chunkDataReturn, chunkDataLineFeed
        case trailerStart, trailerName, trailerValue, trailerLineFeed, trailerEndLineFeed
        case failed
    }

    /// RFC 9112 §3 asks for 501 when a method is longer than any known; the longest registered has 17 bytes.
    private static let maxMethodBytes = 32
    /// What a version and the end of its line look like; "0" stands for any digit.
    private static let versionPattern = Array("HTTP/0.0\r".utf8)
    /// Digits of a chunk size, leading zeros included: what 64 bits need.
    private static let maxChunkSizeDigits = 16
    /// Bodies up to here get their whole buffer at once; larger ones grow with what really arrives.
    private static let maxReservedBytes = 64 * 1024
    /// What a head's buffer starts with: the usual request fits without growing it.
    private static let headCapacity = 512
    private static let fieldCapacity = 12

    private let limits: HTTPServerConfiguration
    private var state = State.start
    private var failure: HTTPFailure?

    // The head being read. Ranges point into `storage`.
    private var storage: [UInt8] = []
    private var fields: [HTTPHeaders.Field] = []
    private var method: HTTPMethod?
    private var targetStart = 0
    private var targetEnd = 0
    private var queryMark = -1
    private var hasEscape = false
    private var lineBytes = 0
    private var headerBytes = 0
    private var versionBytes = 0
    private var major: UInt8 = 0
    private var minor: UInt8 = 0
    private var nameStart = 0
    private var nameEnd = 0
    private var valueStart = 0
    private var valueEnd = 0
    private var hasTab = false
    private var hasHost = false
    private var isChunked = false
    private var contentLength: Int?
    private var expectsContinue = false
    private var expectsOther = false
    private var wantsClose = false

    // The body being read.
    private var body: [UInt8] = []
    private var bodyLimit = 0
    private var remaining = 0
    private var chunkSizeDigits = 0
    private var extensionBytes = 0
    private var trailerBytes = 0
    private var continueIsDue = false

    /// The head of the request whose body is being read.
    package private(set) var head: HTTPRequestHead?
    /// Whether the request last completed asked for the connection to end after its answer.
    package private(set) var shouldClose = false

    /// - Parameter limits: only the limits of one request are used.
    package init(limits: HTTPServerConfiguration = HTTPServerConfiguration()) {
        self.limits = limits
    }

    /// True when no byte of a next request has come: the connection may be closed without cutting one off.
    package var isBetweenRequests: Bool {
        switch state {
        case .start, .startLineFeed, .startAgain: true
        default: false
        }
    }

    /// True once per request, when its head asked for "100 Continue" and no byte of the body has come yet.
    package mutating func takeContinue() -> Bool {
        defer { continueIsDue = false }
        return continueIsDue
    }

    /// Reads on from `offset`, and moves it behind the bytes taken.
    /// - Parameter bodyLimit: asked once per head for the most bytes its body may have.
    package mutating func parse(
        _ input: Span<UInt8>, from offset: inout Int, bodyLimit limit: (HTTPRequestHead) -> Int
    ) -> Step {
        while offset < input.count {
            switch state {
            case .start, .startAgain:
                if takeWholeHead(input, &offset) {
                    if beginBody(limit) { return complete() }
                } else {
                    takeStart(input[offset], &offset)
                }
            case .startLineFeed: takeStart(input[offset], &offset)
            case .method: takeMethod(input, &offset)
            case .target: takeTarget(input, &offset)
            case .version: takeVersion(input[offset], &offset)
            case .requestLineFeed:
                if isLineFeed(input[offset], &offset) { endRequestLine() }
            case .fieldStart, .fieldName, .fieldValueStart, .fieldValue, .fieldLineFeed:
                takeField(input, &offset)
            case .headLineFeed:
                guard isHeaderByteAllowed(), isLineFeed(input[offset], &offset) else { break }
                if endHead(limit) { return complete() }
            case .fixedBody:
                takeBody(input, &offset)
                if remaining == 0 { return complete() }
            case .chunkSizeStart, .chunkSize, .chunkExtension, .chunkSizeLineFeed:
                takeChunkSize(input[offset], &offset)
            case .chunkData:
                takeBody(input, &offset)
                if remaining == 0 { state = .chunkDataReturn }
            case .chunkDataReturn:
                expect(ASCII.carriageReturn, input[offset], &offset, then: .chunkDataLineFeed)
            case .chunkDataLineFeed:
                expect(ASCII.lineFeed, input[offset], &offset, then: .chunkSizeStart)
            case .trailerStart, .trailerName, .trailerValue, .trailerLineFeed:
                takeTrailer(input[offset], &offset)
            case .trailerEndLineFeed:
                if isLineFeed(input[offset], &offset) { return complete() }
            case .failed: break
            }
            if let failure { return .failure(failure) }
        }
        if let failure { return .failure(failure) }
        return .needsMore
    }

    private mutating func fail(_ code: HTTPFailure.Code, _ message: String) {
        failure = HTTPFailure(code, message)
        state = .failed
        continueIsDue = false
    }

    private mutating func malformed(_ message: String) { fail(.malformedRequest, message) }

    private mutating func expect(_ wanted: UInt8, _ byte: UInt8, _ offset: inout Int, then next: State) {
        guard byte == wanted else { return malformed("a chunk does not end where its size says") }
        offset += 1
        state = next
    }

    /// Takes the LF that a CR announced.
    private mutating func isLineFeed(_ byte: UInt8, _ offset: inout Int) -> Bool {
        guard byte == ASCII.lineFeed else {
            malformed("a carriage return without a line feed")
            return false
        }
        offset += 1
        return true
    }

    /// Hands the request out and makes ready for the next.
    private mutating func complete() -> Step {
        guard let complete = head else {
            malformed("a request without a head")
            return .failure(HTTPFailure(.malformedRequest, "a request without a head"))
        }
        shouldClose = wantsClose || complete.isHTTP10
        let content = body
        body = []
        head = nil
        continueIsDue = false
        state = .start
        return .request(complete, body: content)
    }
}

// MARK: - The request line

extension HTTPRequestParser {
    private mutating func takeStart(_ byte: UInt8, _ offset: inout Int) {
        switch (state, byte) {
        case (.start, ASCII.carriageReturn):
            offset += 1
            state = .startLineFeed
        case (.startLineFeed, _):
            if isLineFeed(byte, &offset) { state = .startAgain }
        default:
            beginHead()
            state = .method
        }
    }

    /// Takes the head at once where the scanner can.
    private mutating func takeWholeHead(_ input: Span<UInt8>, _ offset: inout Int) -> Bool {
        let rest = input.extracting(offset..<input.count)
        let limits = limits
        let found = rest.withUnsafeBytes { bytes in HTTPHeadScanner(bytes).scan(limits: limits) }
        guard let found else { return false }
        contentLength = found.contentLength
        wantsClose = found.wantsClose
        isChunked = false
        expectsContinue = false
        extensionBytes = 0
        trailerBytes = 0
        head = found.head
        offset += found.end
        return true
    }

    private mutating func beginHead() {
        storage = []
        storage.reserveCapacity(Self.headCapacity)
        fields = []
        fields.reserveCapacity(Self.fieldCapacity)
        method = nil
        queryMark = -1
        hasEscape = false
        lineBytes = 0
        headerBytes = 0
        versionBytes = 0
        hasHost = false
        isChunked = false
        contentLength = nil
        expectsContinue = false
        expectsOther = false
        wantsClose = false
        extensionBytes = 0
        trailerBytes = 0
    }

    private mutating func isLineByteAllowed() -> Bool {
        guard lineBytes < limits.maxRequestLineBytes else {
            fail(.targetTooLong, "the request line is longer than \(limits.maxRequestLineBytes) bytes")
            return false
        }
        lineBytes += 1
        return true
    }

    private mutating func takeMethod(_ input: Span<UInt8>, _ offset: inout Int) {
        while offset < input.count {
            let byte = input[offset]
            if byte == ASCII.space, !storage.isEmpty {
                guard isLineByteAllowed() else { return }
                offset += 1
                method = HTTPMethod(storage.span)
                targetStart = storage.count
                state = .target
                return
            }
            guard ASCII.isToken(byte) else { return malformed("the request line does not start with a method") }
            guard storage.count < Self.maxMethodBytes else {
                return fail(.methodNotImplemented, "no such method")
            }
            guard isLineByteAllowed() else { return }
            storage.append(byte)
            offset += 1
        }
    }

    private mutating func takeTarget(_ input: Span<UInt8>, _ offset: inout Int) {
        while offset < input.count {
            let byte = input[offset]
            if byte == ASCII.space, storage.count > targetStart {
                guard isLineByteAllowed() else { return }
                offset += 1
                targetEnd = storage.count
                state = .version
                return
            }
            guard ASCII.isTarget(byte) else { return malformed("a byte that no request target may have") }
            guard isLineByteAllowed() else { return }
            let stop = offset + 1 + min(input.count - offset - 1, limits.maxRequestLineBytes - lineBytes)
            var end = offset + 1
            while end < stop, ASCII.isTarget(input[end]) { end += 1 }
            lineBytes += end - offset - 1
            for index in offset..<end where queryMark < 0 {
                if input[index] == ASCII.questionMark { queryMark = storage.count + index - offset }
                if input[index] == ASCII.percent { hasEscape = true }
            }
            input.extracting(offset..<end).withUnsafeBufferPointer { storage.append(contentsOf: $0) }
            offset = end
        }
    }

    /// "HTTP/" DIGIT "." DIGIT and the CR, a byte at a time.
    private mutating func takeVersion(_ byte: UInt8, _ offset: inout Int) {
        let expected = Self.versionPattern[versionBytes]
        if expected == ASCII.zero {
            guard ASCII.isDigit(byte) else { return malformed("no HTTP version") }
            if versionBytes == 5 { major = byte } else { minor = byte }
        } else if byte != expected {
            return malformed("no HTTP version")
        }
        // The CR is no part of the line; the state leaves before the pattern's end is passed.
        if byte == ASCII.carriageReturn {
            state = .requestLineFeed
        } else if !isLineByteAllowed() {
            return
        }
        versionBytes += 1
        offset += 1
    }

    private mutating func endRequestLine() {
        guard major == 0x31, minor == 0x30 || minor == 0x31 else {
            return fail(.versionNotSupported, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        }
        guard method != nil else { return fail(.methodNotImplemented, "no such method") }
        guard storage[targetStart] == 0x2f else { return malformed("the request target is not a path") }
        guard !hasEscape || isPathDecodable else { return malformed("a path with a broken escape") }
        state = .fieldStart
    }

    /// Whether every "%" of the path begins an escape, and none of them stands for NUL: proxies decode paths, and
    /// disagree about what else to make of them.
    private var isPathDecodable: Bool {
        let path = storage[targetStart..<(queryMark < 0 ? targetEnd : queryMark)]
        var rest = path
        while let mark = rest.firstIndex(of: ASCII.percent) {
            guard mark + 2 < path.endIndex, let high = ASCII.hexValue(path[mark + 1]),
                let low = ASCII.hexValue(path[mark + 2]), high + low > 0
            else { return false }
            rest = path[(mark + 3)...]
        }
        return true
    }
}

// MARK: - Field lines

extension HTTPRequestParser {
    private mutating func isHeaderByteAllowed() -> Bool {
        guard headerBytes < limits.maxHeaderBytes else {
            fail(.headerTooLarge, "the header is larger than \(limits.maxHeaderBytes) bytes")
            return false
        }
        headerBytes += 1
        return true
    }

    private mutating func takeField(_ input: Span<UInt8>, _ offset: inout Int) {
        while offset < input.count {
            let byte = input[offset]
            guard isHeaderByteAllowed() else { return }
            switch state {
            case .fieldStart:
                if byte == ASCII.carriageReturn {
                    state = .headLineFeed
                    offset += 1
                    return
                }
                guard ASCII.isToken(byte) else { return malformed("a field line without a name") }
                guard fields.count < limits.maxHeaders else {
                    return fail(.headerTooLarge, "more than \(limits.maxHeaders) header fields")
                }
                nameStart = storage.count
                storage.append(ASCII.lowercased(byte))
                state = .fieldName
            case .fieldName:
                if ASCII.isToken(byte) {
                    let start = storage.count
                    offset = takeRun(input, from: offset, while: ASCII.isToken)
                    for index in start..<storage.count { storage[index] = ASCII.lowercased(storage[index]) }
                    continue
                } else if byte == ASCII.colon {
                    nameEnd = storage.count
                    valueStart = nameEnd
                    valueEnd = nameEnd
                    hasTab = false
                    state = .fieldValueStart
                } else {
                    return malformed("a byte that no field name may have")
                }
            case .fieldValueStart:
                if byte == ASCII.space || byte == ASCII.tab {
                    hasTab = hasTab || byte == ASCII.tab
                    break
                }
                if byte == ASCII.carriageReturn {
                    state = .fieldLineFeed
                    break
                }
                guard ASCII.isFieldValue(byte) else { return malformed("a control byte in a field value") }
                storage.append(byte)
                valueEnd = storage.count
                state = .fieldValue
            case .fieldValue:
                if ASCII.isFieldText(byte) {
                    offset = takeRun(input, from: offset, while: ASCII.isFieldText)
                    valueEnd = storage.count
                    continue
                } else if byte == ASCII.carriageReturn {
                    state = .fieldLineFeed
                } else if byte == ASCII.space || byte == ASCII.tab {
                    hasTab = hasTab || byte == ASCII.tab
                    storage.append(byte)
                } else {
                    return malformed("a control byte in a field value")
                }
            default:
                guard byte == ASCII.lineFeed else { return malformed("a carriage return without a line feed") }
                endField()
                if failure != nil { return }
                state = .fieldStart
            }
            offset += 1
        }
    }

    /// Keeps a run of bytes of one class, no longer than the header may still grow. The first byte is known to belong
    /// to it and has been counted.
    /// - Returns: the offset behind the run.
    @inline(__always)
    private mutating func takeRun(_ input: Span<UInt8>, from start: Int, while belongs: (UInt8) -> Bool) -> Int {
        let stop = start + 1 + min(input.count - start - 1, limits.maxHeaderBytes - headerBytes)
        var end = start + 1
        while end < stop, belongs(input[end]) { end += 1 }
        headerBytes += end - start - 1
        input.extracting(start..<end).withUnsafeBufferPointer { storage.append(contentsOf: $0) }
        return end
    }

    private mutating func endField() {
        // Limits keep a head far below 4 GiB; clamping keeps even an absurd limit from trapping.
        fields.append(
            HTTPHeaders.Field(
                nameStart: UInt32(clamping: nameStart), nameEnd: UInt32(clamping: nameEnd),
                valueStart: UInt32(clamping: valueStart), valueEnd: UInt32(clamping: valueEnd)))
        switch nameEnd - nameStart {
        case 4 where isName("host"): takeFramingField { $0.takeHost($1) }
        case 6 where isName("expect"):
            if ASCII.equals(storage[valueStart..<valueEnd].span, "100-continue") {
                expectsContinue = true
            } else {
                expectsOther = true
            }
        case 10 where isName("connection"):
            for option in storage[valueStart..<valueEnd].split(separator: 0x2c)
            where ASCII.equals(Self.trimmed(option).span, "close") {
                wantsClose = true
            }
        case 14 where isName("content-length"): takeFramingField { $0.takeContentLength($1) }
        case 17 where isName("transfer-encoding"): takeFramingField { $0.takeTransferEncoding($1) }
        default: break
        }
    }

    private func isName(_ lowercaseWord: StaticString) -> Bool {
        ASCII.equals(storage.span.extracting(nameStart..<nameEnd), lowercaseWord)
    }

    /// The fields that say where a message ends and whom it is for. A tab beside their value is whitespace to the RFC
    /// and part of the value to some proxies, so it is refused.
    private mutating func takeFramingField(_ take: (inout Self, ArraySlice<UInt8>) -> Void) {
        guard !hasTab else { return malformed("a tab in a framing field") }
        take(&self, storage[valueStart..<valueEnd])
    }

    private mutating func takeTransferEncoding(_ value: ArraySlice<UInt8>) {
        guard !isChunked else { return malformed("two Transfer-Encoding fields") }
        guard ASCII.equals(value.span, "chunked") else {
            return malformed("the only Transfer-Encoding understood is chunked, alone")
        }
        isChunked = true
    }

    private static func trimmed(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        let isSpace: (UInt8) -> Bool = { $0 == ASCII.space || $0 == ASCII.tab }
        guard let first = bytes.firstIndex(where: { !isSpace($0) }),
            let last = bytes.lastIndex(where: { !isSpace($0) })
        else { return [] }
        return bytes[first...last]
    }

    private mutating func takeHost(_ value: ArraySlice<UInt8>) {
        guard !hasHost else { return malformed("two Host fields") }
        guard !value.isEmpty, value.allSatisfy(ASCII.isHost) else { return malformed("a Host that names no host") }
        hasHost = true
    }

    private mutating func takeContentLength(_ value: ArraySlice<UInt8>) {
        guard contentLength == nil else { return malformed("two Content-Length fields") }
        guard !value.isEmpty, value.allSatisfy(ASCII.isDigit) else {
            return malformed("a Content-Length that is not digits alone")
        }
        // A length past 64 bits is past every limit too: it saturates and is refused as too large.
        var length = 0
        for digit in value {
            let (product, tooLarge) = length.multipliedReportingOverflow(by: 10)
            let (sum, larger) = product.addingReportingOverflow(Int(digit - ASCII.zero))
            guard !tooLarge, !larger else {
                length = Int.max
                break
            }
            length = sum
        }
        contentLength = length
    }

    /// Judges the head as a whole.
    /// - Returns: true when the request is complete, for want of a body.
    private mutating func endHead(_ limit: (HTTPRequestHead) -> Int) -> Bool {
        let isHTTP10 = minor == 0x30
        guard let method else {
            malformed("a request without a method")
            return false
        }
        if !hasHost && !isHTTP10 {
            malformed("no Host field")
            return false
        }
        if isChunked && contentLength != nil {
            malformed("Content-Length beside Transfer-Encoding")
            return false
        }
        if isChunked && isHTTP10 {
            malformed("Transfer-Encoding in HTTP/1.0")
            return false
        }
        head = HTTPRequestHead(
            method: method, headers: HTTPHeaders(storage: storage, fields: fields),
            path: targetStart..<(queryMark < 0 ? targetEnd : queryMark),
            query: queryMark < 0 ? nil : (queryMark + 1)..<targetEnd, isHTTP10: isHTTP10)
        storage = []
        fields = []
        if expectsOther && !isHTTP10 {
            fail(.expectationFailed, "the only expectation met here is 100-continue")
            return false
        }
        return beginBody(limit)
    }

    /// Finds out how long the body is, once `head` is read.
    /// - Returns: true when the request is complete, for want of a body.
    private mutating func beginBody(_ limit: (HTTPRequestHead) -> Int) -> Bool {
        guard let head else { return false }
        bodyLimit = max(0, limit(head))
        if let contentLength, contentLength > bodyLimit {
            fail(.bodyTooLarge, "the body is larger than \(bodyLimit) bytes")
            return false
        }
        if isChunked {
            state = .chunkSizeStart
        } else {
            remaining = contentLength ?? 0
            if remaining == 0 { return true }
            state = .fixedBody
        }
        // RFC 9110 §10.1.1: a server ignores the expectation of an HTTP/1.0 client.
        continueIsDue = expectsContinue && !head.isHTTP10
        return false
    }
}

// MARK: - The body

extension HTTPRequestParser {
    private mutating func takeBody(_ input: Span<UInt8>, _ offset: inout Int) {
        let count = min(remaining, input.count - offset)
        if body.isEmpty {
            if count < remaining { body.reserveCapacity(min(remaining, Self.maxReservedBytes)) }
        }
        input.extracting(offset..<(offset + count)).withUnsafeBufferPointer {
            if body.isEmpty, count == remaining {
                body = Array($0)
            } else {
                body.append(contentsOf: $0)
            }
        }
        offset += count
        remaining -= count
        continueIsDue = false
    }

    private mutating func takeChunkSize(_ byte: UInt8, _ offset: inout Int) {
        continueIsDue = false
        switch state {
        case .chunkSizeStart, .chunkSize:
            if state == .chunkSizeStart {
                remaining = 0
                chunkSizeDigits = 0
            }
            if let digit = ASCII.hexValue(byte) {
                guard chunkSizeDigits < Self.maxChunkSizeDigits else { return malformed("a chunk size too long") }
                chunkSizeDigits += 1
                // `remaining` never passes the limit, so the product can't overflow below 2^59.
                let size = remaining.multipliedReportingOverflow(by: 16)
                guard !size.overflow, size.partialValue <= Int.max - 15,
                    size.partialValue + digit <= bodyLimit - body.count
                else { return fail(.bodyTooLarge, "the body is larger than \(bodyLimit) bytes") }
                remaining = size.partialValue + digit
                state = .chunkSize
            } else if state == .chunkSize, byte == ASCII.carriageReturn {
                state = .chunkSizeLineFeed
            } else if state == .chunkSize, byte == ASCII.semicolon {
                state = .chunkExtension
            } else {
                return malformed("a chunk size that is not hexadecimal digits")
            }
        case .chunkExtension:
            if byte == ASCII.carriageReturn {
                state = .chunkSizeLineFeed
            } else {
                guard ASCII.isFieldValue(byte) else { return malformed("a control byte in a chunk extension") }
                guard extensionBytes < limits.maxChunkExtensionBytes else {
                    return malformed("more than \(limits.maxChunkExtensionBytes) bytes of chunk extensions")
                }
                extensionBytes += 1
            }
        default:
            guard isLineFeed(byte, &offset) else { return }
            state = remaining == 0 ? .trailerStart : .chunkData
            return
        }
        offset += 1
    }

    /// Trailer fields obey the grammar of fields and are dropped: nothing here may be decided by what follows a body.
    private mutating func takeTrailer(_ byte: UInt8, _ offset: inout Int) {
        guard trailerBytes < limits.maxTrailerBytes else {
            return fail(.headerTooLarge, "the trailer is larger than \(limits.maxTrailerBytes) bytes")
        }
        switch state {
        case .trailerStart:
            if byte == ASCII.carriageReturn {
                state = .trailerEndLineFeed
            } else {
                guard ASCII.isToken(byte) else { return malformed("a field line without a name") }
                state = .trailerName
            }
        case .trailerName:
            if byte == ASCII.colon {
                state = .trailerValue
            } else {
                guard ASCII.isToken(byte) else { return malformed("a byte that no field name may have") }
            }
        case .trailerValue:
            if byte == ASCII.carriageReturn {
                state = .trailerLineFeed
            } else {
                guard ASCII.isFieldValue(byte) else { return malformed("a control byte in a field value") }
            }
        default:
            guard byte == ASCII.lineFeed else { return malformed("a carriage return without a line feed") }
            state = .trailerStart
        }
        trailerBytes += 1
        offset += 1
    }
}
