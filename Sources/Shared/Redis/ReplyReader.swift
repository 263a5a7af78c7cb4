internal import CHiredis

/// Owns one hiredis parser. Used by one connection on its loop; freed with it.
struct ReplyReader: ~Copyable {
    private let handle: OpaquePointer

    /// Nil when memory is short.
    init?() {
        guard let handle = chiredis_reader_create() else { return nil }
        self.handle = handle
    }

    deinit { chiredis_reader_free(handle) }

    enum Received {
        case bytes(Int)
        /// Nothing to read now.
        case none
        case endOfStream
        /// A positive errno.
        case failed(Int32)
    }

    /// Reads once from a socket into the parser.
    func receive(from fd: Int32) -> Received {
        let count = chiredis_reader_receive(handle, fd)
        if count > 0 { return .bytes(Int(count)) }
        if count == 0 { return .endOfStream }
        let code = Int32(clamping: -count)
        return code == chiredis_EAGAIN ? .none : .failed(code)
    }

    /// The next whole reply, copied out of the parser; nil when more bytes are needed.
    /// - Throws: `.protocolViolation`; the parser is then of no more use.
    func next() throws(RedisError) -> RedisValue? {
        var reply: OpaquePointer?
        switch chiredis_reader_next(handle, &reply) {
        case 1:
            guard let reply else { return nil }
            defer { chiredis_reply_free(reply) }
            return Self.value(of: reply)
        case 0: return nil
        default:
            throw RedisError(
                code: .protocolViolation, message: String(cString: chiredis_reader_problem(handle)))
        }
    }

    /// The recursion is bounded: hiredis refuses arrays nested deeper than 7.
    private static func value(of reply: OpaquePointer) -> RedisValue {
        let kind = Int(chiredis_reply_kind(reply))
        if kind == chiredis_kind_string { return .bulk(Array(bytes(of: reply))) }
        if kind == chiredis_kind_integer { return .integer(chiredis_reply_integer(reply)) }
        if kind == chiredis_kind_array {
            let count = Int(chiredis_reply_count(reply))
            var elements: [RedisValue] = []
            elements.reserveCapacity(count)
            for index in 0..<count {
                // hiredis fills every element before it hands out an array; nil can't come but costs nothing to bear.
                elements.append(chiredis_reply_element(reply, UInt64(index)).map(value(of:)) ?? .null)
            }
            return .array(elements)
        }
        if kind == chiredis_kind_status { return .simple(String(decoding: bytes(of: reply), as: UTF8.self)) }
        if kind == chiredis_kind_error {
            return .error(RedisServerError(message: String(decoding: bytes(of: reply), as: UTF8.self)))
        }
        return .null
    }

    /// Lent until the reply is freed.
    private static func bytes(of reply: OpaquePointer) -> UnsafeBufferPointer<UInt8> {
        UnsafeBufferPointer(start: chiredis_reply_bytes(reply), count: Int(chiredis_reply_length(reply)))
    }
}
