package import AppleAds
package import Postgres

/// A token that a sweeper holds.
package struct ClaimedToken: Equatable, Sendable {
    package let key: AdServicesKey
    /// 16 random bytes; without them nothing can be said of the token any more.
    package let lease: [UInt8]
    /// When others may take it, microseconds since 1970.
    package let leaseEnd: Int64
    /// When the token was received, microseconds since 1970.
    package let receivedAt: Int64
    package let dueAt: Int64
    package let sealedToken: [UInt8]
    package let attempts: Int64
    /// Apple's last status, 0 without an answer; nil before the first ask.
    package let lastStatus: Int64?
    /// Who is told of the outcome.
    package let callback: String?
    /// Where its row stood when it was claimed, as Postgres writes it (`(7,3)`). A hint: rows move.
    package let place: String
    /// Its last ask found nobody, or a server in trouble.
    package var isTroubled: Bool { lastStatus.map { $0 == 0 || $0 >= 500 } ?? false }

    package init(
        key: AdServicesKey, lease: [UInt8], leaseEnd: Int64, receivedAt: Int64, dueAt: Int64, sealedToken: [UInt8],
        attempts: Int64, lastStatus: Int64?, callback: String?, place: String
    ) {
        self.key = key
        self.lease = lease
        self.leaseEnd = leaseEnd
        self.receivedAt = receivedAt
        self.dueAt = dueAt
        self.sealedToken = sealedToken
        self.attempts = attempts
        self.lastStatus = lastStatus
        self.callback = callback
        self.place = place
    }
}

/// Whose token it is.
package struct AdServicesKey: Hashable, Sendable {
    package let organization: String
    package let bundleID: String
    /// `install` or `customer`.
    package let subjectKind: String
    /// An install id, folded, or a customer's id.
    package let subject: String

    package init(organization: String, bundleID: String, subjectKind: String, subject: String) {
        self.organization = organization
        self.bundleID = bundleID
        self.subjectKind = subjectKind
        self.subject = subject
    }

    /// By bytes: two spellings that Unicode takes for one are two installs.
    package static func == (a: AdServicesKey, b: AdServicesKey) -> Bool {
        a.parts.elementsEqual(b.parts) { $0.utf8.elementsEqual($1.utf8) }
    }

    package func hash(into hasher: inout Hasher) {
        for part in parts {
            hasher.combine(part.utf8.count)
            for byte in part.utf8 { hasher.combine(byte) }
        }
    }

    private var parts: [String] { [organization, bundleID, subjectKind, subject] }
}

/// What becomes of a claimed token.
package struct SweptToken: Equatable, Sendable {
    package enum Next: Equatable, Sendable {
        /// It stays and is due again then.
        case due(Int64)
        case ended(AdServicesVerdict.Ending, AttributionPayload?, at: Int64)
    }

    /// An ask that was made.
    package struct Ask: Equatable, Sendable {
        package let at: Int64
        /// 0 when no answer came.
        package let status: Int
        /// Whether it counts as an attempt: final answers and those that used up a rung do.
        package let counts: Bool

        package init(at: Int64, status: Int, counts: Bool) {
            self.at = at
            self.status = status
            self.counts = counts
        }
    }

    package let token: ClaimedToken
    /// Nil when Apple was not asked.
    package let ask: Ask?
    package let next: Next

    package init(_ token: ClaimedToken, ask: Ask?, next: Next) {
        self.token = token
        self.ask = ask
        self.next = next
    }

    /// A token given back as if it had never been claimed.
    package static func givenBack(_ token: ClaimedToken) -> SweptToken {
        SweptToken(token, ask: nil, next: .due(token.dueAt))
    }

    package var ending: AdServicesVerdict.Ending? {
        if case .ended(let ending, _, _) = next { ending } else { nil }
    }
}

/// How the sweep stands, for all sweepers.
package struct SweepState: Equatable, Sendable {
    /// Postgres' clock, microseconds since 1970: the one that all sweepers go by.
    package let databaseTime: Int64
    /// By hand; nil while it isn't.
    package let pausedAt: Int64?
    /// When that pause ends by itself; nil until it is lifted.
    package let pausedUntil: Int64?
    /// No ask goes out before.
    package let heldUntil: Int64
    /// A fixed word; nil before the first hold.
    package let holdReason: String?
    /// When the next token is due that nobody holds; nil when there is none.
    package let nextDueAt: Int64?

    /// - Parameter now: Postgres' clock.
    package func isPaused(at now: Int64) -> Bool { pausedAt != nil && now < pausedUntil ?? .max }
}

