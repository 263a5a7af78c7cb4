internal import EventLoop
internal import Jobs
internal import Redis
internal import RedisQueue
internal import Service

extension Doctor {
    /// Shares of maxmemory, in percent. At the limit intake is refused.
    private static let memoryWarnPercent: Int64 = 75
    private static let memoryFailPercent: Int64 = 95
    /// A lane whose oldest job waits longer has no worker, or too few.
    private static let slowLaneMilliseconds: Int64 = 60_000

    /// Is there only where it fails.
    private static let roleCheck = "redis.role"

    struct RedisFindings: Sendable {
        var checks: [Check] = []
        /// Redis could be asked.
        var answers = false
        /// Nothing can be sent through it.
        var isReplica: Bool { checks.contains { $0.name == Doctor.roleCheck } }
        /// Of the published app directory; nil when there is none.
        var directoryVersion: Int64?
    }

    func redis(_ installation: Installation) async -> RedisFindings {
        do throws(OpsError) {
            return try await installation.withRedis { client in
                var findings = RedisFindings()
                findings.checks.append(Check("redis", .ok, "answers at \(client.address)"))
                findings.checks += try await servers(client, installation.settings)
                findings.checks += Self.privacy(client.address)
                findings.checks += await requirements(client, installation.settings)
                findings.checks += try await queue(client, installation)
                let published = PublishedDirectory(client: client, keys: installation.keys)
                findings.directoryVersion = try await published.version()
                findings.checks += try await redisClocks(client)
                findings.answers = true
                return findings
            }
        } catch {
            let isConfiguration = error.code == .configuration
            return RedisFindings(checks: [
                Check(
                    "redis", .fail, error.message,
                    remedy: "start Redis, or correct RATCHET_REDIS_URL", isDependencyAway: !isConfiguration)
            ])
        }
    }

    /// Each server for itself: one, or every primary of a cluster.
    private func servers(_ client: RedisClient, _ settings: Settings) async throws(RedisError) -> [Check] {
        var checks: [Check] = []
        for server in try await client.everyPrimary(["INFO"]) {
            let facts = Self.facts(try server.reply.get().text ?? "")
            checks += Self.server(facts, server.node.map { "\($0): " } ?? "", settings)
        }
        return checks
    }

    private static func server(_ facts: [String: String], _ node: String, _ settings: Settings) -> [Check] {
        var checks: [Check] = []
        let version = facts["redis_version"] ?? "unknown"
        if facts["role"] == "slave" {
            checks.append(
                Check(
                    roleCheck, .fail, "\(node)a read-only replica: nothing can be accepted or settled there",
                    remedy: "name the primary, or its sentinels, in RATCHET_REDIS_URL"))
        }
        checks.append(
            RedisRequirements.isNewEnough(version: version)
                ? Check("redis.version", .ok, "\(node)\(version)")
                : Check(
                    "redis.version", .fail, "\(node)\(version) is too old",
                    remedy: "install Redis \(RedisRequirements.oldestMajorVersion) or newer"))
        let copies = facts["connected_slaves"].flatMap { Int($0) } ?? 0
        if settings.durability == .replicated, copies < settings.replicas {
            checks.append(
                Check(
                    "redis.replicas", .fail,
                    "\(node)\(copies) replicas are connected, RATCHET_REPLICAS is \(settings.replicas): every write is"
                        + " answered 503", remedy: "start the replicas; redis-cli INFO replication shows them"))
        }
        let used = facts["used_memory"].flatMap { Int64($0) } ?? 0
        guard let most = facts["maxmemory"].flatMap({ Int64($0) }), most > 0 else { return checks }
        let percent = Int64((Double(used) / Double(most) * 100).rounded(.down))
        let text = "\(node)\(percent) % of \(most >> 20) MiB used"
        if percent < memoryWarnPercent {
            checks.append(Check("redis.memory", .ok, text))
        } else {
            checks.append(
                Check(
                    "redis.memory", percent < memoryFailPercent ? .warn : .fail,
                    "\(text): at the limit every write is refused with 503",
                    remedy: "see ratchet queues for what piles up; redis-cli CONFIG SET maxmemory raises the limit"))
        }
        return checks
    }

    /// The `name:value` lines of INFO.
    private static func facts(_ text: String) -> [String: String] {
        var facts: [String: String] = [:]
        for line in text.split(whereSeparator: \.isNewline) {
            if let colon = line.firstIndex(of: ":") {
                facts[String(line[..<colon])] = String(line[line.index(after: colon)...])
            }
        }
        return facts
    }

