internal import EventLoop

/// The way to the nodes of a cluster: which of them holds a slot, and a link to each that holds any.
///
/// The map of slots is asked of one node after another: at the start, when a node says that a slot is elsewhere, when a
/// node is lost or silent, and each half second until every node of the map is connected. A node that lost its slots is
/// left once it has answered what it was asked, or has said nothing for a while.
///
/// `@unchecked Sendable`: confined to its loop; callbacks of the loop hold it weakly.
final class RedisCluster: @unchecked Sendable {
    /// Where to send something.
    enum Target: Equatable {
        /// The node that holds a slot.
        case slot(UInt16)
        /// Any node that holds slots, a connected one if there is one.
        case any
        /// A node that said it would take this one command though the slot isn't its own yet.
        case asking(RedisHost, UInt16)
    }

    private struct LinkName: Hashable {
        let host: RedisHost
        /// Whose connection of its own this is; nil is the one that all slots share.
        let slot: UInt16?
    }
    private struct Node {
        let link: RedisLink
        var receivedBytes: UInt64 = 0
        /// Looks in a row at which it owed answers and had sent nothing since the one before.
        var silentLooks = 0
    }

    private let loop: EventLoop
    private let address: RedisAddress
    private let configuration: RedisClientConfiguration
    private let seeds: [RedisHost]
    private let informant: RedisInformant<SlotMap>
    private var map = SlotMap.empty
    private var nodes: [LinkName: Node] = [:]
    private var isAsking = false
    private var lastAsked: Int64?
    private var askTimer: EventLoop.TimerToken?
    private var lookTimer: EventLoop.TimerToken?
    private var problem = RedisError(code: .unavailable, message: "not connected yet")
    /// Tasks that wait for a node, or for a map at all.
    private let changes: LoopWaiters

    /// `connected` when every node that holds slots is.
    private(set) var state = RedisLinkState.connecting
    var onStateChange: ((RedisLinkState) -> Void)?

    private static let lookMilliseconds: Int64 = 500
    /// Blocking reads are silent for a second and well.
    private static let mostSilentLooks = 3
    /// Between two questions for the map: a failover makes many commands ask at once.
    private static let askMilliseconds: Int64 = 100

    init(loop: EventLoop, address: RedisAddress, seeds: [RedisHost], configuration: RedisClientConfiguration) {
        self.loop = loop
        self.address = address
        self.seeds = seeds
        self.configuration = configuration
        changes = LoopWaiters(loop: loop)
        informant = RedisInformant(
            loop: loop, hosts: seeds, login: address, configuration: configuration, questions: [["CLUSTER", "SLOTS"]]
        ) { replies, node throws(RedisError) in try SlotMap(replies[0], from: node) }
    }

    // MARK: - Life

    func start() {
        loop.preconditionInLoop()
        if case .closed = state { return }
        refresh()
        look()
    }

    /// Ends every connection; pending commands fail with `.closed`.
    func close() {
        if case .closed = state { return }
        if let askTimer { loop.cancel(askTimer) }
        if let lookTimer { loop.cancel(lookTimer) }
        informant.close()
        state = .closed
        let ending = nodes.values
        nodes = [:]
        for node in ending {
            node.link.onStateChange = nil
            node.link.close()
        }
        changes.wake(false)
        onStateChange?(.closed)
        onStateChange = nil
    }

    /// Commands whose replies have not come, on all nodes.
    var inFlight: Int { nodes.values.reduce(0) { $0 + ($1.link.connection?.pendingCount ?? 0) } }

    /// Nodes that hold slots.
    var primaries: [RedisHost] { map.primaries.sorted { $0.description < $1.description } }
    /// Every node heard of, the given ones included.
    var knownNodes: [RedisHost] { map.nodes + seeds.filter { !map.nodes.contains($0) } }

    // MARK: - Routes

    /// The link that leads to a target, connected or not.
    func link(to target: Target) -> Result<RedisLink, RedisError> {
        if case .closed = state { return .failure(RedisError(code: .closed, message: "the client was closed")) }
        let own: (UInt16) -> UInt16? = { self.configuration.connectionPerSlot ? $0 : nil }
        switch target {
        case .asking(let host, let slot): return .success(node(LinkName(host: host, slot: own(slot))))
        case .slot(let slot):
            if let host = map.owner(of: slot) { return .success(node(LinkName(host: host, slot: own(slot)))) }
            refresh()
            let text = map.isEmpty ? problem.message : "no node serves slot \(slot)"
            return .failure(RedisError(code: .unavailable, message: text))
        case .any:
            let hosts = primaries
            let connected = hosts.first { nodes[LinkName(host: $0, slot: nil)]?.link.connection != nil }
            if let host = connected ?? hosts.first { return .success(node(LinkName(host: host, slot: nil))) }
            return .failure(RedisError(code: .unavailable, message: problem.message))
        }
    }

    /// The link of one node that holds slots.
    func link(to host: RedisHost) -> RedisLink { node(LinkName(host: host, slot: nil)) }

