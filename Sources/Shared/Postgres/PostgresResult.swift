internal import CLibpq

/// What a statement answered: its rows and how many rows it touched. Lives on after the connection.
///
/// `@unchecked Sendable`: a PGresult is written by libpq before it is handed over and only read afterwards; this object
/// is its one owner and frees it.
package final class PostgresResult: @unchecked Sendable {
    private let raw: OpaquePointer
    private let columns: [String: Int32]
    /// Rows inserted, updated, deleted or selected, as the command tag says; 0 for commands without a count.
    package let affectedRows: Int
    /// The command tag, such as `INSERT 0 3` or `COMMIT`.
    package let command: String
    /// Number of rows that came back.
    package let count: Int

    /// Takes the result over.
    init(owning raw: OpaquePointer) {
        self.raw = raw
        command = String(cString: clibpq_command_tag(raw))
        affectedRows = Int(String(cString: clibpq_command_rows(raw))) ?? 0
        count = Int(clibpq_row_count(raw))
        var columns: [String: Int32] = [:]
        for column in 0..<clibpq_column_count(raw) {
            let name = String(cString: clibpq_column_name(raw, column))
            if columns[name] == nil { columns[name] = column }
        }
        self.columns = columns
    }

    deinit { clibpq_clear(raw) }

    package var rows: [PostgresRow] { (0..<count).map { PostgresRow(result: self, index: Int32($0)) } }
    package var first: PostgresRow? { count > 0 ? PostgresRow(result: self, index: 0) : nil }

    fileprivate func value<Value>(
        _ row: Int32, _ name: String, _ read: (UnsafeBufferPointer<UInt8>) -> Value?
    ) throws(PostgresError) -> Value? {
        guard let column = columns[name] else { throw PostgresError(.usage, "no column named \(name)") }
        if clibpq_is_null(raw, row, column) == 1 { return nil }
        let bytes = UnsafeRawBufferPointer(
            start: clibpq_value(raw, row, column), count: Int(clibpq_length(raw, row, column)))
        guard let value = bytes.withMemoryRebound(to: UInt8.self, { read($0) }) else {
            throw PostgresError(.usage, "column \(name) holds another type")
        }
        return value
    }
}

/// One row, read by column name. Each reader throws `.usage` when there is no such column or its text does not parse;
/// those without `optional` also when the value is NULL.
package struct PostgresRow: Sendable {
    fileprivate let result: PostgresResult
    fileprivate let index: Int32

    /// Any type, as Postgres prints it.
    package func optionalString(_ name: String) throws(PostgresError) -> String? {
        try result.value(index, name) { String(decoding: $0, as: UTF8.self) }
    }

    /// Of smallint, integer, bigint.
    package func optionalInt64(_ name: String) throws(PostgresError) -> Int64? {
        try result.value(index, name) { Int64(String(decoding: $0, as: UTF8.self)) }
    }

    package func optionalBool(_ name: String) throws(PostgresError) -> Bool? {
        try result.value(index, name) { $0.count == 1 && ($0[0] == 0x74 || $0[0] == 0x66) ? $0[0] == 0x74 : nil }
    }

    /// Of bytea.
    package func optionalBytes(_ name: String) throws(PostgresError) -> [UInt8]? {
        try result.value(index, name) { text in
            guard text.count >= 2, text[0] == 0x5c, text[1] == 0x78 else { return nil }
            return Self.decodeHex(text.dropFirst(2))
        }
    }

    package func string(_ name: String) throws(PostgresError) -> String { try present(optionalString(name), name) }
    package func int64(_ name: String) throws(PostgresError) -> Int64 { try present(optionalInt64(name), name) }
    package func bool(_ name: String) throws(PostgresError) -> Bool { try present(optionalBool(name), name) }
    package func bytes(_ name: String) throws(PostgresError) -> [UInt8] { try present(optionalBytes(name), name) }

    private static func decodeHex(_ text: Slice<UnsafeBufferPointer<UInt8>>) -> [UInt8]? {
        guard text.count % 2 == 0 else { return nil }
        let digits = UnsafeBufferPointer(rebasing: text)
        // Or-ed together, so that a wrong digit shows in the end without a branch for each.
        var wrong: UInt8 = 0
        let bytes = nibbles.withUnsafeBufferPointer { nibbles in
            [UInt8](unsafeUninitializedCapacity: digits.count / 2) { buffer, count in
                count = digits.count / 2
                for index in 0..<count {
                    let (high, low) = (nibbles[Int(digits[2 * index])], nibbles[Int(digits[2 * index + 1])])
                    wrong |= high | low
                    buffer[index] = high << 4 | low & 0x0f
                }
            }
        }
        return wrong & noNibble == 0 ? bytes : nil
    }

    /// Of each character, as Postgres writes hexadecimal.
    private static let nibbles: [UInt8] = (0...255).map { character in
        switch UInt8(character) {
        case 0x30...0x39: UInt8(character) - 0x30
        case 0x61...0x66: UInt8(character) - 0x61 + 10
        default: noNibble
        }
    }
    private static let noNibble: UInt8 = 0x80

    private func present<Value>(_ value: Value?, _ name: String) throws(PostgresError) -> Value {
        guard let value else { throw PostgresError(.usage, "column \(name) is NULL") }
        return value
    }
}
