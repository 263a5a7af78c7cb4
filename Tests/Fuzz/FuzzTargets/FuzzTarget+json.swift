internal import JSON

extension FuzzTarget {
    /// The reader takes what the grammar takes; what is read, written and read again is the same.
    static let json = FuzzTarget(name: "json", maximumBytes: 2048) { bytes throws(BrokenProperty) in
        let parser = JSONParser()
        let isJSON = JSONGrammar.accepts(bytes, maximumDepth: maximumDepth)
        let value: JSONValue
        do throws(JSONError) {
            value = try parser.parse(bytes, maxDepth: maximumDepth)
        } catch {
            try require(
                isJSON == (error.code == .nulCharacter),
                "\(error.code) for what the grammar \(isJSON ? "takes" : "refuses")")
            return
        }
        try require(isJSON, "taken although the grammar refuses it")
        var copy = JSONCopy()
        try copy.take(value)

        // By the same parser: nothing of the first document may shine through.
        guard let again = try? parser.parse(copy.writer.bytes, maxDepth: maximumDepth) else {
            throw BrokenProperty("what the writer wrote is not read")
        }
        var second = JSONCopy()
        try second.take(again)
        try require(second.writer.bytes == copy.writer.bytes, "a second reading gives another document")

        var strict: JSONError.Code?
        do throws(JSONError) {
            _ = try JSONDocument(parsing: bytes, maxDepth: maximumDepth, refusingDuplicateMembers: true)
        } catch {
            strict = error.code
        }
        try require(
            strict == (copy.hasDuplicates ? .duplicateMember : nil), "the strict reading ends in \(strict as Any)")
    }

    /// Small, so that short inputs reach it, and no stack of a test's thread ends before it.
    private static let maximumDepth = 24
}

/// Copies a document through the writer, member by member.
private struct JSONCopy: ~Copyable {
    var writer = JSONWriter()
    var hasDuplicates = false

    mutating func take(_ value: JSONValue) throws(BrokenProperty) {
        switch value.kind {
        case .null: writer.null()
        case .bool: writer.bool(value.bool == true)
        case .number:
            let text = value.rawNumber ?? ""
            if let number = value.int64 {
                try require(String(number) == text || text == "-0", "\(text) reads as \(number)")
            } else {
                try require(Int64(text) == nil, "\(text) does not read as an integer")
            }
            writer.raw(text)
        case .string:
            let text = value.string ?? ""
            try require(value.stringBytes == Array(text.utf8), "a string has other bytes than its text")
            try require(JSONWriter.quotedCount(text) == JSONWriter.quoted(text).utf8.count, "a string's size is wrong")
            writer.string(text)
        case .array:
            writer.beginArray()
            var count = 0
            for element in value.elements {
                count += 1
                try take(element)
            }
            try require(count == value.count, "an array has another count of elements")
            writer.endArray()
        case .object: try takeObject(value)
        }
    }

    private mutating func takeObject(_ value: JSONValue) throws(BrokenProperty) {
        writer.beginObject()
        var names: Set<[UInt8]> = []
        var count = 0
        for (key, member) in value.members {
            guard let name = key.string else { throw BrokenProperty("a key is no string") }
            names.insert(Array(name.utf8))
            count += 1
            writer.key(name)
            try take(member)
        }
        try require(count == value.count, "an object has another count of members")
        try require(value.hasDuplicateMembers == (names.count < count), "duplicates are not what they seem")
        if names.count < count { hasDuplicates = true }
        for name in names { try require(value.member(named: name) != nil, "a member is not found by its name") }
        writer.endObject()
    }
}
