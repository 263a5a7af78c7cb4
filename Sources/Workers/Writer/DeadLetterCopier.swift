internal import EventLoop
internal import Jobs
internal import Postgres
internal import Redis
internal import RedisQueue
internal import Service
internal import Store

/// Copies dead letters from Redis to Postgres, and lets Redis forget those that are there, once they are too old or
/// too many. While Postgres is away they stay in Redis.
///
/// Every writer does this; all steps may be repeated and may overlap.
struct DeadLetterCopier: Sendable {
    let loop: EventLoop
    let streams: DeadLetterStreams
    let partitions: Int
    let postgres: PostgresClient
    let log: Log

    /// An operator who looks finds what died a second ago.
    private static let pollMilliseconds: Int64 = 1000
    /// Age is looked at about once a minute.
    private static let tidyEveryPasses = 60
    /// How long Postgres keeps letters, whatever became of them: a month to find out what went wrong.
    static let keptMicroseconds: Int64 = 30 * 86_400_000_000
    /// Apple exchanges an AdServices token for 24 hours; after that its letter has no use for it.
    static let tokenKeptMicroseconds: Int64 = 86_400_000_000
    /// Old letters forgotten or erased by one statement.
    private static let forgottenAtOnce = 500

    func runUntilCancelled() async {
        var pass = 0
        while !Task.isCancelled {
            var more = false
            do {
                more = try await copy()
                if pass % Self.tidyEveryPasses == 0 { try await tidy() }
            } catch let error as RedisError {
                log.limited(.warn, "redis is away; dead letters wait", ["text": error.message])
            } catch let error as PostgresError {
                log.limited(.warn, "postgres is away; dead letters stay in redis", ["text": error.message])
            } catch {
                log.limited(.error, "dead letters could not be copied", ["text": "\(error)"])
            }
            pass += 1
            if !more { await loop.sleep(milliseconds: Self.pollMilliseconds) }
        }
    }

    /// Copies one bounded batch of each partition.
    /// - Returns: whether there was anything, so that there may be more.
    func copy() async throws -> Bool {
        var found = false
        for partition in 0..<partitions {
            let letters = try await streams.uncopied(partition)
            guard !letters.isEmpty else { continue }
            found = true
            try await keep(letters)
            var last: [Lane: String] = [:]
            for letter in letters { last[letter.lane] = letter.entry }
            for (lane, entry) in last {
                try await streams.copied(
                    partition, lane, through: entry, nowMilliseconds: loop.time.wallMilliseconds)
            }
        }
        return found
    }

    /// Returns once the letters are committed.
    func keep(_ letters: [DeadLetterStreams.Letter]) async throws(PostgresError) {
        let records = letters.map(Self.record)
        let new = try await postgres.withConnection { connection throws(PostgresError) in
            try await DeadLetters.insert(records, connection)
        }
        if new > 0 { log.info("dead letters copied", ["count": new]) }
    }

    /// Forgets what is too old, here and there.
    func tidy() async throws {
        for partition in 0..<partitions {
            for lane in Lane.allCases {
                try await streams.copied(partition, lane, nowMilliseconds: loop.time.wallMilliseconds)
            }
        }
        let oldest = loop.time.wallMicroseconds - Self.keptMicroseconds
        var went: Int
        repeat {
            went = try await postgres.withConnection { connection throws(PostgresError) in
                try await DeadLetters.forget(
                    diedBefore: oldest, atMost: Self.forgottenAtOnce, connection)
            }
        } while went == Self.forgottenAtOnce
        try await eraseTokens()
    }

    /// In Redis first, so that a failure between the two is made good by the next try.
    private func eraseTokens() async throws {
        let oldest = loop.time.wallMicroseconds - Self.tokenKeptMicroseconds
        var letters: [DeadLetterRecord]
        repeat {
            letters = try await postgres.withConnection { connection throws(PostgresError) in
                try await DeadLetters.tokens(stampedBefore: oldest, atMost: Self.forgottenAtOnce, connection)
            }
            guard !letters.isEmpty else { return }
            for letter in letters {
                guard let lane = Lane(name: letter.lane), (0..<Int64(partitions)).contains(letter.partition)
                else { continue }
                try await streams.remove([letter.entry], Int(letter.partition), lane)
            }
            let ids = letters.map(\.id)
            try await postgres.withConnection { connection throws(PostgresError) in
                try await DeadLetters.erase(ids, connection)
            }
            log.info("old tokens of dead letters erased", ["count": ids.count])
        } while letters.count == Self.forgottenAtOnce
    }

    /// A letter whose header can't be read is of no organization and no kind, and has stamp 0.
    private static func record(_ letter: DeadLetterStreams.Letter) -> DeadLetterRecord {
        let header = JobHeader(encoded: letter.header)
        let died = letter.entry.split(separator: "-").first.flatMap { Int64($0) } ?? 0
        return DeadLetterRecord(
            partition: Int64(letter.partition), stamp: header?.stamp ?? 0, organization: header?.organization ?? "",
            lane: letter.lane.name, kind: header?.kind.rawValue ?? "", entry: letter.entry, header: letter.header,
            payload: letter.payload, reason: String(decoding: letter.reason, as: UTF8.self),
            error: String(decoding: letter.text, as: UTF8.self),
            diedAt: died.multipliedReportingOverflow(by: 1000).partialValue)
    }
}