/// What waits for the sweep, counted up to a bound.
package struct SweepBacklog: Equatable, Sendable {
    /// Tokens that are due and not claimed; `AdServicesSweep.mostCounted` stands for that and more.
    package let due: Int64
    /// When the first of them was due; nil when none is.
    package let oldestDueAt: Int64?

    package init(due: Int64, oldestDueAt: Int64?) {
        self.due = due
        self.oldestDueAt = oldestDueAt
    }
}

/// The sweepers' side of the AdServices tokens: claim what is due, say what came of it. A claim notes a lease beside
/// `due_at`, so that the index of what is due is all that is ever looked at, and whoever dies is followed by another.
package enum AdServicesSweep {
    /// Counting more would cost more than the number is worth.
    package static let mostCounted: Int64 = 10_000

    /// - Parameters:
    ///   - now: which leases are over; microseconds since 1970.
    ///   - since: what is due before is not looked at.
    package static func state(
        now: Int64, since: Int64 = 0, _ connection: PostgresConnection
    ) async throws(PostgresError) -> SweepState {
        let row = try await connection.query(
            """
            SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, paused_at, paused_until, held_until,
                hold_reason, (SELECT due_at FROM adservices_tokens WHERE state = 'pending' AND due_at >= $1
                    AND (lease_end IS NULL OR lease_end <= $2) ORDER BY due_at LIMIT 1) AS next_due
            FROM adservices_sweep
            """, [.int64(since), .int64(now)]
        ).first
        guard let row else { throw PostgresError(.usage, "adservices_sweep has lost its row") }
        return SweepState(
            databaseTime: try row.int64("now"), pausedAt: try row.optionalInt64("paused_at"),
            pausedUntil: try row.optionalInt64("paused_until"),
            heldUntil: try row.int64("held_until"), holdReason: try row.optionalString("hold_reason"),
            nextDueAt: try row.optionalInt64("next_due"))
    }

    package static let claimStatement = claimStatement(of: "", order: "due_at")

    /// Of tokens whose last ask got an answer, or that were never asked about. The latest come first: what has piled up
    /// before them may be what always fails.
    package static let untroubledStatement = claimStatement(
        of: "AND (last_status IS NULL OR last_status BETWEEN 1 AND 499)", order: "due_at DESC")

    /// By the rows' places rather than their keys: no estimate of how many there are can turn it into a join that reads
    /// the whole table. The places hold, since the rows are locked. What is held is stepped over: that is only what the
    /// sweepers have in hand.
    private static func claimStatement(of which: StaticString, order: StaticString) -> String {
        """
        UPDATE adservices_tokens SET lease = $1, lease_end = $2
        WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM adservices_tokens
            WHERE state = 'pending' AND due_at BETWEEN $5 AND $3 AND (lease_end IS NULL OR lease_end <= $3) \(which)
            ORDER BY \(order) LIMIT $4 FOR UPDATE SKIP LOCKED))
        RETURNING organization, bundle_id, subject_kind, subject, stamp, due_at, sealed_token, attempts,
            last_status, callback, ctid AS place
        """
    }

    /// Takes the tokens that have been due for longest, those of sweepers whose lease is over among them.
    /// - Parameters:
    ///   - lease: 16 random bytes, never used before.
    ///   - leaseEnd: when others may take them; microseconds since 1970, as `now`.
    ///   - since: what was due before is left alone. A claim that goes on where the one before ended steps over nothing
    ///     that was claimed, and nothing that has ended: until a vacuum the index keeps all of it.
    ///   - untroubled: only those whose last ask, if there was one, got an answer.
    /// - Returns: the earliest due first.
    package static func claim(
        _ limit: Int, lease: [UInt8], leaseEnd: Int64, now: Int64, since: Int64 = 0, untroubled: Bool = false,
        _ connection: PostgresConnection
    ) async throws(PostgresError) -> [ClaimedToken] {
        let result = try await connection.query(
            untroubled ? untroubledStatement : claimStatement,
            [.bytes(lease), .int64(leaseEnd), .int64(now), .int64(Int64(limit)), .int64(since)])
        var claimed: [ClaimedToken] = []
        claimed.reserveCapacity(result.count)
        for row in result.rows {
            claimed.append(
                ClaimedToken(
                    key: AdServicesKey(
                        organization: try row.string("organization"), bundleID: try row.string("bundle_id"),
                        subjectKind: try row.string("subject_kind"), subject: try row.string("subject")),
                    lease: lease, leaseEnd: leaseEnd, receivedAt: try row.int64("stamp"),
                    dueAt: try row.int64("due_at"),
                    sealedToken: try row.bytes("sealed_token"), attempts: try row.int64("attempts"),
                    lastStatus: try row.optionalInt64("last_status"), callback: try row.optionalString("callback"),
                    place: try row.string("place")))
        }
        // An UPDATE answers in any order.
        return claimed.sorted { $0.dueAt < $1.dueAt }
    }

    /// Says what became of claimed tokens. A token whose lease is another's by now is left alone. What ends is erased.
    /// - Returns: the places in `swept` of those that were still held.
    package static func finish(
        _ swept: [SweptToken], _ connection: PostgresConnection
    ) async throws(PostgresError) -> Set<Int> {
        guard !swept.isEmpty else { return [] }
        var held = try await finish(Array(swept.indices), of: swept, finishStatement, connection)
        // Their rows have moved since, if their leases aren't lost: a later token of the same install was counted.
        let moved = swept.indices.filter { !held.contains($0) }
        if !moved.isEmpty {
            held.formUnion(try await finish(moved, of: swept, finishMovedStatement, connection))
        }
        return held
    }

    private static func finish(
        _ indices: [Int], of swept: [SweptToken], _ statement: String, _ connection: PostgresConnection
    ) async throws(PostgresError) -> Set<Int> {
        let those = indices.count == swept.count ? swept : indices.map { swept[$0] }
        let result = try await connection.query(statement, Self.parameters(those))
        var held = Set<Int>(minimumCapacity: result.count)
        for row in result.rows {
            let number = Int(try row.int64("number"))
            guard indices.indices.contains(number - 1) else { throw PostgresError(.usage, "a result of nothing") }
            held.insert(indices[number - 1])
        }
        return held
    }

    /// Keeps all sweepers from asking until then; a later end that stands already stays.
    /// - Parameter reason: a fixed word.
    package static func hold(
        until end: Int64, reason: String, _ connection: PostgresConnection
    ) async throws(PostgresError) {
        _ = try await connection.query(
            "UPDATE adservices_sweep SET held_until = $1, hold_reason = $2 WHERE held_until < $1",
            [.int64(end), .text(reason)])
    }

    package static func backlog(
        now: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> SweepBacklog {
        let row = try await connection.query(
            """
            SELECT count(*) AS due, min(due_at) AS oldest FROM (
                SELECT due_at FROM adservices_tokens
                WHERE state = 'pending' AND due_at <= $1 AND (lease_end IS NULL OR lease_end <= $1)
                ORDER BY due_at LIMIT $2
            ) AS waiting
            """, [.int64(now), .int64(mostCounted)]
        ).first
        return SweepBacklog(due: try row?.int64("due") ?? 0, oldestDueAt: try row?.optionalInt64("oldest"))
    }

    // MARK: - Finish

    package static let finishStatement = finishStatement(
        found: "t.ctid = n.place::tid AND", written: "t.ctid = n.row_place")

    /// Of rows that are not where they were claimed.
    package static let finishMovedStatement = finishStatement(
        found: "",
        written: """
            t.organization = n.organization AND t.bundle_id = n.bundle_id AND t.subject_kind = n.subject_kind
                AND t.subject = n.subject
            """)

    /// The rows are locked in the order of their keys, as the writers lock theirs: in another order the two would
    /// deadlock. What is written goes along with the locked rows: joined to them a second time by what no index holds,
    /// it took the square of their number.
    ///
    /// By place costs a fifth less than by two look-ups of a key with four parts. A row that somebody changes meanwhile
    /// has its new place, which the statement doesn't see yet: it is left for the other statement.
    private static func finishStatement(found: StaticString, written: StaticString) -> String {
        """
        WITH n AS MATERIALIZED (
            SELECT n.*, t.ctid AS row_place FROM unnest(
                $1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::bigint[], $8::bigint[],
                $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
                $16::bigint[], $17::bigint[], $18::bigint[], $19::text[], $20::text[], $21::text[], $22::text[],
                $23::bigint[], $24::bigint[], $25::text[], $26::text[]
            ) WITH ORDINALITY AS n(
                organization, bundle_id, subject_kind, subject, lease, state, due_at, attempts, asks, last_status,
                last_asked_at, ended_at, org_id, campaign_id, ad_group_id, keyword_id, ad_id, creative_set_id,
                conversion_type, claim_type, country_or_region, supply_placement, clicked_at, impression_at, payload,
                place, number)
            JOIN adservices_tokens AS t
                ON \(found) t.organization = n.organization AND t.bundle_id = n.bundle_id
                AND t.subject_kind = n.subject_kind AND t.subject = n.subject AND t.lease = n.lease
            ORDER BY t.organization, t.bundle_id, t.subject_kind, t.subject FOR UPDATE OF t
        )
        UPDATE adservices_tokens AS t SET
            state = n.state, due_at = n.due_at, lease = NULL, lease_end = NULL, ended_at = n.ended_at,
            sealed_token = CASE WHEN n.state = 'pending' THEN t.sealed_token END,
            attempts = t.attempts + n.attempts, asks = t.asks + n.asks,
            last_status = coalesce(n.last_status, t.last_status),
            last_asked_at = coalesce(n.last_asked_at, t.last_asked_at),
            org_id = n.org_id, campaign_id = n.campaign_id, ad_group_id = n.ad_group_id, keyword_id = n.keyword_id,
            ad_id = n.ad_id, creative_set_id = n.creative_set_id, conversion_type = n.conversion_type,
            claim_type = n.claim_type, country_or_region = n.country_or_region,
            supply_placement = n.supply_placement, clicked_at = n.clicked_at, impression_at = n.impression_at,
            payload = n.payload
        FROM n
        WHERE \(written)
        RETURNING n.number
        """
    }

    /// By index: a closure that is handed a whole record copies it, with a dozen references, for each of the columns.
    private static func parameters(_ swept: [SweptToken]) -> [PostgresParameter] {
        let payloads = swept.map(\.payload)
        func texts(_ value: (Int) -> String?) -> PostgresParameter {
            var array = PostgresArray(of: .text, capacity: swept.count)
            for index in swept.indices { array.append(text: value(index)) }
            return array.parameter
        }
        func int64s(_ value: (Int) -> Int64?) -> PostgresParameter {
            var array = PostgresArray(of: .int64, capacity: swept.count)
            for index in swept.indices { array.append(int64: value(index)) }
            return array.parameter
        }
        var leases = PostgresArray(of: .bytes, capacity: swept.count)
        for index in swept.indices { leases.append(bytes: swept[index].token.lease) }
        return [
            texts { swept[$0].token.key.organization }, texts { swept[$0].token.key.bundleID },
            texts { swept[$0].token.key.subjectKind }, texts { swept[$0].token.key.subject }, leases.parameter,
            texts { swept[$0].ending?.rawValue ?? "pending" }, int64s { swept[$0].dueAt },
            int64s { swept[$0].ask?.counts == true ? 1 : 0 }, int64s { swept[$0].ask == nil ? 0 : 1 },
            int64s { swept[$0].ask.map { Int64($0.status) } }, int64s { swept[$0].ask?.at },
            int64s { swept[$0].endedAt },
            int64s { payloads[$0]?.orgID }, int64s { payloads[$0]?.campaignID }, int64s { payloads[$0]?.adGroupID },
            int64s { payloads[$0]?.keywordID }, int64s { payloads[$0]?.adID }, int64s { payloads[$0]?.creativeSetID },
            texts { payloads[$0]?.conversionType }, texts { payloads[$0]?.claimType },
            texts { payloads[$0]?.countryOrRegion }, texts { payloads[$0]?.supplyPlacement },
            int64s { payloads[$0]?.clickedAt }, int64s { payloads[$0]?.impressionAt }, texts { payloads[$0]?.raw },
            texts { swept[$0].token.place },
        ]
    }
}

extension SweptToken {
    fileprivate var dueAt: Int64? { if case .due(let time) = next { time } else { nil } }
    fileprivate var endedAt: Int64? { if case .ended(_, _, let time) = next { time } else { nil } }
    fileprivate var payload: AttributionPayload? { if case .ended(_, let payload, _) = next { payload } else { nil } }
}
