import Foundation
import Postgres
import Store
import TestSupport
import Testing

/// The test that guards the joins: any set of jobs, in any order, with any repetition, in batches of any size, on two
/// writers at once, ends in the tables that the plain model says.
@Suite struct JoinPropertyTests {
    /// Sets that are delivered together: enough for batches to be mixed, few enough to collide.
    private static let setsAtOnce = 4

    @Test func anyDeliveryEndsInWhatTheModelSays() async throws {
        let environment = ProcessInfo.processInfo.environment
        let seed = environment["RATCHET_PROPERTY_SEED"].flatMap { UInt64($0) } ?? 20_261_130
        let count = environment["RATCHET_PROPERTY_SETS"].flatMap { Int($0) } ?? 1_000
        print("joins: \(count) sets from RATCHET_PROPERTY_SEED=\(seed)")
        var random = SeededGenerator(seed: seed)
        let sets = (0..<count).map { JobGenerator.jobs(set: $0, &random) }

        var deliveries: [[[StampedWrite]]] = [[], []]
        for start in stride(from: 0, to: count, by: Self.setsAtOnce) {
            var jobs: [StampedWrite] = []
            for set in sets[start..<min(count, start + Self.setsAtOnce)] {
                for job in set { for _ in 0..<random.pick([1, 1, 2, 3]) { jobs.append(job) } }
            }
            jobs.shuffle(using: &random)
            let split = Int.random(in: 0...jobs.count, using: &random)
            for (writer, part) in [jobs[..<split], jobs[split...]].enumerated() {
                var rest = part
                while !rest.isEmpty {
                    let size = random.pick([1, 2, 5, 12, 40, 120])
                    deliveries[writer].append(Array(rest.prefix(size)))
                    rest = rest.dropFirst(size)
                }
            }
        }

        let store = try await TestStore.make()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for batches in deliveries {
                group.addTask {
                    try await store.withConnection { connection in
                        for batch in batches { _ = try await SDKWrites.apply(batch, connection) }
                    }
                }
            }
            try await group.waitForAll()
        }

        var found: [String: [String]] = [:]
        for line in try await store.withConnection({ try await Self.dump($0) }) {
            // Organizations are named p<set>a and p<set>b.
            let organization = line.prefix { $0 != " " }
            found[String(organization.dropFirst().dropLast()), default: []].append(line)
        }
        var wrong = 0
        for (index, jobs) in sets.enumerated() {
            let expected = JoinModel.lines(jobs)
            let actual = (found.removeValue(forKey: String(index)) ?? []).sorted()
            guard expected != actual else { continue }
            wrong += 1
            if wrong == 1 {
                let missing = expected.filter { !actual.contains($0) }
                let extra = actual.filter { !expected.contains($0) }
                Issue.record(
                    "set \(index) (seed \(seed))\nmodel: \(missing.prefix(3))\nstore: \(extra.prefix(3))")
            }
        }
        #expect(wrong == 0)
        #expect(found.isEmpty)
    }

    /// Every row of every table that jobs write, in the words of `JoinModel`.
    private static func dump(_ connection: PostgresConnection) async throws -> [String] {
        let queries = [
            """
            SELECT format('%s customer %s %s %s %s %s %s %s %s', organization, id, app_user_id, first_seen, last_seen,
                attested::text, last_write_at, last_write_attested::text, coalesce(last_write_reason, '-'))
                || format(' %s@%s %s@%s %s@%s %s@%s', coalesce(platform, '-'), platform_at, coalesce(os_version, '-'),
                os_version_at, coalesce(device_model, '-'), device_model_at, coalesce(locale, '-'), locale_at)
                || ' {' || coalesce((SELECT string_agg(key || '=' || (value ->> 0) || ':' || coalesce(value ->> 1, '-'),
                ';' ORDER BY key COLLATE "C") FROM jsonb_each(attributes)), '') || '}' AS line FROM customers
            """,
            """
            SELECT format('%s purchase %s %s %s %s %s %s %s %s@%s %s@%s', organization, store, encode(lineage, 'hex'),
                original_transaction_id, first_seen, last_seen, attested::text, jws_verified::text,
                coalesce(raw_bundle_id, '-'), raw_bundle_id_at, coalesce(raw_product_id, '-'), raw_product_id_at)
                AS line FROM purchases
            """,
            """
            SELECT format('%s owner %s %s %s %s %s %s %s %s %s', organization, store, encode(lineage, 'hex'), stamp,
                customer, attested::text, jws::text, operator::text, coalesce(device, '-'),
                coalesce(address_hash, '-')) AS line FROM purchase_owner_writes
            """,
            """
            SELECT format('%s move %s %s %s %s %s %s %s %s %s %s %s', organization, store, encode(lineage, 'hex'), stamp,
                coalesce(from_customer::text, '-'), to_customer, attested::text, jws::text, operator::text,
                coalesce(device, '-'), coalesce(address_hash, '-'), contested::text) AS line FROM purchase_moves
            """,
            """
            SELECT format('%s transaction %s %s %s %s %s %s %s %s %s %s', organization, store,
                encode(transaction_key, 'hex'), transaction_id, encode(lineage, 'hex'), signed_at, payload_digest,
                bundle_id, product_id, environment, purchased_at)
                || format(' %s %s %s %s %s %s %s %s %s %s %s %s', coalesce(original_purchased_at::text, '-'),
                coalesce(expires_at::text, '-'), coalesce(type, '-'), coalesce(ownership, '-'),
                coalesce(revoked_at::text, '-'), coalesce(revocation_reason::text, '-'),
                coalesce(is_upgraded::text, '-'), coalesce(price::text, '-'), coalesce(currency, '-'),
                coalesce(storefront, '-'), coalesce(app_account_token, '-'), coalesce(quantity::text, '-')) AS line
            FROM transactions
            """,
        ]
        var lines: [String] = []
        for sql in queries {
            for row in try await connection.query(sql).rows { lines.append(try row.string("line")) }
        }
        return lines
    }
}
