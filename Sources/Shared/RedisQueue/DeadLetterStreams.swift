package import Jobs
package import Redis

/// The dead letters in Redis: copied from here to Postgres, and put back into their lanes.
package struct DeadLetterStreams: Sendable {
    /// One letter as it lies in Redis.
    package struct Letter: Equatable, Sendable {
        package let partition: Int
        package let lane: Lane
        /// The entry's id in its stream: milliseconds since 1970, `-`, a number.
        package let entry: String
        package let header: [UInt8]
        package let payload: [UInt8]
        package let reason: [UInt8]
        package let text: [UInt8]
    }

    /// One letter on its way back into its lane.
    package struct Redrive: Sendable {
        package let entry: String
        package let header: JobHeader
        package let payload: [UInt8]

        package init(entry: String, header: JobHeader, payload: [UInt8]) {
            self.entry = entry
            self.header = header
            self.payload = payload
        }
    }

    /// How much of what was copied stays in Redis.
    package struct Caps: Sendable {
        /// For all streams together; each has its equal share, so that the sum can't exceed it. A fraction of any
        /// sensible maxmemory: the letters lie in Postgres.
        package var bytes: Int64 = 64 << 20
        /// A week: whoever looks at Redis itself during an incident still finds them.
        package var milliseconds: Int64 = 7 * 86_400_000
        package init() {}
    }

    /// A note that a letter was put back outlives the letter in Postgres, which goes after 30 days.
    private static let noteMilliseconds: Int64 = 31 * 86_400_000
    /// Entries read of one stream at a time: at most 8 MiB, were each of the greatest size.
    private static let mostRead: Int64 = 32
    /// Entries that one call trims.
    private static let mostTrimmed: Int64 = 500
    /// Most letters and bytes that one call puts back: Redis works on nothing else meanwhile.
    private static let mostRedriven = 100
    private static let mostRedrivenBytes = 1 << 20

    private let client: RedisClient
    private let keys: QueueKeys
    private let caps: Caps

    package init(client: RedisClient, keys: QueueKeys, caps: Caps = Caps()) {
        self.client = client
        self.keys = keys
        self.caps = caps
    }

    /// The oldest letters of a partition that are not known to be copied; at most 32 of each lane.
    package func uncopied(_ partition: Int) async throws(RedisError) -> [Letter] {
        let lanes = Lane.allCases
        let copied =
            try await client.command(
                ["HMGET", .text(keys.copied(partition))] + lanes.map { RedisArgument.text($0.name) }
            ).elements ?? []
        let answers = await client.pipeline(
            lanes.indices.map { index in
                let from = copied.indices.contains(index) ? copied[index].text.map { "(" + $0 } : nil
                return [
                    "XRANGE", .text(keys.dead(partition, lanes[index])), .text(from ?? "-"), "+", "COUNT",
                    .integer(Self.mostRead),
                ]
            })
        var letters: [Letter] = []
        for (lane, answer) in zip(lanes, answers) {
            for entry in try answer.get().elements ?? [] {
                if let letter = Self.letter(entry, partition, lane) { letters.append(letter) }
            }
        }
        return letters
    }

    private static func letter(_ entry: RedisValue, _ partition: Int, _ lane: Lane) -> Letter? {
        guard let parts = entry.elements, parts.count == 2, let id = parts[0].text, let fields = parts[1].elements
        else { return nil }
        var values: [String: [UInt8]] = [:]
        for index in stride(from: 0, to: fields.count - 1, by: 2) {
            if let name = fields[index].text { values[name] = fields[index + 1].bytes }
        }
        return Letter(
            partition: partition, lane: lane, entry: id, header: values["h"] ?? [], payload: values["p"] ?? [],
            reason: values["reason"] ?? [], text: values["text"] ?? [])
    }

    /// Notes that a stream is copied up to and with an entry, and trims what is copied and beyond the caps. Call it
    /// once the copy is committed; without an entry it only trims.
    /// - Returns: how many entries went.
    @discardableResult
    package func copied(
        _ partition: Int, _ lane: Lane, through entry: String? = nil, nowMilliseconds: Int64
    ) async throws(RedisError) -> Int64 {
        let share = caps.bytes / Int64(keys.partitions * Lane.allCases.count)
        return try await client.evaluate(
            QueueScripts.trimDead, keys: [.text(keys.dead(partition, lane)), .text(keys.copied(partition))],
            arguments: [
                .text(lane.name), .text(entry ?? ""), .integer(max(0, nowMilliseconds - caps.milliseconds)),
                .integer(share), .integer(Self.mostTrimmed),
            ]
        ).int64 ?? 0
    }

    /// Puts letters back into their lane. Safe to repeat in doubt, until `forgetRedriven`.
    /// - Returns: one answer a letter: whether this call added it; false says that an earlier one did.
    /// - Throws: `.unavailable` for a Redis that is not seeded; after any error some letters may be back.
    package func redrive(
        _ letters: [Redrive], _ partition: Int, _ lane: Lane
    ) async throws(RedisError) -> [Bool] {
        var answers: [Bool] = []
        var call: [RedisArgument] = []
        var bytes = 0
        for (index, letter) in letters.enumerated() {
            call += [
                .text(letter.entry), .text(letter.header.organization), .text(letter.header.encoded),
                .bytes(letter.payload),
            ]
            bytes += letter.payload.count
            let next = index + 1 < letters.count ? letters[index + 1].payload.count : Self.mostRedrivenBytes
            if call.count == 4 * Self.mostRedriven || bytes + next > Self.mostRedrivenBytes {
                answers += try await redrive(call, partition, lane)
                call.removeAll(keepingCapacity: true)
                bytes = 0
            }
        }
        return call.isEmpty ? answers : answers + (try await redrive(call, partition, lane))
    }

    private func redrive(
        _ letters: [RedisArgument], _ partition: Int, _ lane: Lane
    ) async throws(RedisError) -> [Bool] {
        let answer = try await client.evaluate(
            QueueScripts.redrive,
            keys: [
                .text(keys.meta(partition)), .text(keys.backlog(partition)), .text(keys.stats(partition)),
                .text(keys.redriven(partition)), .text(keys.lane(partition, lane)), .text(keys.dead(partition, lane)),
            ],
            arguments: [.text(lane.name), .integer(Self.noteMilliseconds)] + letters)
        guard let elements = answer.elements, elements.count == letters.count / 4 else {
            throw RedisError(
                code: .unavailable, message: "the queue in redis is not seeded yet: is a ratchet-writer running?")
        }
        return elements.map { $0.int64 == 1 }
    }

    /// Drops the notes about letters that Postgres knows to be back.
    package func forgetRedriven(_ entries: [String], _ partition: Int, _ lane: Lane) async throws(RedisError) {
        guard !entries.isEmpty else { return }
        _ = try await client.command(
            ["HDEL", .text(keys.redriven(partition))]
                + entries.map { RedisArgument.text("\(lane.name) \($0)") })
    }

    /// Takes letters off their stream for good.
    package func remove(_ entries: [String], _ partition: Int, _ lane: Lane) async throws(RedisError) {
        guard !entries.isEmpty else { return }
        _ = try await client.command(
            ["XDEL", .text(keys.dead(partition, lane))] + entries.map { RedisArgument.text($0) })
    }
}
