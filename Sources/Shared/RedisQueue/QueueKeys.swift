package import Bytes
package import Jobs

/// Every key of the queue, built here and nowhere else (queue.md §2).
///
/// All keys of a partition carry its number in braces, so that a script touches one slot of a Redis Cluster. Names
/// from outside enter a key only as a digest.
package struct QueueKeys: Sendable {
    /// What every name starts with (RATCHET_KEY_PREFIX), so that several installations share one Redis.
    package let prefix: String
    /// Number of partitions, a power of two, fixed when the queue is made.
    package let partitions: Int
    /// By partition: what stands before the name of a limit.
    private let limitStarts: [[UInt8]]

    /// The consumer group of every lane.
    package static let group = "workers"
    /// Form of the keys and entries below; a queue of another form is refused.
    package static let layoutVersion = 1

    /// - Parameter partitions: a power of two from 1 to 1024; anything else traps, settings are checked at boot.
    package init(prefix: String, partitions: Int) {
        precondition(partitions > 0 && partitions <= 1024 && partitions & (partitions - 1) == 0)
        self.prefix = prefix
        self.partitions = partitions
        limitStarts = (0..<partitions).map { Array("\(prefix)rl:{\($0)}:".utf8) }
    }

    /// The partition of a subject within its organization: the first two bytes of a digest of both, so one
    /// organization spreads over all partitions.
    package func partition(organization: String, subject: String) -> Int {
        let digest = SHA256Digest(ofParts: [organization, subject]).bytes
        return (Int(digest[0]) << 8 | Int(digest[1])) & (partitions - 1)
    }

    /// Stream: waiting and in-flight jobs of a lane.
    package func lane(_ partition: Int, _ lane: Lane) -> String { "\(prefix)q:{\(partition)}:\(lane.name)" }
    /// Sorted set: delayed jobs, stamp → due milliseconds.
    package func due(_ partition: Int, _ lane: Lane) -> String { self.lane(partition, lane) + ":due" }
    /// Hash: delayed jobs, stamp → header, line feed, payload.
    package func later(_ partition: Int, _ lane: Lane) -> String { self.lane(partition, lane) + ":later" }
    /// Stream: dead letters.
    package func dead(_ partition: Int, _ lane: Lane) -> String { self.lane(partition, lane) + ":dead" }
    /// Hash: lane → the last dead letter known to be in Postgres.
    package func copied(_ partition: Int) -> String { "\(prefix)q:{\(partition)}:copied" }
    /// Hash with expiry: lane and entry of dead letters that were put back, until Postgres knows it.
    package func redriven(_ partition: Int) -> String { "\(prefix)q:{\(partition)}:redriven" }
    /// Stream: jobs of a paused kind or organization.
    package func parked(_ partition: Int, _ lane: Lane) -> String { self.lane(partition, lane) + ":parked" }
    /// String: the last stamp given out.
    package func clock(_ partition: Int) -> String { "\(prefix)q:{\(partition)}:clock" }
    /// Hash: `seeded`, `layout`, `partitions`, the shed level, the orders in force, and what they close for intake.
    package func meta(_ partition: Int) -> String { "\(prefix)q:{\(partition)}:meta" }
    /// Stream: changes of the orders not yet copied to Postgres; only partition 0 has one.
    package func changes(_ partition: Int) -> String { "\(prefix)q:{\(partition)}:changes" }
    /// Hash: counters by outcome and lane.
    package func stats(_ partition: Int) -> String { "\(prefix)q:{\(partition)}:stats" }
    /// Hash: entries not ended yet, by organization and by `kind:` and kind (no organization's id has a colon).
    package func backlog(_ partition: Int) -> String { "\(prefix)q:{\(partition)}:backlog" }
    /// Hash: stamp → starts of a suspected job that ran alone.
    package func alone(_ partition: Int) -> String { "\(prefix)q:{\(partition)}:alone" }
    /// String with expiry: the theoretical arrival time of a GCRA limit, microseconds. As bytes: each write makes one.
    package func limit(_ partition: Int, _ subject: SHA256Digest) -> [UInt8] {
        let start = limitStarts[partition]
        var key: [UInt8] = []
        key.reserveCapacity(start.count + 32)
        key.append(contentsOf: start)
        Hex.append(firstOf: subject.bytes, count: 16, to: &key)
        return key
    }
    /// String with expiry: whose a device token is, or that it is nobody's any more; by the SHA-256 of the token.
    package func device(_ tokenHash: [UInt8]) -> String {
        "\(prefix)dev:{\(partition(of: tokenHash))}:\(Hex.encode(tokenHash))"
    }
    /// String with expiry: a challenge that was used, by its SHA-256.
    package func used(_ challengeHash: [UInt8]) -> String {
        "\(prefix)used:{\(partition(of: challengeHash))}:\(Hex.encode(challengeHash))"
    }

    /// The partition of a limit that jobs of several partitions share.
    func home(of subject: SHA256Digest) -> Int { partition(of: subject.bytes) }

    /// What has no subject spreads by its own name, which is a digest.
    private func partition(of digest: [UInt8]) -> Int { (Int(digest[0]) << 8 | Int(digest[1])) & (partitions - 1) }

    /// String, expires in 5 s: a process lives.
    package func live(_ process: String) -> String { "\(prefix)live:\(process)" }
    /// Channel: answers to one ingress process.
    package func reply(_ process: String) -> String { "\(prefix)reply:\(process)" }
    /// Channel: hashes of tokens that live no more, 32 bytes each.
    package var revocations: String { "\(prefix)app:revocations" }
    /// Hash: `version` and `body` of the published app directory.
    package var directory: String { "\(prefix)app:directory" }
    /// Hash: bundle id → dropped writes not yet copied to Postgres.
    package var unresolved: String { "\(prefix)app:unresolved" }
    /// Hash: `EnrolmentCount` → how often, not yet copied to Postgres.
    package var enrolments: String { "\(prefix)app:enrolments" }
}
