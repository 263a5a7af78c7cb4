/// The header fields of one request, in the order they came: one byte buffer and ranges into it, so that a request
/// with twenty fields costs two allocations and no String until someone asks. The request's target stands in the same
/// buffer.
package struct HTTPHeaders: Sendable {
    /// One field's place in the buffer. The name is kept in lower case, the value without surrounding whitespace.
    struct Field: Sendable {
        var nameStart: UInt32
        var nameEnd: UInt32
        var valueStart: UInt32
        var valueEnd: UInt32
    }

    private let storage: [UInt8]
    private let fields: [Field]

    /// The parser's way in: every range lies inside the buffer, because the parser measured them while filling it.
    init(storage: [UInt8], fields: [Field]) {
        self.storage = storage
        self.fields = fields
    }

    /// Builds headers by hand, for tests of handlers. Names may be of any case.
    package init(_ pairs: [(String, String)] = []) {
        var storage: [UInt8] = []
        var fields: [Field] = []
        for (name, value) in pairs {
            let start = UInt32(storage.count)
            storage.append(contentsOf: name.utf8.map { ASCII.lowercased($0) })
            let middle = UInt32(storage.count)
            storage.append(contentsOf: value.utf8)
            fields.append(
                Field(nameStart: start, nameEnd: middle, valueStart: middle, valueEnd: UInt32(storage.count)))
        }
        self.init(storage: storage, fields: fields)
    }

    /// Field lines; a name that came twice counts twice.
    package var count: Int { fields.count }

    /// The field at a place: the name in lower case and the value. Bytes that are no UTF-8 read as U+FFFD.
    package subscript(index: Int) -> (name: String, value: String) {
        let field = fields[index]
        return (String(decoding: name(field), as: UTF8.self), String(decoding: value(field), as: UTF8.self))
    }

    /// The first value of a field, nil when it is absent. Bytes that are no UTF-8 read as U+FFFD.
    package func first(_ lowercaseName: String) -> String? {
        firstBytes(lowercaseName).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The first value as it came, without copying it.
    package func firstBytes(_ lowercaseName: String) -> ArraySlice<UInt8>? {
        guard let index = index(of: lowercaseName, from: 0) else { return nil }
        return value(fields[index])
    }

    /// Every value of a field, in order.
    package func all(_ lowercaseName: String) -> [String] {
        var found: [String] = []
        var next = 0
        while let index = index(of: lowercaseName, from: next) {
            found.append(String(decoding: value(fields[index]), as: UTF8.self))
            next = index + 1
        }
        return found
    }

    /// True when the field came at least once.
    package func contains(_ lowercaseName: String) -> Bool { index(of: lowercaseName, from: 0) != nil }

    /// The text at a place that this buffer's maker gave out.
    func text(_ place: Range<Int>) -> String { String(decoding: storage[place], as: UTF8.self) }

    /// Whether these bytes stand at a place.
    func isText(_ place: Range<Int>, _ text: StaticString) -> Bool {
        guard place.count == text.utf8CodeUnitCount else { return false }
        return storage[place].withUnsafeBytes { stored in
            text.withUTF8Buffer { stored.elementsEqual(UnsafeRawBufferPointer($0)) }
        }
    }

    /// The same fields with more text in the buffer, and its place.
    func appending(_ text: String) -> (HTTPHeaders, Range<Int>) {
        let more = storage + Array(text.utf8)
        return (HTTPHeaders(storage: more, fields: fields), storage.count..<more.count)
    }

    private func name(_ field: Field) -> ArraySlice<UInt8> { storage[Int(field.nameStart)..<Int(field.nameEnd)] }
    private func value(_ field: Field) -> ArraySlice<UInt8> { storage[Int(field.valueStart)..<Int(field.valueEnd)] }

    private func index(of wanted: String, from start: Int) -> Int? {
        let wanted = wanted.utf8.span
        let bytes = storage.span
        for index in start..<max(start, fields.count) {
            let first = Int(fields[index].nameStart)
            guard Int(fields[index].nameEnd) - first == wanted.count else { continue }
            var matched = 0
            while matched < wanted.count, bytes[first + matched] == wanted[matched] { matched += 1 }
            if matched == wanted.count { return index }
        }
        return nil
    }
}
