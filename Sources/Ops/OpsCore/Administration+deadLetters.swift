internal import Bytes
internal import Jobs
internal import Postgres
internal import Redis
internal import RedisQueue
package import Store
internal import Wire

extension Administration {
    /// What a command on many letters did.
    package struct BulkResult: Equatable, Sendable {
        /// Letters that fitted at the start.
        package var total: Int64 = 0
        /// Of them, done by this call.
        package var done = 0
        /// Found to be done by an earlier call.
        package var before = 0
        /// Can't be put back: their header can't be read, or their payload was purged, or erased with an old token.
        package var refused: [Int64] = []
        /// The last letter looked at.
        fileprivate var last: Int64 = 0

        package var seen: Int { done + before + refused.count }
    }

    /// Letters locked, moved and marked in one transaction. Small enough that a rest of the work is never lost for
    /// long, and that two operators don't wait for each other.
    private static let batch = 500

    /// - Parameter ids: as listed; none for any.
    /// - Throws: `.usage` for what can't be an id, a lane or an organization.
    package static func deadLetterFilter(
        ids: [String] = [], lane: String? = nil, kind: String? = nil, organization: String? = nil,
        reason: String? = nil
    ) throws(OpsError) -> DeadLetterFilter {
        var numbers: [Int64] = []
        for id in ids { numbers.append(try deadLetterID(id)) }
        if let lane, Lane(name: lane) == nil {
            let known = Lane.allCases.map(\.name).joined(separator: ", ")
            throw OpsError(.usage, "\(quoted(lane)) is no lane: it must be one of \(known)")
        }
        if let organization { try checkOrganizationID(organization) }
        return DeadLetterFilter(
            ids: ids.isEmpty ? nil : numbers, lane: lane, kind: kind, organization: organization, reason: reason)
    }

    package static func deadLetterID(_ text: String) throws(OpsError) -> Int64 {
        guard let id = Int64(text), id > 0 else {
            throw OpsError(.usage, "\(quoted(text)) is no id of a dead letter: a number, as ratchet dead list shows it")
        }
        return id
    }

    /// The latest letters that wait for a decision, newest first, without payloads.
    package func deadLetters(_ filter: DeadLetterFilter, limit: Int) async throws(OpsError) -> [DeadLetterRecord] {
        try await installation.withPostgres { try await DeadLetters.list(filter, limit: limit, $0) }
    }

    package func countDeadLetters(_ filter: DeadLetterFilter) async throws(OpsError) -> Int64 {
        try await installation.withPostgres { try await DeadLetters.count(filter, $0) }
    }

    /// One letter, whatever became of it.
    package func deadLetter(id: Int64) async throws(OpsError) -> DeadLetterRecord {
        let found = try await installation.withPostgres { try await DeadLetters.find(id: id, $0) }
        guard let found else {
            throw OpsError(.notFound, "no dead letter \(id); ratchet dead list shows those there are")
        }
        return found
    }

    /// Puts letters back into their lanes, with no attempts on record. May be stopped at any moment and called again:
    /// no letter is put back twice.
    /// - Parameter progress: told after each batch, on the installation's loop's behalf.
    /// - Throws: `.notFound` for an id that there is not, before anything is done.
    package func retryDeadLetters(
        _ filter: DeadLetterFilter, progress: @Sendable (BulkResult) -> Void = { _ in }
    ) async throws(OpsError) -> BulkResult {
        try await inBatches(filter, .retried, progress) { letters, streams, connection in
            try await retry(letters, "dead.retry", Self.document(filter), streams, connection)
        }
    }

    /// Throws letters away for good, in Redis as in Postgres.
    package func purgeDeadLetters(
        _ filter: DeadLetterFilter, progress: @Sendable (BulkResult) -> Void = { _ in }
    ) async throws(OpsError) -> BulkResult {
        try await inBatches(filter, .purged, progress) { letters, streams, connection in
            for (place, group) in Self.places(letters) {
                guard let lane = Lane(name: place.lane) else { continue }
                try await streams.remove(group.map(\.entry), place.partition, lane)
            }
            try await mark(letters, .purged, "dead.purge", Self.document(filter), connection)
            return BulkResult(done: letters.count)
        }
    }

    /// Gives a letter another payload and puts it back.
    /// - Throws: `.usage` for a payload that its kind's worker would refuse, `.notFound` for no such letter.
    package func editDeadLetter(id: Int64, payload: [UInt8]) async throws(OpsError) -> BulkResult {
        let letter = try await deadLetter(id: id)
        try await checkBundle(Self.check(payload, of: letter), of: letter.organization)
        let filter = DeadLetterFilter(ids: [id])
        return try await inBatches(filter, .retried, { _ in }) { letters, streams, connection in
            // First: a retry may take the payload.
            try await DeadLetters.replacePayload(id: id, payload, connection)
            let result = try await retry(
                letters, "dead.edit",
                .members([
                    // Digests, not payloads: those may hold what users wrote.
                    "before": Self.document(letters.first?.payload ?? []), "after": Self.document(payload),
                ]), payload: payload, streams, connection)
            guard result.before == 0 else {
                throw OpsError(
                    .usage, "dead letter \(id) is back in its lane with its old payload; ratchet dead retry settles it")
            }
            return result
        }
    }

