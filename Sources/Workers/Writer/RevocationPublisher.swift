internal import EventLoop
internal import Postgres
internal import Redis
internal import RedisQueue
internal import Service
internal import Store
internal import Wire

/// Makes known to Redis and the ingress processes which device tokens live no more: whoever ended one may not have
/// reached Redis, and Redis may forget it again, when it is put back to an earlier state or loses its newest writes in a
/// failover. Every writer does this; saying it twice changes nothing.
struct RevocationPublisher: Sendable {
    let loop: EventLoop
    let devices: KnownDevices
    let postgres: PostgresClient
    let log: Log

    /// A revocation takes effect within a second.
    private static let pollMilliseconds: Int64 = 500
    private static let atOnce = 256
    /// All recent ones are told again so often; a token that came back lives no longer than that and an ingress' memory.
    private static let againEveryPasses = 40
    /// Longer than anybody remembers a live token, their clocks' difference included.
    private static let recentMicroseconds = 2 * 1000 * KnownDevices.deviceMilliseconds
    /// Ended tokens are kept for a day, for whoever looks into what happened.
    private static let keptMicroseconds: Int64 = 86_400_000_000

    func runUntilCancelled() async {
        var pass = 0
        while !Task.isCancelled {
            await once(again: pass % Self.againEveryPasses == 0)
            pass += 1
            await loop.sleep(milliseconds: Self.pollMilliseconds)
        }
    }

    /// - Parameter again: whether those that ended lately are told once more.
    func once(again: Bool) async {
        do {
            let now = loop.time.wallMicroseconds
            let hashes = try await postgres.withConnection { connection throws(PostgresError) in
                guard again else { return try await EndedTokens.unpublished(limit: Self.atOnce, connection) }
                try await EndedTokens.forget(before: now - Self.keptMicroseconds, connection)
                let recent = try await EndedTokens.recent(since: now - Self.recentMicroseconds, connection)
                return recent + (try await EndedTokens.unpublished(limit: Self.atOnce, connection))
            }
            guard !hashes.isEmpty else { return }
            for hash in hashes { try await devices.revoke(hash, nobody: DeviceFacts.encode(nil)) }
            try await postgres.withConnection { connection throws(PostgresError) in
                try await EndedTokens.published(hashes, connection)
            }
        } catch let error as RedisError {
            log.limited(.warn, "redis is away; revocations wait", ["text": error.message])
        } catch let error as PostgresError {
            log.limited(.warn, "postgres is away; revocations wait", ["text": error.message])
        } catch {
            log.limited(.error, "revocations could not be published", ["text": "\(error)"])
        }
    }
}
