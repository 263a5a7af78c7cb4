package import Jobs
package import Redis

/// Finds one job in Redis.
package struct JobSearch: Sendable {
    /// Where a job is now.
    package struct Place: Equatable, Sendable {
        package enum Kind: String, Sendable {
            case waiting, pending, due, parked, dead
        }
        package let kind: Kind
        package let lane: Lane
        /// Entry of the stream; nil for a delayed job.
        package let entry: String?
        package let header: JobHeader?
        /// When a delayed job comes back, milliseconds since 1970.
        package let dueMilliseconds: Int64?
        /// Which worker holds a pending job, for how long, and how often it was handed out.
        package let consumer: String?
        package let heldMilliseconds: Int64?
        package let deliveries: Int64?
    }

    package enum Finding: Equatable, Sendable {
        case found(Place)
        /// In none of the places, all of which were looked at.
        case absent
        /// Not among what was looked at; there was more than the bound.
        case unknown(searched: Int)
        /// No job of the partition has had that stamp yet.
        case neverAccepted
    }

    /// Entries looked at in each stream.
    private static let mostEntries = 4096
    private static let page = 128
    /// A job in its first lane has an entry of the very millisecond of its stamp, unless stamps run ahead of the clock.
    private static let nearMilliseconds: Int64 = 2

    /// A stamp is the time of its acceptance, pushed on at most by a burst; no two clocks differ by so much.
    private static let mostAheadSeconds: Int64 = 3_600

    private let client: RedisClient
    private let keys: QueueKeys

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// Looks in every place where a job may be. Bounded: delayed jobs are found by their stamp, waiting ones near its
    /// time, and else among the first 4,096 entries of each stream. Of the dead it looks at those that are not known to
    /// be in Postgres; the others are Postgres' to say.
    package func find(_ partition: Int, stamp: Int64) async throws(RedisError) -> Finding {
        let clock = RedisArgument.text(keys.clock(partition))
        var last = try await client.command(["GET", clock]).int64
        if last == nil {
            // A wiped Redis has no clock, and knows nothing of earlier jobs. What is to come it has not had either.
            let time = try await client.command(["TIME"], near: clock).elements?.first?.text.flatMap { Int64($0) }
            last = time.map { ($0 + Self.mostAheadSeconds) * 1_000_000 }
        }
        if let last, stamp > last { return .neverAccepted }
        var searched = 0
        // A job that moves between two looks may slip through; hardly twice.
        for _ in 0..<2 {
            searched = 0
            var complete = true
            for lane in Lane.allCases {
                if let place = try await delayed(partition, lane, stamp) { return .found(place) }
                let copied = try await client.command(["HGET", .text(keys.copied(partition)), .text(lane.name)]).text
                for (key, kind, from) in [
                    (keys.lane(partition, lane), Place.Kind.waiting, "-"), (keys.parked(partition, lane), .parked, "-"),
                    (keys.dead(partition, lane), .dead, copied.map { "(" + $0 } ?? "-"),
                ] {
                    let (entry, count, all) = try await scan(key, stamp, from: from)
                    searched += count
                    complete = complete && all
                    if let entry { return .found(try await place(entry, kind, lane, key)) }
                }
            }
            if !complete { return .unknown(searched: searched) }
        }
        return .absent
    }

    private func delayed(_ partition: Int, _ lane: Lane, _ stamp: Int64) async throws(RedisError) -> Place? {
        let score = try await client.command(["ZSCORE", .text(keys.due(partition, lane)), .integer(stamp)])
        guard let text = score.text, let due = Double(text) else { return nil }
        let entry = try await client.command(["HGET", .text(keys.later(partition, lane)), .integer(stamp)]).bytes
        let header = entry.flatMap { JobHeader(encoded: Array($0.prefix { $0 != 0x0A })) }
        return Place(
            kind: .due, lane: lane, entry: nil, header: header, dueMilliseconds: Int64(exactly: due.rounded()),
            consumer: nil, heldMilliseconds: nil, deliveries: nil)
    }

    private typealias Entry = (id: String, header: JobHeader)

    private func scan(
        _ key: String, _ stamp: Int64, from start: String
    ) async throws(RedisError) -> (entry: Entry?, searched: Int, complete: Bool) {
        let near = stamp / 1000
        let close = try await entries(
            key, from: "\(max(0, near - Self.nearMilliseconds))-0", to: "\(near + Self.nearMilliseconds)")
        if let entry = close.entries.first(where: { $0.header.stamp == stamp }) { return (entry, close.count, true) }
        var from = start
        var searched = 0
        while searched < Self.mostEntries {
            let page = try await entries(key, from: from, to: "+")
            searched += page.count
            if let entry = page.entries.first(where: { $0.header.stamp == stamp }) { return (entry, searched, true) }
            guard page.count == Self.page, let last = page.last else { return (nil, searched, true) }
            from = "(" + last
        }
        return (nil, searched, false)
    }

    private func entries(
        _ key: String, from: String, to: String
    ) async throws(RedisError) -> (entries: [Entry], count: Int, last: String?) {
        let answer = try await client.command([
            "XRANGE", .text(key), .text(from), .text(to), "COUNT", .integer(Int64(Self.page)),
        ])
        let items = answer.elements ?? []
        var entries: [Entry] = []
        for item in items {
            guard let parts = item.elements, parts.count == 2, let id = parts[0].text,
                let fields = parts[1].elements, fields.count >= 2, let header = fields[1].bytes,
                let parsed = JobHeader(encoded: header)
            else { continue }
            entries.append((id, parsed))
        }
        return (entries, items.count, items.last?.elements?.first?.text)
    }

    private func place(
        _ entry: Entry, _ kind: Place.Kind, _ lane: Lane, _ key: String
    ) async throws(RedisError) -> Place {
        var held: [RedisValue] = []
        if kind == .waiting {
            let id = RedisArgument.text(entry.id)
            do throws(RedisError) {
                let pending = try await client.command([
                    "XPENDING", .text(key), .text(QueueKeys.group), id, id, "1",
                ])
                held = pending.elements?.first?.elements ?? []
            } catch {
                // Before a worker has looked at the lane there is no group, and nothing is pending.
                guard error.code == .server("NOGROUP") else { throw error }
            }
        }
        return Place(
            kind: held.count == 4 ? .pending : kind, lane: lane, entry: entry.id, header: entry.header,
            dueMilliseconds: nil, consumer: held.count == 4 ? held[1].text : nil,
            heldMilliseconds: held.count == 4 ? held[2].int64 : nil,
            deliveries: held.count == 4 ? held[3].int64 : nil)
    }
}