    private static func document(_ payload: [UInt8]) -> Document {
        .members(["bytes": .int(Int64(payload.count)), "sha256": .string(SHA256Digest(of: payload).hex)])
    }

    private static func document(_ filter: DeadLetterFilter) -> Document {
        .members([
            "lane": .text(filter.lane), "kind": .text(filter.kind), "organization": .text(filter.organization),
            "reason": .text(filter.reason),
        ])
    }

    /// The rules of the door, as the workers apply them.
    /// - Returns: the bundle that the write names.
    private static func check(_ payload: [UInt8], of letter: DeadLetterRecord) throws(OpsError) -> String {
        guard let header = JobHeader(encoded: letter.header) else {
            throw OpsError(.usage, "dead letter \(letter.id) has no readable header; it can only be purged")
        }
        guard header.version == 1 else {
            throw OpsError(.usage, "dead letter \(letter.id) has payload version \(header.version), not known here")
        }
        do throws(WireError) {
            switch header.kind {
            case .identify: return try checkIdentify(payload, before: letter.payload)
            case .attribute: return try checkAttribute(payload, before: letter.payload)
            case .adServices: return try checkAdServices(payload, before: letter.payload)
            default: break
            }
        } catch {
            throw OpsError(.usage, "the payload is refused: \(error.field ?? "payload"): \(error.message)")
        }
        throw OpsError(.usage, "payloads of kind \(quoted(header.kind.rawValue)) are not known here")
    }

    private static func checkIdentify(_ payload: [UInt8], before: [UInt8]) throws(WireError) -> String {
        let write = try IdentifyWrite(payload: payload)
        try checkProof(write.proof, of: (try? IdentifyWrite(payload: before))?.proof)
        return write.bundleID
    }

    private static func checkAttribute(_ payload: [UInt8], before: [UInt8]) throws(WireError) -> String {
        let write = try AttributeWrite(payload: payload)
        let before = try? AttributeWrite(payload: before)
        try checkProof(write.proof, of: before?.proof)
        if case .verified = write.evidence, write.evidence != before?.evidence {
            throw WireError(
                .invalidField, "what Apple signed can't be written by hand; put its jws there", field: "verified")
        }
        return write.bundleID
    }

    /// A token opens for the app and install that it was sealed for, and for no other.
    private static func checkAdServices(_ payload: [UInt8], before: [UInt8]) throws(WireError) -> String {
        let write = try AdServicesWrite(payload: payload)
        let before = try? AdServicesWrite(payload: before)
        try checkProof(write.proof, of: before?.proof)
        guard let before else { return write.bundleID }
        for (isSame, field) in [
            (write.sealedToken == before.sealedToken, "sealedToken"),
            (write.bundleID.utf8.elementsEqual(before.bundleID.utf8), "bundleId"),
            (write.subject.utf8.elementsEqual(before.subject.utf8), "installId"),
        ] where !isSame {
            throw WireError(
                .invalidField, "the token is sealed for its app and install: this must stay as it was", field: field)
        }
        return write.bundleID
    }

    /// Proof comes with a write or not at all: an edit may take it away, never bring it.
    private static func checkProof(_ proof: WriteProof, of before: WriteProof?) throws(WireError) {
        guard proof.attested || proof.deviceID != nil, proof != before else { return }
        throw WireError(
            .invalidField,
            before == nil
                ? "the letter's own payload can't be read, so its proof is lost: attested must be false, without a device"
                : "it must stay as it was, or say attested false, without a device",
            field: "proof")
    }

    /// What the door would not have let in for this organization must not come in behind it.
    private func checkBundle(_ bundleID: String, of organization: String) async throws(OpsError) {
        let owners = try await apps(organization: nil)
            .filter { $0.bundleID.utf8.elementsEqual(bundleID.utf8) }.map(\.organization)
        guard owners.isEmpty || owners.contains(organization) else {
            throw OpsError(
                .usage,
                "the payload is refused: bundleId: \(Self.quoted(bundleID)) is connected by another organization alone")
        }
    }

    // MARK: - Batches

    private typealias Work =
        @Sendable (
            [DeadLetterRecord], DeadLetterStreams, PostgresConnection
        ) async throws -> BulkResult

    private func inBatches(
        _ filter: DeadLetterFilter, _ goal: DeadLetterRecord.State, _ progress: @Sendable (BulkResult) -> Void,
        _ work: @escaping Work
    ) async throws(OpsError) -> BulkResult {
        let streams = DeadLetterStreams(client: try await installation.withPrimary { $0 }, keys: installation.keys)
        var result = try await start(filter, goal)
        do throws(OpsError) {
            while true {
                let after = result.last
                let part = try await batch(filter, after: after, streams, work)
                guard part.last > after else { return result }
                result.last = part.last
                result.done += part.done
                result.before += part.before
                result.refused += part.refused
                progress(result)
            }
        } catch {
            guard result.seen > 0 else { throw error }
            throw OpsError(
                error.code,
                "\(error.message) (after \(result.seen) of \(result.total); the same command goes on from there)")
        }
    }

