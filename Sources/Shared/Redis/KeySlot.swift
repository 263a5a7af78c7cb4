/// Where a Redis Cluster keeps a key: one of 16,384 slots, by the CRC16 of the key or of its tag (Redis Cluster
/// specification, "Key distribution model").
enum KeySlot {
    static let count = 16_384

    /// The tag is what stands between the first `{` and the first `}` after it, unless that is nothing.
    static func of(_ key: some Collection<UInt8>) -> UInt16 {
        if let open = key.firstIndex(of: UInt8(ascii: "{")) {
            let rest = key[key.index(after: open)...]
            if let close = rest.firstIndex(of: UInt8(ascii: "}")), close != rest.startIndex {
                return crc16(rest[..<close]) % UInt16(count)
            }
        }
        return crc16(key) % UInt16(count)
    }

    static func of(_ key: RedisArgument) -> UInt16 {
        switch key {
        case .text(let text): of(text.utf8)
        case .bytes(let bytes): of(bytes)
        case .integer(let value): of(String(value).utf8)
        // Never first; a mistake costs a hop.
        case .encoded: 0
        }
    }

    /// XMODEM: polynomial 0x1021, most significant bit first, starting at zero.
    private static func crc16(_ bytes: some Collection<UInt8>) -> UInt16 {
        bytes.reduce(0) { crc, byte in (crc << 8) ^ table[Int(UInt8(truncatingIfNeeded: crc >> 8) ^ byte)] }
    }

    private static let table: [UInt16] = (0..<256).map { index in
        (0..<8).reduce(UInt16(index) << 8) { crc, _ in crc & 0x8000 == 0 ? crc << 1 : (crc << 1) ^ 0x1021 }
    }
}

/// Which of a command's words is the key that decides where it runs.
///
/// A mistake here costs a hop and no more: a node that does not hold a key says who does, and runs nothing.
enum CommandKey {
    /// Commands whose first word after the name is no key.
    private static let keyless: Set<String> = [
        "ACL", "ASKING", "AUTH", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "DEBUG", "ECHO", "FLUSHALL",
        "FLUSHDB", "INFO", "LATENCY", "PING", "PUBLISH", "ROLE", "SCAN", "SCRIPT", "SELECT", "SLOWLOG", "TIME", "WAIT",
    ]
    /// Commands with a subcommand before the key.
    private static let second: Set<String> = ["MEMORY", "OBJECT", "XGROUP", "XINFO"]

    /// The first key of a command, whose name is written in capitals; nil for one that names none.
    static func of(_ arguments: [RedisArgument]) -> RedisArgument? {
        guard case .text(let name)? = arguments.first else { return nil }
        switch name {
        case _ where keyless.contains(name): return nil
        case "EVAL", "EVALSHA": return arguments.count > 3 && arguments[2] != 0 ? arguments[3] : nil
        case "XREAD", "XREADGROUP":
            guard let streams = arguments.firstIndex(of: "STREAMS") else { return nil }
            return arguments.count > streams + 1 ? arguments[streams + 1] : nil
        case _ where second.contains(name): return arguments.count > 2 ? arguments[2] : nil
        default: return arguments.count > 1 ? arguments[1] : nil
        }
    }
}
