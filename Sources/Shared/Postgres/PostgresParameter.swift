/// One value of a statement, in Postgres's binary format, with its type.
///
/// Binary rather than text, for arrays above all: no quoting of backslashes, quotes and the word NULL, no doubling of
/// bytea to hexadecimal, and the server copies instead of parsing.
package struct PostgresParameter: Sendable {
    /// The type's OID (pg_type.dat; fixed for built-in types).
    package let type: UInt32
    /// Nil is SQL's NULL.
    package let bytes: [UInt8]?

    package init(type: UInt32, bytes: [UInt8]?) {
        self.type = type
        self.bytes = bytes
    }

    package static func text(_ value: String?) -> Self {
        Self(type: PostgresType.text.oid, bytes: value.map { Array($0.utf8) })
    }

    package static func int64(_ value: Int64?) -> Self {
        Self(type: PostgresType.int64.oid, bytes: value.map { PostgresArray.bigEndian($0) })
    }

    package static func bool(_ value: Bool?) -> Self {
        Self(type: PostgresType.bool.oid, bytes: value.map { [$0 ? 1 : 0] })
    }

    package static func bytes(_ value: [UInt8]?) -> Self { Self(type: PostgresType.bytes.oid, bytes: value) }

    /// - Parameter value: 16 bytes in network order.
    package static func uuid(_ value: [UInt8]?) -> Self { Self(type: PostgresType.uuid.oid, bytes: value) }

    /// - Parameter value: JSON text.
    package static func jsonb(_ value: String?) -> Self {
        Self(type: PostgresType.jsonb.oid, bytes: value.map { [1] + Array($0.utf8) })
    }

    package static func array(_ array: PostgresArray) -> Self { array.parameter }

    package static func texts(_ values: some Collection<String?>) -> Self {
        var array = PostgresArray(of: .text, capacity: values.count)
        for value in values { array.append(text: value) }
        return array.parameter
    }

    package static func int64s(_ values: some Collection<Int64?>) -> Self {
        var array = PostgresArray(of: .int64, capacity: values.count)
        for value in values { array.append(int64: value) }
        return array.parameter
    }
}

/// The built-in types that statements here use.
package enum PostgresType: Sendable {
    case bool, bytes, int64, text, uuid, jsonb

    package var oid: UInt32 {
        switch self {
        case .bool: 16
        case .bytes: 17
        case .int64: 20
        case .text: 25
        case .uuid: 2950
        case .jsonb: 3802
        }
    }

    package var arrayOID: UInt32 {
        switch self {
        case .bool: 1000
        case .bytes: 1001
        case .int64: 1016
        case .text: 1009
        case .uuid: 2951
        case .jsonb: 3807
        }
    }
}