    /// Counts, and sees to it that letters asked for by id exist.
    private func start(
        _ filter: DeadLetterFilter, _ goal: DeadLetterRecord.State
    ) async throws(OpsError) -> BulkResult {
        try await installation.withPostgres { connection in
            var result = BulkResult(total: try await DeadLetters.count(filter, connection))
            guard let ids = filter.ids else { return result }
            let states = try await DeadLetters.states(ids, connection)
            if let missing = ids.first(where: { states[$0] == nil }) {
                throw OpsError(.notFound, "no dead letter \(missing); nothing was done")
            }
            for id in Set(ids).sorted() where states[id] != .dead {
                if states[id] == goal { result.before += 1 } else { result.refused.append(id) }
            }
            return result
        }
    }

    /// One batch, in a transaction that holds its letters.
    private func batch(
        _ filter: DeadLetterFilter, after: Int64, _ streams: DeadLetterStreams,
        _ work: @escaping Work
    ) async throws(OpsError) -> BulkResult {
        try await installation.withPostgres { connection in
            var failure: (any Error)?
            var letters: [DeadLetterRecord] = []
            let result: BulkResult
            do {
                result = try await connection.transaction { () async throws(PostgresError) -> BulkResult in
                    letters = try await DeadLetters.lock(filter, after: after, atMost: Self.batch, connection)
                    guard let last = letters.last else { return BulkResult() }
                    do {
                        var result = try await work(letters, streams, connection)
                        result.last = last.id
                        return result
                    } catch {
                        failure = error
                        throw PostgresError(.usage, "the batch failed")
                    }
                }
            } catch {
                throw failure ?? error
            }
            // Postgres knows it now. What this call misses only lies there until it expires.
            for (place, group) in Self.places(letters) {
                guard let lane = Lane(name: place.lane) else { continue }
                try? await streams.forgetRedriven(group.map(\.entry), place.partition, lane)
            }
            return result
        }
    }

    private struct Place: Hashable {
        let partition: Int
        let lane: String
    }

    private static func places(_ letters: [DeadLetterRecord]) -> [Place: [DeadLetterRecord]] {
        Dictionary(grouping: letters) { Place(partition: Int($0.partition), lane: $0.lane) }
    }

    private func retry(
        _ letters: [DeadLetterRecord], _ action: String, _ detail: Document, payload: [UInt8]? = nil,
        _ streams: DeadLetterStreams, _ connection: PostgresConnection
    ) async throws -> BulkResult {
        var result = BulkResult()
        var moved: [DeadLetterRecord] = []
        var batches: [([DeadLetterStreams.Redrive], Int, Lane)] = []
        for (place, group) in Self.places(letters) {
            var going: [DeadLetterRecord] = []
            var entries: [DeadLetterStreams.Redrive] = []
            for letter in group {
                let payload = payload ?? letter.payload
                guard var header = JobHeader(encoded: letter.header), Lane(name: place.lane) != nil,
                    (0..<installation.keys.partitions).contains(place.partition),
                    header.kind != .adServices || !payload.isEmpty
                else {
                    result.refused.append(letter.id)
                    continue
                }
                header.attempts = 0
                // A letter that waited too long for a newer worker waits anew.
                header.enqueuedMilliseconds = nowMicroseconds / 1000
                going.append(letter)
                entries.append(
                    DeadLetterStreams.Redrive(entry: letter.entry, header: header, payload: payload))
            }
            guard let lane = Lane(name: place.lane), !going.isEmpty else { continue }
            moved += going
            batches.append((entries, place.partition, lane))
        }
        // Partitions are independent: the calls go out together.
        try await withThrowingTaskGroup(of: [Bool].self) { group in
            for (entries, partition, lane) in batches {
                group.addTask { try await streams.redrive(entries, partition, lane) }
            }
            for try await answers in group {
                for added in answers {
                    if added { result.done += 1 } else { result.before += 1 }
                }
            }
        }
        try await mark(moved, .retried, action, detail, connection)
        return result
    }

    /// Marks the letters and writes one audit row for each organization among them.
    private func mark(
        _ letters: [DeadLetterRecord], _ state: DeadLetterRecord.State, _ action: String, _ detail: Document,
        _ connection: PostgresConnection
    ) async throws {
        let now = nowMicroseconds
        try await DeadLetters.mark(letters.map(\.id), state, nowMicroseconds: now, connection)
        let groups = Dictionary(grouping: letters, by: \.organization).sorted { $0.key < $1.key }
        for (organization, group) in groups {
            let ids = group.map(\.id).sorted()
            let subject = ids.count == 1 ? "\(ids[0])" : "\(ids[0])...\(ids[ids.count - 1]) (\(ids.count) letters)"
            try await AuditLog.append(
                AuditEntry(
                    organization: organization.isEmpty ? nil : organization, at: now, actor: actor, action: action,
                    subject: subject,
                    detail: Document.members([
                        "from": .string("dead"), "to": .string(state.rawValue), "ids": .list(ids.map { .int($0) }),
                        "of": detail,
                    ]).jsonText), connection)
        }
    }
}
