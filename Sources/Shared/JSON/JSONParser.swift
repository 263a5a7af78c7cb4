internal import CSimdjson

/// Reads JSON documents one after the other into the same buffers: no allocation once they have grown to the size of
/// the usual document.
///
/// Not Sendable: one thread (in a server, one event loop) owns it. A document's values live until the next `parse` of
/// the same parser; using one afterwards is a mistake of the caller and traps. What outlives them is copied out
/// (`string`, `stringBytes`), or read through a `JSONDocument`, which has its parser to itself.
package final class JSONParser {
    /// How many containers may stand in each other unless the caller says otherwise. The reader doesn't recurse, so the
    /// limit guards the code that walks documents, not this stack.
    package static let defaultMaxDepth = 1024

    /// Owned: made in `init`, destroyed in `deinit`, never handed out.
    private let handle: OpaquePointer
    /// Counts parses, so that a value can tell whether its document is still the one in the buffers.
    private(set) var generation: UInt64 = 0
    /// The buffers of the handle, as of the last parse; they move only during a parse, which refreshes them. Empty
    /// before the first one and after a failure.
    private var document = csimdjson_document()

    package init() {
        // Without a few hundred bytes of memory nothing else would run either.
        guard let handle = csimdjson_create() else { fatalError("out of memory") }
        self.handle = handle
    }

    deinit { csimdjson_destroy(handle) }

    /// Reads one document. Every byte of it is checked before this returns. The input is copied, its size is the
    /// caller's to limit.
    ///
    /// - Parameter maxDepth: how many containers may stand in each other; deeper is an error.
    /// - Parameter refusingDuplicateMembers: true where no duplicate may win in silence (signed documents).
    package func parse(
        _ bytes: [UInt8], maxDepth: Int = JSONParser.defaultMaxDepth, refusingDuplicateMembers: Bool = false
    ) throws(JSONError) -> JSONValue {
        let result = bytes.withUnsafeBufferPointer {
            read($0, maxDepth: maxDepth, refusingDuplicateMembers: refusingDuplicateMembers)
        }
        return try root(after: result)
    }

    /// The same for bytes that lie in a buffer of the caller, who keeps them alive during the call.
    package func parse(
        _ bytes: UnsafeBufferPointer<UInt8>, maxDepth: Int = JSONParser.defaultMaxDepth,
        refusingDuplicateMembers: Bool = false
    ) throws(JSONError) -> JSONValue {
        try root(
            after: read(bytes, maxDepth: maxDepth, refusingDuplicateMembers: refusingDuplicateMembers))
    }

    private func read(
        _ bytes: UnsafeBufferPointer<UInt8>, maxDepth: Int, refusingDuplicateMembers: Bool
    ) -> Int32 {
        generation &+= 1
        guard let base = bytes.baseAddress else {
            document = csimdjson_document()
            return Int32(CSIMDJSON_MALFORMED.rawValue)
        }
        return csimdjson_parse(
            handle, base, UInt64(bytes.count), UInt32(clamping: maxDepth), refusingDuplicateMembers ? 1 : 0, &document)
    }

    private func root(after result: Int32) throws(JSONError) -> JSONValue {
        switch UInt32(bitPattern: result) {
        case UInt32(CSIMDJSON_OK.rawValue): return JSONValue(parser: self, generation: generation, index: 0)
        case UInt32(CSIMDJSON_TOO_DEEP.rawValue): throw JSONError(.tooDeep)
        case UInt32(CSIMDJSON_NUL.rawValue): throw JSONError(.nulCharacter)
        case UInt32(CSIMDJSON_DUPLICATE.rawValue): throw JSONError(.duplicateMember)
        case UInt32(CSIMDJSON_NO_MEMORY.rawValue): throw JSONError(.outOfMemory)
        default: throw JSONError(.malformed)
        }
    }

    /// The node at an index of the present document. Valid as long as the caller holds the parser and it reads no other.
    func node(at index: Int, of generation: UInt64) -> JSONNode {
        // One unsigned comparison each; without them a stale value would read another document's memory.
        precondition(generation == self.generation, "a JSON value was used after its parser read another document")
        guard let nodes = document.nodes, let text = document.text, index >= 0, index < Int(document.node_count) else {
            preconditionFailure("a JSON value lies outside its document")
        }
        // The same five words by another name.
        let tokens = UnsafeRawPointer(nodes).assumingMemoryBound(to: JSONToken.self)
        return JSONNode(place: tokens + index, nodes: tokens, text: text)
    }
}
