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
    /// The buffers of the handle, as of the last parse; they move only during a parse, which refreshes them.
    /// Nil before the first one.
    private var nodes: UnsafePointer<csimdjson_node>?
    private var text: UnsafePointer<UInt8>?
    private var nodeCount = 0

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
        nodeCount = 0
        guard let base = bytes.baseAddress else { return Int32(CSIMDJSON_MALFORMED.rawValue) }
        let result = csimdjson_parse(
            handle, base, UInt64(bytes.count), UInt32(clamping: maxDepth), refusingDuplicateMembers ? 1 : 0)
        nodes = csimdjson_nodes(handle)
        text = csimdjson_text(handle)
        nodeCount = Int(csimdjson_node_count(handle))
        return result
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

    /// True when the object at `index` names a member twice; short memory reads as true, the careful answer.
    func hasDuplicateMembers(at index: Int) -> Bool {
        csimdjson_has_duplicates(handle, UInt32(clamping: index)) != 0
    }

    /// The node at an index of the present document.
    func node(at index: Int, of generation: UInt64) -> csimdjson_node {
        // One unsigned comparison each; without them a stale value would read another document's memory.
        precondition(generation == self.generation, "a JSON value was used after its parser read another document")
        guard let nodes, index >= 0, index < nodeCount else {
            preconditionFailure("a JSON value lies outside its document")
        }
        return withExtendedLifetime(self) { nodes[index] }
    }

    /// The index of the value of the last member of that name. The caller has just read the object's node with `node`,
    /// so that `index` and `count` are of the present document; the nodes of its members lie behind it (the shim counts
    /// them as it appends them).
    func lastMember(named name: UnsafeBufferPointer<UInt8>, ofObjectAt index: Int, count: UInt32) -> Int? {
        guard let nodes, let text else { return nil }
        return withExtendedLifetime(self) {
            var found: Int?
            var key = index + 1
            for _ in 0..<count {
                let node = nodes[key]
                if Int(node.length) == name.count
                    && UnsafeBufferPointer(start: text + Int(node.offset), count: name.count).elementsEqual(name)
                {
                    found = key + 1
                }
                key = Int(nodes[key + 1].next)
            }
            return found
        }
    }

    /// Lends the text of a string or number node of the present document. The shim keeps offset and length of its nodes
    /// inside `text`, which stands still until the next parse and lives as long as self.
    func withBytes<Result>(of node: csimdjson_node, _ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
        withExtendedLifetime(self) {
            body(UnsafeBufferPointer(start: text.map { $0 + Int(node.offset) }, count: Int(node.length)))
        }
    }
}
