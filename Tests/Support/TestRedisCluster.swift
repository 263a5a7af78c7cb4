package import Redis

/// A Redis Cluster of three primaries and three replicas on loopback, for one test process.
///
/// Nodes 0 to 2 begin as primaries, node 3 to 5 as their replicas in that order. `shared()` is one for all tests of the
/// process, which may not break it; tests of faults start their own.
package final class TestRedisCluster: Sendable {
    package let nodes: [TestRedis]

    private static let sharedCluster = Task { try await TestRedisCluster.start() }
    private static let primaries = 3
    private static let slots = 16_384

    private init(nodes: [TestRedis]) { self.nodes = nodes }

    /// The cluster that all tests of this process share.
    package static func shared() async throws -> TestRedisCluster { try await sharedCluster.value }

    /// A cluster of the test's own, every slot served and every replica in step.
    /// - Parameter nodeTimeoutMilliseconds: a node that is silent for so long is failed over from.
    package static func start(
        _ options: TestRedis.Options = TestRedis.Options(), nodeTimeoutMilliseconds: Int = 2000
    ) async throws -> TestRedisCluster {
        let nodes = try await withThrowingTaskGroup(of: (Int, TestRedis).self) { group in
            for index in 0..<2 * primaries {
                group.addTask {
                    var options = options
                    options.tcp = true
                    options.arguments += [
                        "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port",
                        "\(try LoopbackPort.lasting())", "--cluster-node-timeout", "\(nodeTimeoutMilliseconds)",
                        "--repl-diskless-sync-delay", "0",
                    ]
                    return (index, try await TestRedis.start(options))
                }
            }
            var nodes: [(Int, TestRedis)] = []
            for try await node in group { nodes.append(node) }
            return nodes.sorted { $0.0 < $1.0 }.map(\.1)
        }
        let cluster = TestRedisCluster(nodes: nodes)
        try await cluster.join()
        return cluster
    }

    private func join() async throws {
        for (index, node) in nodes.enumerated() {
            try await node.command(["CLUSTER", "SET-CONFIG-EPOCH", .integer(Int64(index + 1))])
            if index < Self.primaries {
                let first = index * Self.slots / Self.primaries
                let last = (index + 1) * Self.slots / Self.primaries - 1
                try await node.command(["CLUSTER", "ADDSLOTSRANGE", .integer(Int64(first)), .integer(Int64(last))])
            }
        }
        for node in nodes.dropFirst() {
            let bus = try await node.command(["CONFIG", "GET", "cluster-port"]).elements?.last?.int64 ?? 0
            try await nodes[0].command([
                "CLUSTER", "MEET", "127.0.0.1", .integer(Int64(node.port)), .integer(bus),
            ])
        }
        try await eachSays("cluster_known_nodes:\(nodes.count)", ["CLUSTER", "INFO"], nodes)
        for index in 0..<Self.primaries {
            let id = try await nodes[index].command(["CLUSTER", "MYID"]).text ?? ""
            let replica = nodes[Self.primaries + index]
            // Of a node that it has not met itself it knows by gossip, a moment later.
            try await replica.eventually("knows node \(index)") {
                try await replica.pipeline([["CLUSTER", "REPLICATE", .text(id)]])[0].isSuccess
            }
        }
        try await waitUntilWhole()
    }

    /// Returns once every node says that all slots are served, and every running replica is in step.
    package func waitUntilWhole() async throws {
        let running = nodes.filter { $0.processID != nil }
        try await eachSays("cluster_state:ok", ["CLUSTER", "INFO"], running)
        for node in running {
            try await node.eventually("is a primary or in step with one") {
                let text = try await node.command(["INFO", "replication"]).text ?? ""
                return text.contains("role:master") || text.contains("master_link_status:up")
            }
        }
    }

    private func eachSays(_ text: String, _ command: [RedisArgument], _ nodes: [TestRedis]) async throws {
        for node in nodes {
            try await node.eventually(text) { try await node.command(command).text?.contains(text) == true }
        }
    }

    // MARK: - Where it is

    /// `redis-cluster://…` with three of the nodes.
    package var url: String {
        "redis-cluster://" + nodes.prefix(Self.primaries).map { "127.0.0.1:\($0.port)" }.joined(separator: ",")
    }
    package var address: RedisAddress {
        RedisAddress(
            endpoint: .cluster(
                nodes: nodes.prefix(Self.primaries).map { RedisHost(name: "127.0.0.1", port: UInt16($0.port)) }))
    }
    package func keyPrefix() -> String { nodes[0].keyPrefix() }

    /// The slot of a key, as the cluster counts it.
    package func slot(of key: String) async throws -> Int64 {
        try await nodes[0].command(["CLUSTER", "KEYSLOT", .text(key)]).int64 ?? -1
    }

    /// The node that holds a key now, in the eyes of the first node that runs.
    package func primary(of key: String) async throws -> TestRedis {
        guard let witness = nodes.first(where: { $0.processID != nil }) else {
            throw TestRedis.Failure(description: "no node runs")
        }
        let slot = try await slot(of: key)
        for range in try await witness.command(["CLUSTER", "SLOTS"]).elements ?? [] {
            guard let parts = range.elements, parts.count > 2, let first = parts[0].int64, let last = parts[1].int64,
                (first...last).contains(slot), let port = parts[2].elements?.dropFirst().first?.int64,
                let node = nodes.first(where: { $0.port == port })
            else { continue }
            return node
        }
        throw TestRedis.Failure(description: "nobody holds \(key)")
    }

    // MARK: - Changing it

    /// Moves one slot with its keys, as an operator's resharding does, while it is in use.
    package func move(slot: Int64, from source: TestRedis, to target: TestRedis) async throws {
        let sourceID = try await source.command(["CLUSTER", "MYID"]).text ?? ""
        let targetID = try await target.command(["CLUSTER", "MYID"]).text ?? ""
        let number = RedisArgument.integer(slot)
        try await target.command(["CLUSTER", "SETSLOT", number, "IMPORTING", .text(sourceID)])
        try await source.command(["CLUSTER", "SETSLOT", number, "MIGRATING", .text(targetID)])
        while true {
            let keys = try await source.command(["CLUSTER", "GETKEYSINSLOT", number, 100]).elements ?? []
            if keys.isEmpty { break }
            try await source.command(
                ["MIGRATE", "127.0.0.1", .integer(Int64(target.port)), "", 0, 5000, "KEYS"]
                    + keys.compactMap { $0.bytes.map { RedisArgument.bytes($0) } })
        }
        for node in [target, source] {
            try await node.command(["CLUSTER", "SETSLOT", number, "NODE", .text(targetID)])
        }
    }

    package func remove() async {
        for node in nodes { await node.remove() }
    }
}

extension TestRedis {
    /// Asks again until the answer is yes: for what only another process knows and nobody is told of. A server that is
    /// away or hangs up, as one does that is made a replica, has not said yes.
    package func eventually(
        _ claim: String, within seconds: Int64 = 40, _ condition: () async throws -> Bool
    ) async throws {
        let end = ContinuousClock.now + .seconds(seconds)
        while true {
            do { if try await condition() { return } } catch is RedisError {}
            guard ContinuousClock.now < end else { throw Failure(description: "redis never came to: \(claim)\n\(log)") }
            try await Task.sleep(for: .milliseconds(20))
        }
    }
}

extension Result {
    var isSuccess: Bool { if case .success = self { true } else { false } }
}
