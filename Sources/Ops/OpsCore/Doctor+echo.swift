internal import EventLoop
internal import Glibc
internal import Jobs
internal import Redis
internal import RedisQueue

extension Doctor {
    /// A healthy queue answers within milliseconds; a busy one within a batch or two.
    private static let echoMilliseconds: Int64 = 3_000
    private static let echoLanes = [Lane.verifyLive, .writeLive]

    /// Sends a job through Redis, a verifier and a writer and waits for it to come back.
    func echo(_ installation: Installation) async -> [Check] {
        do throws(OpsError) {
            return try await installation.withRedis { client in
                let seed = QueueSeed(client: client, keys: installation.keys)
                do {
                    try await seed.checkShape()
                } catch is QueueSeed.Mismatch {
                    // Said by the check of the queue, as is a queue that is not seeded.
                    return []
                }
                guard await seed.isSeeded() == true else { return [] }
                let orders = try await QueueOrders(client: client, keys: installation.keys).list()
                if let order = orders.first(where: Self.stopsEcho) { return [Self.untried(order)] }
                return [try await echo(client, installation)]
            }
        } catch {
            return [Check("echo", .fail, error.message, remedy: "see the checks of Redis", isDependencyAway: true)]
        }
    }

    private static func stopsEcho(_ order: QueueOrder) -> Bool {
        switch order.scope {
        case .lane: echoLanes.contains { $0.name == order.target }
        case .kind: order.target == JobKind.echo.rawValue
        case .organization: false
        }
    }

    private static func untried(_ order: QueueOrder) -> Check {
        let what = order.action == .pause ? "paused" : "drained"
        return Check(
            "echo", .warn, "not tried: \(order.scope.rawValue) \(order.target) is \(what) (\(order.reason))",
            remedy: "when its cause is gone: ratchet queues resume \(Administration.flag(order.scope)) \(order.target)")
    }

    private func echo(_ client: RedisClient, _ installation: Installation) async throws -> Check {
        let keys = installation.keys
        let loop = installation.loop
        // An organization of its own: nobody's limit, nobody's backlog, and found again by its name.
        let name = "doctor-\(getpid())-\(String(UInt64.random(in: .min ... .max), radix: 36))"
        let asker = Asker(
            loop: loop, client: client, sink: RedisJobSink(loop: loop, client: client, keys: keys), keys: keys,
            process: name)
        let listening = asker.start()
        defer { listening.cancel() }
        guard await client.waitUntilSubscribed(milliseconds: Self.echoMilliseconds) else {
            return Check("echo", .fail, "Redis lets nobody subscribe", remedy: "allow SUBSCRIBE to this user")
        }
        let payload = Array(name.utf8)
        let began = time.monotonicNanoseconds
        let answer = await asker.ask(
            NewJob(kind: .echo, lane: .verifyLive, organization: name, subject: name, payload: payload),
            timeoutMilliseconds: Self.echoMilliseconds)
        let milliseconds = (time.monotonicNanoseconds - began) / 1_000_000
        switch answer {
        case .answered(payload):
            return Check("echo", .ok, "a job came back through verifier and writer after \(milliseconds) ms")
        case .answered: return Check("echo", .fail, "a job came back changed", remedy: "run one version everywhere")
        case .limited, .unavailable: return try await unanswered(answer, name, client, keys)
        }
    }

    /// Takes the job away again, and tells by its place who did not work.
    private func unanswered(
        _ answer: Asker.Answer, _ name: String, _ client: RedisClient, _ keys: QueueKeys
    ) async throws -> Check {
        let purge = QueuePurge(client: client, keys: keys)
        let partition = keys.partition(organization: name, subject: name)
        var missing: (stage: String, lane: Lane)?
        for (lane, stage) in zip(Self.echoLanes, ["ratchet-verifier", "ratchet-writer"]) {
            let filter = QueuePurge.Filter(lane: lane, kind: JobKind.echo.rawValue, organization: name)
            let counts = try await purge.purge(filter, partitions: [partition], whilePaused: false)
            if counts.fitting > 0 { missing = (stage, lane) }
        }
        if let missing {
            let live = try await QueueStatistics(client: client, keys: keys).liveWorkers(missing.lane)
            let seconds = Self.echoMilliseconds / 1_000
            // Without workers an installation is not at work yet, or they have never run: no fault of Redis.
            return live == 0
                ? Check(
                    "echo", .warn,
                    "no live \(missing.stage) took a job of lane \(missing.lane.name) within \(seconds) s",
                    remedy: "start \(missing.stage)")
                : Check(
                    "echo", .fail,
                    "\(live) live \(missing.stage) took no job of lane \(missing.lane.name) within \(seconds) s",
                    remedy: "see its breaker and its log; Postgres may be away, or all its hands busy")
        }
        guard case .unavailable(let why) = answer, why != Asker.nobodyAnswered else {
            return Check(
                "echo", .fail, "a worker took a job of a live lane and gave no answer in time",
                remedy: "see ratchet queues for pending jobs, and the workers' logs")
        }
        return Check("echo", .fail, "the queue took no job: \(why)", remedy: "see the checks of Redis")
    }
}
