/// An argument of a command: binary-safe, never interpreted. A string literal is `.text`, an integer literal is
/// `.integer`.
package enum RedisArgument: Sendable, Equatable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
    /// Sent as UTF-8.
    case text(String)
    case bytes([UInt8])
    /// Sent as decimal digits.
    case integer(Int64)
    /// Several arguments that are written out already. Never first among the keys of a command in a cluster, where the
    /// first key says which node it goes to.
    case encoded(EncodedArguments)

    package init(stringLiteral value: String) { self = .text(value) }
    package init(integerLiteral value: Int64) { self = .integer(value) }

    /// How many arguments the server sees.
    var count: Int { if case .encoded(let arguments) = self { arguments.count } else { 1 } }
}

/// Arguments in the form in which they are sent: for commands with very many, or with the same again and again.
package struct EncodedArguments: Sendable, Equatable {
    package private(set) var count = 0
    fileprivate private(set) var bytes: [UInt8] = []
    /// What they take on the wire.
    package var byteCount: Int { bytes.count }

    package init(reservingBytes capacity: Int = 0) { bytes.reserveCapacity(capacity) }

    package mutating func append(_ text: String) {
        count += 1
        CommandEncoder.append(text, to: &bytes)
    }

    package mutating func append(_ argument: [UInt8]) {
        count += 1
        CommandEncoder.append(argument, to: &bytes)
    }

    package mutating func append(_ value: Int64) {
        count += 1
        CommandEncoder.append(value, to: &bytes)
    }
}

/// Writes commands as RESP arrays of bulk strings, the only form that clients send.
enum CommandEncoder {
    private static let carriageReturn: UInt8 = 13
    private static let lineFeed: UInt8 = 10

    static func append(_ arguments: [RedisArgument], to output: inout [UInt8]) {
        header(UInt8(ascii: "*"), arguments.reduce(0) { $0 + $1.count }, to: &output)
        for argument in arguments {
            switch argument {
            case .text(let text): append(text, to: &output)
            case .bytes(let bytes): append(bytes, to: &output)
            case .integer(let value): append(value, to: &output)
            case .encoded(let arguments): output.append(contentsOf: arguments.bytes)
            }
        }
    }

    fileprivate static func append(_ text: String, to output: inout [UInt8]) {
        var text = text
        text.withUTF8 { append($0, to: &output) }
    }

    fileprivate static func append(_ bytes: [UInt8], to output: inout [UInt8]) {
        bytes.withUnsafeBufferPointer { append($0, to: &output) }
    }

    private static func append(_ bytes: UnsafeBufferPointer<UInt8>, to output: inout [UInt8]) {
        header(UInt8(ascii: "$"), bytes.count, to: &output)
        output.append(contentsOf: bytes)
        endLine(&output)
    }

    /// Most integers of the queue's calls are one digit.
    private static let oneDigit = (0..<10).map { Array("$1\r\n\($0)\r\n".utf8) }

    fileprivate static func append(_ value: Int64, to output: inout [UInt8]) {
        if 0..<10 ~= value { return output.append(contentsOf: oneDigit[Int(value)]) }
        withDigits(value.magnitude) { digits in
            header(UInt8(ascii: "$"), digits.count + (value < 0 ? 1 : 0), to: &output)
            if value < 0 { output.append(UInt8(ascii: "-")) }
            output.append(contentsOf: digits)
        }
        endLine(&output)
    }

    private static func endLine(_ output: inout [UInt8]) {
        output.append(carriageReturn)
        output.append(lineFeed)
    }

    private static func header(_ mark: UInt8, _ count: Int, to output: inout [UInt8]) {
        output.append(mark)
        if count < 10 {
            output.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: count))
        } else {
            withDigits(UInt64(count)) { output.append(contentsOf: $0) }
        }
        endLine(&output)
    }

    /// Lends the decimal digits of a number, at most twenty.
    private static func withDigits(_ value: UInt64, _ body: (UnsafeBufferPointer<UInt8>) -> Void) {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 20) { digits in
            var rest = value
            var at = digits.count
            repeat {
                at -= 1
                digits[at] = UInt8(ascii: "0") + UInt8(rest % 10)
                rest /= 10
            } while rest > 0
            body(UnsafeBufferPointer(rebasing: digits[at...]))
        }
    }
}
