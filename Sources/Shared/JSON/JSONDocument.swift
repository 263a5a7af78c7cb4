/// One JSON document with a parser of its own: for occasional reads, where a value must not be outrun by the next
/// document. Busy paths reuse a `JSONParser`.
///
/// Not Sendable: it is read where it was made.
package struct JSONDocument {
    /// The outermost value. It and all its parts stay valid as long as any of them is held.
    package let root: JSONValue

    /// Reads and checks the whole of `bytes`. The input is copied, its size is the caller's to limit.
    package init(
        parsing bytes: [UInt8], maxDepth: Int = JSONParser.defaultMaxDepth, refusingDuplicateMembers: Bool = false
    ) throws(JSONError) {
        root = try JSONParser().parse(
            bytes, maxDepth: maxDepth, refusingDuplicateMembers: refusingDuplicateMembers)
    }
}
