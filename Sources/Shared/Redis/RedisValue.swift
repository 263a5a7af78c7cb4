/// One reply of Redis (RESP2), copied out of the connection's buffers: it may be kept and sent anywhere.
package enum RedisValue: Sendable, Equatable {
    /// A null bulk string or null array: RESP2 has both and no caller can use the difference.
    case null
    case integer(Int64)
    /// A bulk string: any bytes, valid UTF-8 or not.
    case bulk([UInt8])
    /// A status line such as `OK`.
    case simple(String)
    case array([RedisValue])
    /// An error inside an array. An error that is the whole reply is thrown instead.
    case error(RedisServerError)

    /// The number in an integer reply, or in a string reply that is a decimal number; nil for anything else.
    package var int64: Int64? {
        switch self {
        case .integer(let value): value
        case .bulk, .simple: text.flatMap { Int64($0) }
        default: nil
        }
    }

    /// The bytes of a bulk or status reply; nil for anything else.
    package var bytes: [UInt8]? {
        switch self {
        case .bulk(let bytes): bytes
        case .simple(let text): Array(text.utf8)
        default: nil
        }
    }

    /// The text of a bulk or status reply; nil for anything else and for bytes that are not UTF-8.
    package var text: String? {
        switch self {
        case .bulk(let bytes): String(validating: bytes, as: UTF8.self)
        case .simple(let text): text
        default: nil
        }
    }

    /// The elements of an array reply; nil for anything else.
    package var elements: [RedisValue]? {
        if case .array(let elements) = self { elements } else { nil }
    }
}

/// An error line of Redis, such as `WRONGTYPE Operation against a key holding the wrong kind of value`.
package struct RedisServerError: Sendable, Equatable {
    /// The whole line without the leading `-`.
    package let message: String

    package init(message: String) {
        self.message = message
    }

    /// The first word, which Redis keeps stable: `ERR`, `OOM`, `NOSCRIPT`.
    package var prefix: String {
        String(message.prefix { $0 != " " })
    }
}
