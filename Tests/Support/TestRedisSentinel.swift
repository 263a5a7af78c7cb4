package import Redis

/// A primary with two replicas and three sentinels on loopback, of a test's own.
package final class TestRedisSentinel: Sendable {
    /// The first one begins as the primary.
    package let servers: [TestRedis]
    package let sentinels: [TestRedis]
    /// What the sentinels call the primary.
    package static let name = "main"

    private init(servers: [TestRedis], sentinels: [TestRedis]) {
        self.servers = servers
        self.sentinels = sentinels
    }

    /// - Parameter downAfterMilliseconds: a primary that is silent for so long is failed over from.
    package static func start(
        _ options: TestRedis.Options = TestRedis.Options(), downAfterMilliseconds: Int = 2000
    ) async throws -> TestRedisSentinel {
        var options = options
        options.tcp = true
        options.arguments += ["--repl-diskless-sync-delay", "0"]
        let primary = try await TestRedis.start(options)
        options.arguments += ["--replicaof", "127.0.0.1", "\(primary.port)"]
        let servers = [primary, try await TestRedis.start(options), try await TestRedis.start(options)]
        try await primary.eventually("has two replicas in step") {
            let text = try await primary.command(["INFO", "replication"]).text ?? ""
            return text.split(whereSeparator: \.isNewline).count { $0.contains("state=online") } == 2
        }
        var sentinels: [TestRedis] = []
        for _ in 0..<3 {
            sentinels.append(
                try await TestRedis.start(
                    TestRedis.Options(sentinel: [
                        "sentinel monitor \(name) 127.0.0.1 \(primary.port) 2",
                        "sentinel down-after-milliseconds \(name) \(downAfterMilliseconds)",
                        "sentinel failover-timeout \(name) 10000", "sentinel parallel-syncs \(name) 1",
                    ])))
        }
        let system = TestRedisSentinel(servers: servers, sentinels: sentinels)
        for sentinel in sentinels {
            try await sentinel.eventually("the sentinels know each other and both replicas") {
                let facts = try await sentinel.command(["SENTINEL", "MASTER", .text(name)]).elements ?? []
                func number(_ field: String) -> Int64? {
                    facts.firstIndex { $0.text == field }.flatMap { facts[$0 + 1].int64 }
                }
                return number("num-other-sentinels") == 2 && number("num-slaves") == 2
            }
        }
        return system
    }

    /// `redis-sentinel://…/main`.
    package var url: String {
        "redis-sentinel://" + sentinels.map { "127.0.0.1:\($0.port)" }.joined(separator: ",") + "/\(Self.name)"
    }
    package var address: RedisAddress {
        RedisAddress(
            endpoint: .sentinel(
                name: Self.name, sentinels: sentinels.map { RedisHost(name: "127.0.0.1", port: UInt16($0.port)) }))
    }
    package func keyPrefix() -> String { servers[0].keyPrefix() }

    /// The primary that the first sentinel names.
    package func primary() async throws -> TestRedis {
        let reply = try await sentinels[0].command(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", .text(Self.name)])
        let port = reply.elements?.last?.int64
        guard let server = servers.first(where: { Int64($0.port) == port }) else {
            throw TestRedis.Failure(description: "the sentinels name none of ours")
        }
        return server
    }

    package func remove() async {
        for server in sentinels + servers { await server.remove() }
    }
}
