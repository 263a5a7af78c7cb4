/// Which node of a cluster holds which slots, as one node told it.
struct SlotMap {
    /// Nodes that hold slots, each once.
    private(set) var primaries: [RedisHost] = []
    /// Nodes that only copy.
    private(set) var replicas: [RedisHost] = []
    /// By slot: an index into `primaries`, or -1 for a slot that nobody serves.
    private var owners = [Int16](repeating: -1, count: KeySlot.count)

    var isEmpty: Bool { primaries.isEmpty }
    var nodes: [RedisHost] { primaries + replicas }

    static let empty = SlotMap()

    private init() {}

    /// Reads the answer to CLUSTER SLOTS: items of first slot, last slot, primary, replicas; a node begins with its
    /// host and port.
    /// - Parameter asked: who answered; stands in for a host that the node does not know.
    /// - Throws: `.protocolViolation` for another form, `.unavailable` when no slot is served at all.
    init(_ reply: RedisValue, from asked: RedisHost) throws(RedisError) {
        if case .error(let error) = reply { throw RedisError(error) }
        guard let ranges = reply.elements else { throw Self.otherForm(asked) }
        for range in ranges {
            guard let parts = range.elements, parts.count >= 3, let first = parts[0].int64, let last = parts[1].int64,
                first >= 0, first <= last, last < KeySlot.count, let primary = Self.host(parts[2], asked)
            else { throw Self.otherForm(asked) }
            let index = try index(of: primary, asked)
            for slot in Int(first)...Int(last) { owners[slot] = index }
            for part in parts.dropFirst(3) {
                if let replica = Self.host(part, asked), !replicas.contains(replica) { replicas.append(replica) }
            }
        }
        guard !primaries.isEmpty else {
            throw RedisError(code: .unavailable, message: "the cluster of \(asked) serves no slot yet")
        }
    }

    func owner(of slot: UInt16) -> RedisHost? {
        let index = owners[Int(slot)]
        return index < 0 ? nil : primaries[Int(index)]
    }

    /// Notes what a node said of one slot.
    mutating func set(_ slot: UInt16, _ host: RedisHost) {
        if let index = try? index(of: host, host) { owners[Int(slot)] = index }
    }

    private mutating func index(of host: RedisHost, _ asked: RedisHost) throws(RedisError) -> Int16 {
        if let index = primaries.firstIndex(of: host) { return Int16(index) }
        guard primaries.count < Int(Int16.max) else { throw Self.otherForm(asked) }
        primaries.append(host)
        return Int16(primaries.count - 1)
    }

    private static func otherForm(_ asked: RedisHost) -> RedisError {
        RedisError(code: .protocolViolation, message: "\(asked) answered CLUSTER SLOTS in another form")
    }

    private static func host(_ node: RedisValue, _ asked: RedisHost) -> RedisHost? {
        guard let parts = node.elements, parts.count >= 2, let port = parts[1].int64.flatMap({ UInt16(exactly: $0) }),
            port > 0
        else { return nil }
        // A node that was never told its own address answers nothing or a question mark.
        let name = parts[0].text ?? ""
        return RedisHost(name: name.isEmpty || name == "?" ? asked.name : name, port: port)
    }
}

/// Where a node sends us instead: `MOVED 3999 127.0.0.1:6381`, or `ASK …` for this command alone.
enum Redirection: Equatable {
    case moved(slot: UInt16, RedisHost)
    case ask(RedisHost)
    /// Keys of the slot lie on two nodes while it moves.
    case tryAgain

    /// - Parameter asked: who answered; an empty host means the same one.
    init?(_ error: RedisError, from asked: RedisHost) {
        guard case .server(let prefix) = error.code else { return nil }
        if prefix == "TRYAGAIN" {
            self = .tryAgain
            return
        }
        guard prefix == "MOVED" || prefix == "ASK" else { return nil }
        let words = error.message.split(separator: " ")
        guard words.count >= 3, let slot = UInt16(words[1]), slot < KeySlot.count,
            let colon = words[2].lastIndex(of: ":"), let port = UInt16(words[2][words[2].index(after: colon)...]),
            port > 0
        else { return nil }
        // An IPv6 address comes without brackets here.
        let name = String(words[2][..<colon])
        let host = RedisHost(name: name.isEmpty || name == "?" ? asked.name : name, port: port)
        self = prefix == "MOVED" ? .moved(slot: slot, host) : .ask(host)
    }
}
