internal import EventLoop
internal import Postgres
internal import Redis
internal import RedisQueue
internal import Service
internal import Store
internal import Wire

/// Makes revocations known to Redis and the ingress processes, until they are: whoever revoked a device may not have
/// reached Redis. Every writer does this; saying it twice changes nothing.
struct RevocationPublisher: Sendable {
    let loop: EventLoop
    let devices: KnownDevices
    let postgres: PostgresClient
    let log: Log

    /// A revocation takes effect within a second.
    private static let pollMilliseconds: Int64 = 500
    private static let atOnce = 256

    func runUntilCancelled() async {
        while !Task.isCancelled {
            await once()
            await loop.sleep(milliseconds: Self.pollMilliseconds)
        }
    }

    func once() async {
        do {
            let hashes = try await postgres.withConnection { connection throws(PostgresError) in
                try await Devices.unpublishedRevocations(limit: Self.atOnce, connection)
            }
            guard !hashes.isEmpty else { return }
            for hash in hashes { try await devices.revoke(hash, nobody: DeviceFacts.encode(nil)) }
            try await postgres.withConnection { connection throws(PostgresError) in
                try await Devices.revocationsPublished(hashes, connection)
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
