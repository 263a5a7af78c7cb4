internal import Bytes
internal import HTTP
internal import Jobs

/// Names requests, so that a complaint can be followed through the logs.
final class RequestIDs {
    /// Hexadecimal and a hyphen.
    private let process = Array("\(Hex.encode(Secrets.random(6)))-".utf8)
    private var count: UInt64 = 0

    private static let digits = Array("0123456789abcdefghijklmnopqrstuv".utf8)
    /// Of 64 bits in base 32.
    private static let mostDigits = 13

    /// Longest id taken over from the caller.
    private static let longest = 128
    /// Length of a W3C traceparent of version 00.
    private static let traceparentLength = 55

    /// The caller's own id when it is plain text of a sane length, else a new one. Plain: it is sent back in a header.
    func id(for request: HTTPRequest) -> String {
        if let given = request.headers.first("x-request-id"), given.utf8.count <= Self.longest, !given.isEmpty,
            JobHeader.isPlain(given)
        {
            return given
        }
        count += 1
        return String(unsafeUninitializedCapacity: process.count + Self.mostDigits) { text in
            var end = text.initialize(fromContentsOf: process)
            // The lowest digit first: it names the request as well.
            var rest = count
            repeat {
                text[end] = Self.digits[Int(rest % 32)]
                end += 1
                rest /= 32
            } while rest > 0
            return end
        }
    }

    /// The caller's W3C trace context, or empty text; it goes into the job's header.
    static func traceparent(of request: HTTPRequest) -> String {
        guard let given = request.headers.first("traceparent"), given.utf8.count == traceparentLength,
            JobHeader.isPlain(given)
        else { return "" }
        return given
    }
}