    private func requirements(_ client: RedisClient, _ settings: Settings) async -> [Check] {
        let durability = RedisRequirements.Durability(rawValue: settings.durability.rawValue) ?? .fsync
        do throws(RedisError) {
            let problems = try await RedisRequirements.problems(client, durability: durability)
            guard !problems.isEmpty else {
                return [Check("redis.settings", .ok, "fit for RATCHET_DURABILITY=\(settings.durability.rawValue)")]
            }
            return problems.map {
                Check(
                    "redis.settings", settings.redisUnchecked ? .warn : .fail, $0.message,
                    remedy: "\($0.remedy), and put it into redis.conf")
            }
        } catch {
            guard !settings.redisUnchecked else {
                return [Check("redis.settings", .ok, "hidden by the server, and RATCHET_REDIS_UNCHECKED=1")]
            }
            return [
                Check(
                    "redis.settings", .fail, "Redis doesn't show its settings: \(error.message)",
                    remedy: "allow CONFIG GET, or make sure of them by hand and set RATCHET_REDIS_UNCHECKED=1")
            ]
        }
    }

    private func queue(_ client: RedisClient, _ installation: Installation) async throws -> [Check] {
        let keys = installation.keys
        let shape = try await client.command(["HMGET", .text(keys.meta(0)), "layout", "partitions"]).elements ?? []
        let layout = shape.first?.text
        let partitions = shape.last?.text
        if let partitions, partitions != String(keys.partitions) {
            return [
                Check(
                    "queue", .fail,
                    "the queue in Redis has \(partitions) partitions, RATCHET_PARTITIONS is"
                        + " \(keys.partitions)", remedy: "set RATCHET_PARTITIONS=\(partitions)")
            ]
        }
        if let layout, layout != String(QueueKeys.layoutVersion) {
            return [
                Check(
                    "queue", .fail,
                    "the queue in Redis has layout \(layout), this version wants"
                        + " \(QueueKeys.layoutVersion)",
                    remedy: "run the version that made it until the queue is empty, or set another RATCHET_KEY_PREFIX")
            ]
        }
        guard await QueueSeed(client: client, keys: keys).isSeeded() == true else {
            return [
                Check(
                    "queue", .fail,
                    "Redis is new or was wiped: every write is answered 503 until a writer has seeded it",
                    remedy: "start ratchet-writer; a running one seeds within a second")
            ]
        }
        let lanes = try await QueueStatistics(client: client, keys: keys).lanes()
        let orders = try await QueueOrders(client: client, keys: keys).list()
        let checks = lanes.flatMap(Self.checks) + orders.map(Self.check)
        return checks.isEmpty ? [Check("queue", .ok, "seeded, \(keys.partitions) partitions, nothing stuck")] : checks
    }

    private static func checks(_ lane: LaneStatistics) -> [Check] {
        var checks: [Check] = []
        if let oldest = lane.oldestWaitingMilliseconds, oldest > slowLaneMilliseconds, !lane.paused {
            checks.append(
                Check(
                    "queue", .warn, "lane \(lane.lane.name): \(lane.waiting) wait, the oldest for \(oldest / 1000) s",
                    remedy: "start the workers of this lane, or more of them"))
        }
        return checks
    }

    /// Whoever comes to an incident must not have to ask for what others ordered.
    private static func check(_ order: QueueOrder) -> Check {
        let flag = order.scope == .organization ? "org" : order.scope.rawValue
        let what = order.action == .pause ? "paused" : "drained, and its intake closed,"
        return Check(
            "queue", .warn,
            "\(order.scope.rawValue) \(order.target) is \(what) by \(order.owner): \(order.reason)",
            remedy: "when its cause is gone: ratchet queues resume --\(flag) \(order.target)")
    }

    /// The client speaks no TLS. Whether a link is private can't be seen from here, only that one is needed.
    private static func privacy(_ address: RedisAddress) -> [Check] {
        let hosts: [String] =
            switch address.endpoint {
            case .unix: []
            case .tcp(let host, _): [host]
            case .sentinel(_, let hosts), .cluster(let hosts): hosts.map(\.name)
            }
        let isLocal = hosts.allSatisfy { $0 == "localhost" || $0 == "::1" || $0.hasPrefix("127.") }
        return isLocal
            ? []
            : [
                Check(
                    "redis.link", .ok,
                    "not encrypted (hiredis 0.14 has no TLS): make sure that it is a private network, or use stunnel")
            ]
    }

    private func redisClocks(_ client: RedisClient) async throws(RedisError) -> [Check] {
        let before = time.wallMicroseconds
        let servers = try await client.everyPrimary(["TIME"])
        let after = time.wallMicroseconds
        var checks: [Check] = []
        for server in servers {
            let parts = try server.reply.get().elements?.compactMap(\.int64) ?? []
            guard parts.count == 2 else {
                throw RedisError(code: .protocolViolation, message: "TIME answered in another form")
            }
            checks.append(
                clock(
                    "clock.redis", theirs: parts[0] &* 1_000_000 &+ parts[1], before, after,
                    server.node.map { "Redis at \($0)" } ?? "Redis"))
        }
        return checks
    }
}
