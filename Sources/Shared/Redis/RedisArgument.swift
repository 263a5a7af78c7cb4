/// One argument of a command: binary-safe, never interpreted. A string literal is `.text`, an integer literal is
/// `.integer`.
package enum RedisArgument: Sendable, Equatable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
    /// Sent as UTF-8.
    case text(String)
    case bytes([UInt8])
    /// Sent as decimal digits.
    case integer(Int64)

    package init(stringLiteral value: String) { self = .text(value) }
    package init(integerLiteral value: Int64) { self = .integer(value) }
}

/// Writes commands as RESP arrays of bulk strings, the only form that clients send.
enum CommandEncoder {
    private static let carriageReturn: UInt8 = 13
    private static let lineFeed: UInt8 = 10

    static func append(_ arguments: [RedisArgument], to output: inout [UInt8]) {
        header(UInt8(ascii: "*"), arguments.count, to: &output)
        for argument in arguments {
            switch argument {
            case .text(let text):
                header(UInt8(ascii: "$"), text.utf8.count, to: &output)
                output.append(contentsOf: text.utf8)
            case .bytes(let bytes):
                header(UInt8(ascii: "$"), bytes.count, to: &output)
                output.append(contentsOf: bytes)
            case .integer(let value):
                header(UInt8(ascii: "$"), digitCount(value.magnitude) + (value < 0 ? 1 : 0), to: &output)
                if value < 0 { output.append(UInt8(ascii: "-")) }
                digits(value.magnitude, to: &output)
            }
            output.append(carriageReturn)
            output.append(lineFeed)
        }
    }

    private static func header(_ mark: UInt8, _ count: Int, to output: inout [UInt8]) {
        output.append(mark)
        digits(UInt64(count), to: &output)
        output.append(carriageReturn)
        output.append(lineFeed)
    }

    private static func digitCount(_ value: UInt64) -> Int {
        var count = 1
        var rest = value / 10
        while rest > 0 {
            count += 1
            rest /= 10
        }
        return count
    }

    private static func digits(_ value: UInt64, to output: inout [UInt8]) {
        if value < 10 {
            output.append(UInt8(ascii: "0") + UInt8(value))
            return
        }
        let end = output.count + digitCount(value)
        output.append(contentsOf: repeatElement(0, count: end - output.count))
        var rest = value
        var at = end
        while at > 0, rest > 0 {
            at -= 1
            output[at] = UInt8(ascii: "0") + UInt8(rest % 10)
            rest /= 10
        }
    }
}
