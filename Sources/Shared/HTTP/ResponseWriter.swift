/// Writes answers as bytes (RFC 9112 §4, §6), straight into a connection's output buffer.
struct ResponseWriter {
    /// "Date: …\r\n" of the second it was made for.
    private var dateLine: [UInt8] = []
    private var dateSecond = Int64.min

    /// Appends one answer.
    /// - Parameters:
    ///   - wallMicroseconds: now, for the Date field; its text is made once per second.
    ///   - closes: whether the answer announces the end of the connection.
    ///   - omitsBody: for HEAD: the length is told, the content is not sent.
    /// - Returns: false when the response can't be sent as HTTP; then nothing was appended.
    mutating func append(
        _ response: HTTPResponse, to output: inout [UInt8], wallMicroseconds: Int64, closes: Bool, omitsBody: Bool
    ) -> Bool {
        guard (200...599).contains(response.status) else { return false }
        let start = output.count
        output.append(contentsOf: StatusLine.bytes(response.status))
        if let block = response.block { output.append(contentsOf: block.lines) }
        for (name, value) in response.headers {
            guard Self.append(name, value, to: &output) else {
                output.removeSubrange(start...)
                return false
            }
        }
        // RFC 9110 §8.6 forbids the length in 204; in 304 it would have to be that of the 200.
        let isBodiless = response.status == 204 || response.status == 304
        if !isBodiless {
            Self.append("Content-Length: ", to: &output)
            Self.append(decimal: response.body.count, to: &output)
            Self.append("\r\n", to: &output)
        }
        let second = wallMicroseconds / 1_000_000
        if second != dateSecond {
            dateSecond = second
            dateLine = Array("Date: \(HTTPDate.text(secondsSince1970: second))\r\n".utf8)
        }
        output.append(contentsOf: dateLine)
        if closes { Self.append("Connection: close\r\n", to: &output) }
        Self.append("\r\n", to: &output)
        if !isBodiless && !omitsBody { output.append(contentsOf: response.body) }
        return true
    }

    /// Whether a handler's answer asks for the connection to end after it.
    static func asksToClose(_ response: HTTPResponse) -> Bool {
        for (name, value) in response.headers where name.utf8.count == 10 && value.utf8.count == 5 {
            if ASCII.equals(name.utf8.span, "connection") && ASCII.equals(value.utf8.span, "close") { return true }
        }
        return false
    }

    /// Fields that are the server's to write: a handler's word on framing could only be wrong.
    private static func isOwned(_ name: Span<UInt8>) -> Bool {
        switch name.count {
        case 4: ASCII.equals(name, "date")
        case 10: ASCII.equals(name, "connection") || ASCII.equals(name, "keep-alive")
        case 14: ASCII.equals(name, "content-length")
        case 17: ASCII.equals(name, "transfer-encoding")
        default: false
        }
    }

    /// Appends a field line, or nothing when it is the server's own.
    /// - Returns: false when it can't be sent; a part may have been appended.
    static func append(_ name: String, _ value: String, to output: inout [UInt8]) -> Bool {
        let name = name.utf8.span
        if isOwned(name) { return true }
        guard name.count > 0, append(name, to: &output, while: ASCII.isToken) else { return false }
        append(": ", to: &output)
        guard append(value.utf8.span, to: &output, while: ASCII.isFieldValue) else { return false }
        append("\r\n", to: &output)
        return true
    }

    @inline(__always)
    private static func append(
        _ bytes: Span<UInt8>, to output: inout [UInt8], while isAllowed: (UInt8) -> Bool
    ) -> Bool {
        for index in 0..<bytes.count where !isAllowed(bytes[index]) { return false }
        bytes.withUnsafeBufferPointer { output.append(contentsOf: $0) }
        return true
    }

    private static func append(_ text: StaticString, to output: inout [UInt8]) {
        text.withUTF8Buffer { output.append(contentsOf: $0) }
    }

    private static func append(decimal value: Int, to output: inout [UInt8]) {
        if value >= 10 { append(decimal: value / 10, to: &output) }
        output.append(ASCII.zero + UInt8(truncatingIfNeeded: value % 10))
    }
}

/// Status lines, made once.
enum StatusLine {
    /// "HTTP/1.1 200 OK\r\n" of a status from 200 to 599.
    static func bytes(_ status: Int) -> [UInt8] { lines[status - 200] }

    private static let lines: [[UInt8]] = (200...599).map { Array("HTTP/1.1 \($0) \(reason($0))\r\n".utf8) }

    /// The phrases of RFC 9110 §15; a status without one is sent with none, as §4 of RFC 9112 allows.
    private static func reason(_ status: Int) -> String {
        switch status {
        case 200: "OK"
        case 201: "Created"
        case 202: "Accepted"
        case 204: "No Content"
        case 301: "Moved Permanently"
        case 302: "Found"
        case 303: "See Other"
        case 304: "Not Modified"
        case 307: "Temporary Redirect"
        case 308: "Permanent Redirect"
        case 400: "Bad Request"
        case 401: "Unauthorized"
        case 403: "Forbidden"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 406: "Not Acceptable"
        case 408: "Request Timeout"
        case 409: "Conflict"
        case 410: "Gone"
        case 411: "Length Required"
        case 413: "Content Too Large"
        case 414: "URI Too Long"
        case 415: "Unsupported Media Type"
        case 417: "Expectation Failed"
        case 422: "Unprocessable Content"
        case 429: "Too Many Requests"
        case 431: "Request Header Fields Too Large"
        case 500: "Internal Server Error"
        case 501: "Not Implemented"
        case 502: "Bad Gateway"
        case 503: "Service Unavailable"
        case 504: "Gateway Timeout"
        case 505: "HTTP Version Not Supported"
        default: ""
        }
    }
}

/// IMF-fixdate (RFC 9110 §5.6.7).
enum HTTPDate {
    static func text(secondsSince1970 seconds: Int64) -> String {
        let days = seconds >= 0 ? seconds / 86_400 : (seconds - 86_399) / 86_400
        let second = seconds - days * 86_400
        let (year, month, day) = civil(days)
        let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][Int(((days % 7) + 7) % 7)]
        let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        let time = "\(two(second / 3600)):\(two(second / 60 % 60)):\(two(second % 60))"
        return "\(weekday), \(two(day)) \(names[Int(month) - 1]) \(year) \(time) GMT"
    }

    private static func two(_ value: Int64) -> String { value < 10 ? "0\(value)" : "\(value)" }

    /// The Gregorian date of a count of days since 1970, by counting 400-year cycles from 1 March of year 0, so that
    /// the leap day comes last in its year.
    private static func civil(_ days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let shifted = days + 719_468
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
    }
}