    /// Waits until a target can be reached. A node that was not tried yet gets the time to connect.
    /// - Parameter milliseconds: how long one that is known to be away is waited for; 0 not at all.
    func waitUntilReachable(_ target: Target, milliseconds: Int64) async {
        let began = loop.time.monotonicNanoseconds
        while true {
            if case .closed = state { return }
            var isNew = map.isEmpty && lastAsked == nil
            if case .success(let link) = link(to: target) {
                if link.connection != nil { return }
                isNew = link.isNew
            }
            let most = isNew ? max(milliseconds, configuration.connectTimeoutMilliseconds) : milliseconds
            let left = most - (loop.time.monotonicNanoseconds - began) / 1_000_000
            guard left > 0, await changes.wait(milliseconds: left, unless: { nil }) else { return }
        }
    }

    /// What follows from an error: where to go instead, or nil when it is the caller's.
    func next(after error: RedisError, from host: RedisHost?, slot: UInt16?) -> Target? {
        if error.code == .server("CLUSTERDOWN") || error.leavesServer { refresh() }
        guard let host, let redirection = Redirection(error, from: host) else { return nil }
        switch redirection {
        case .moved(let moved, let owner):
            map.set(moved, owner)
            refresh()
            return .slot(moved)
        case .ask(let other): return slot.map { .asking(other, $0) }
        case .tryAgain: return slot.map { .slot($0) }
        }
    }

    private func node(_ name: LinkName) -> RedisLink {
        if let node = nodes[name] { return node.link }
        var address = address
        address.endpoint = .tcp(host: name.host.name, port: name.host.port)
        let link = RedisLink(loop: loop, address: address, configuration: configuration)
        nodes[name] = Node(link: link)
        link.onStateChange = { [weak self] state in self?.changed(state) }
        link.start()
        return link
    }

    private func changed(_ state: RedisLinkState) {
        if case .disconnected = state { refresh() }
        updateState()
        changes.wake(true)
    }

    // MARK: - The map

    /// Asks for the map soon, unless that is under way.
    private func refresh() {
        guard !isAsking, askTimer == nil else { return }
        let now = loop.time.monotonicNanoseconds
        let rest = lastAsked.map { Self.askMilliseconds - (now - $0) / 1_000_000 } ?? 0
        guard rest > 0 else { return ask() }
        askTimer = loop.schedule(afterMilliseconds: rest) { [weak self] in
            self?.askTimer = nil
            self?.ask()
        }
    }

    private func ask() {
        if case .closed = state { return }
        isAsking = true
        informant.ask { [weak self] result in
            guard let self else { return }
            isAsking = false
            lastAsked = loop.time.monotonicNanoseconds
            switch result {
            case .success(let map): take(map)
            case .failure(let error): problem = error
            }
            // A node that is cut off from the others goes on telling what was: the next one has the next word.
            informant.doubt()
            updateState()
            changes.wake(true)
        }
    }

    private func take(_ map: SlotMap) {
        self.map = map
        informant.replace(hosts: knownNodes)
        if !configuration.connectionPerSlot { for host in map.primaries { _ = link(to: host) } }
        for name in nodes.keys where !isWanted(name) && nodes[name]?.link.connection == nil { retire(name) }
    }

    private func isWanted(_ name: LinkName) -> Bool {
        if let slot = name.slot { return map.owner(of: slot) == name.host }
        return map.primaries.contains(name.host)
    }

    private func retire(_ name: LinkName) {
        guard let node = nodes.removeValue(forKey: name) else { return }
        node.link.onStateChange = nil
        node.link.close(
            RedisError(code: .unavailable, message: "\(name.host) holds no slots any more, or did not answer"))
    }

    private func look() {
        lookTimer = loop.schedule(afterMilliseconds: Self.lookMilliseconds) { [weak self] in self?.look() }
        var isDoubtful = false
        for (name, node) in nodes {
            var node = node
            let received = node.link.connection?.receivedBytes ?? 0
            let owes = (node.link.connection?.pendingCount ?? 0) > 0
            node.silentLooks = owes && received == node.receivedBytes ? node.silentLooks + 1 : 0
            node.receivedBytes = received
            nodes[name] = node
            let isSilent = node.silentLooks >= Self.mostSilentLooks
            if isWanted(name) {
                isDoubtful = isDoubtful || isSilent
            } else if !owes || isSilent {
                retire(name)
            }
        }
        if isDoubtful || state != .connected { refresh() }
    }

    private func updateState() {
        if case .closed = state { return }
        var next = map.isEmpty ? RedisLinkState.disconnected(problem) : .connected
        if !map.isEmpty && !configuration.connectionPerSlot {
            for host in primaries {
                guard let link = nodes[LinkName(host: host, slot: nil)]?.link, link.connection == nil else { continue }
                next = link.state
                if case .disconnected = next { break }
            }
        }
        guard next != state else { return }
        state = next
        onStateChange?(next)
    }
}
