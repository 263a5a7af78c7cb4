package import Redis

/// What a Redis must promise before acknowledged writes are entrusted to it (queue.md §6).
package enum RedisRequirements {
    /// How durable an accepted write is.
    package enum Durability: String, Sendable {
        /// The reply leaves after the fsync.
        case fsync
        /// A second or so of writes is lost when the machine loses power. Of a crash of Redis alone little is: it hands
        /// writes to the kernel at once, but for up to two seconds while a slow sync is under way.
        case everysec
        /// A second machine has the write.
        case replicated
    }

    /// One promise that Redis does not give.
    package struct Problem: Sendable, Equatable {
        /// What is wrong, and what would follow from it.
        package let message: String
        /// The command that mends it now; it belongs into redis.conf as well.
        package let remedy: String

        /// The same, of one node of a cluster.
        fileprivate func of(_ node: String?) -> Problem {
            guard let node else { return self }
            // The last colon: an IPv6 address has more.
            let parts = node.split(separator: ":")
            let host = parts.dropLast().joined(separator: ":").filter { $0 != "[" && $0 != "]" }
            return Problem(
                message: "\(node): \(message)",
                remedy: remedy.replacing("redis-cli ", with: "redis-cli -h \(host) -p \(parts.last ?? "") "))
        }
    }

    /// The oldest major version with what the queue needs: script flags, and XAUTOCLAIM's answer of deleted entries.
    package static let oldestMajorVersion = 7

    /// - Parameter version: such as `7.0.15`; one that can't be read is none.
    package static func isNewEnough(version: String) -> Bool {
        (version.split(separator: ".").first.flatMap { Int($0) } ?? 0) >= oldestMajorVersion
    }

    /// The versions that are too old, of every primary of a cluster, each with where it runs.
    package static func oldVersions(_ client: RedisClient) async throws(RedisError) -> [String] {
        var old: [String] = []
        for server in try await client.everyPrimary(["INFO", "server"]) {
            let lines = (try server.reply.get().text ?? "").split(whereSeparator: \.isNewline)
            let version = lines.first { $0.hasPrefix("redis_version:") }?.split(separator: ":").last.map(String.init)
            if !isNewEnough(version: version ?? "") {
                old.append("\(version ?? "unknown") at \(server.node ?? client.address.description)")
            }
        }
        return old
    }

    /// Asks Redis for its settings, every primary of a cluster for its own.
    /// - Throws: `RedisError`; a server that hides CONFIG answers an error too, see RATCHET_REDIS_UNCHECKED.
    package static func problems(_ client: RedisClient, durability: Durability) async throws(RedisError) -> [Problem] {
        let names: [RedisArgument] = [
            "maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "no-appendfsync-on-rewrite",
            "cluster-enabled",
        ]
        var found: [Problem] = []
        for server in try await client.everyPrimary(["CONFIG", "GET"] + names) {
            let items = try server.reply.get().elements ?? []
            var values: [String: String] = [:]
            for index in stride(from: 0, to: items.count - 1, by: 2) {
                if let name = items[index].text { values[name] = items[index + 1].text }
            }
            if !client.isCluster && values["cluster-enabled"] == "yes" {
                return [
                    Problem(
                        message: "this redis is one node of a cluster, and holds only a part of the queue",
                        remedy: "RATCHET_REDIS_URL=redis-cluster://host:port,host:port with some of its nodes")
                ]
            }
            found += problems(values, durability: durability).map { $0.of(server.node) }
        }
        return found
    }

    static func problems(_ values: [String: String], durability: Durability) -> [Problem] {
        var problems: [Problem] = []
        func want(_ name: String, _ good: (String) -> Bool, _ message: String, _ value: String) {
            if !good(values[name] ?? "") {
                problems.append(Problem(message: message, remedy: "redis-cli CONFIG SET \(name) \(value)"))
            }
        }
        want(
            "maxmemory-policy", { $0 == "noeviction" }, "redis may evict waiting jobs when memory is full",
            "noeviction")
        want(
            "maxmemory", { $0 != "0" && !$0.isEmpty },
            "redis has no memory limit: the kernel would end it instead of intake being refused", "1gb")
        want("appendonly", { $0 == "yes" }, "redis forgets accepted writes when it restarts", "yes")
        want(
            "no-appendfsync-on-rewrite", { $0 == "no" }, "redis stops syncing to disk while it rewrites its log", "no")
        let syncs = values["appendfsync"] ?? ""
        if durability == .fsync && syncs != "always" {
            problems.append(
                Problem(
                    message:
                        "RATCHET_DURABILITY=fsync promises a sync to disk before each answer, redis syncs \(syncs)",
                    remedy: "redis-cli CONFIG SET appendfsync always"))
        } else if syncs == "no" {
            problems.append(
                Problem(
                    message: "redis leaves syncing to the kernel, half a minute of writes may be lost",
                    remedy: "redis-cli CONFIG SET appendfsync everysec"))
        }
        return problems
    }
}
