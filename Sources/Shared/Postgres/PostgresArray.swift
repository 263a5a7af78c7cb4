/// A one-dimensional array parameter, written straight into the bytes that go to the server: one growing buffer a
/// column, however many rows the batch has.
///
/// The format (array_recv in the server's arrayfuncs.c): dimensions, has-nulls flag, element type, length, lower bound,
/// then each element as a length (−1 is NULL) and its bytes; all integers 32 bits, big-endian.
package struct PostgresArray: Sendable {
    private let type: PostgresType
    private var buffer: [UInt8]
    private var hasNulls = false
    package private(set) var count = 0

    private static let headerBytes = 20

    /// - Parameter capacity: the number of elements expected.
    package init(of type: PostgresType, capacity: Int = 0) {
        self.type = type
        buffer = [UInt8](repeating: 0, count: Self.headerBytes)
        buffer.reserveCapacity(Self.headerBytes + capacity * 16)
    }

    package mutating func appendNull() {
        hasNulls = true
        appendLength(-1)
        count += 1
    }

    package mutating func append(int64 value: Int64?) {
        check(.int64)
        guard let value else { return appendNull() }
        // Words of four bytes, so that the tuple has no gaps.
        let words = UInt64(bitPattern: value)
        let element = (UInt32(8).bigEndian, UInt32(words >> 32).bigEndian, UInt32(truncatingIfNeeded: words).bigEndian)
        withUnsafeBytes(of: element) { buffer.append(contentsOf: $0) }
        count += 1
    }

    package mutating func append(bool value: Bool?) {
        check(.bool)
        guard let value else { return appendNull() }
        appendLength(1)
        buffer.append(value ? 1 : 0)
        count += 1
    }

    package mutating func append(text value: String?) {
        check(.text)
        guard let value else { return appendNull() }
        appendLength(value.utf8.count)
        buffer.append(contentsOf: value.utf8)
        count += 1
    }

    package mutating func append(bytes value: [UInt8]?) {
        check(.bytes)
        guard let value else { return appendNull() }
        appendLength(value.count)
        buffer.append(contentsOf: value)
        count += 1
    }

    /// - Parameter value: 16 bytes in network order.
    package mutating func append(uuid value: [UInt8]?) {
        check(.uuid)
        guard let value else { return appendNull() }
        appendLength(value.count)
        buffer.append(contentsOf: value)
        count += 1
    }

    /// The same of its two halves, each read in network order.
    package mutating func append(uuidHigh high: UInt64, low: UInt64) {
        check(.uuid)
        appendLength(16)
        withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { buffer.append(contentsOf: $0) }
        count += 1
    }

    /// - Parameter value: JSON text in UTF-8.
    package mutating func append(jsonb value: [UInt8]?) {
        guard let value else {
            check(.jsonb)
            return appendNull()
        }
        append(jsonb: { $0.append(contentsOf: value) })
    }

    /// Appends the JSON text that the body adds, without a copy in between.
    package mutating func append<Result>(jsonb write: (inout [UInt8]) -> Result) -> Result {
        check(.jsonb)
        let start = buffer.count
        appendLength(0)
        // The version of jsonb's binary format.
        buffer.append(1)
        let result = write(&buffer)
        setInt32(buffer.count - start - 4, at: start)
        count += 1
        return result
    }

    package var parameter: PostgresParameter {
        var whole = self
        whole.setInt32(1, at: 0)
        whole.setInt32(hasNulls ? 1 : 0, at: 4)
        whole.setInt32(Int(type.oid), at: 8)
        whole.setInt32(count, at: 12)
        whole.setInt32(1, at: 16)
        return PostgresParameter(type: type.arrayOID, bytes: whole.buffer)
    }

    static func bigEndian(_ value: Int64) -> [UInt8] { withUnsafeBytes(of: value.bigEndian) { Array($0) } }

    private func check(_ element: PostgresType) {
        precondition(element == type, "an array holds one type")
    }

    private mutating func setInt32(_ value: Int, at offset: Int) {
        withUnsafeBytes(of: Int32(truncatingIfNeeded: value).bigEndian) { source in
            for index in 0..<4 { buffer[offset + index] = source[index] }
        }
    }

    private mutating func appendLength(_ length: Int) {
        withUnsafeBytes(of: Int32(truncatingIfNeeded: length).bigEndian) { buffer.append(contentsOf: $0) }
    }
}
