internal import Bytes
package import Postgres
internal import Wire

/// The writer's side of the store.
package enum SDKWrites {
    /// A batch folded and written out as statements: all that can be done before a connection is free.
    package struct Prepared: Sendable {
        fileprivate var statements: [PostgresStatement] = []
        /// Where the rows of each statement are counted.
        fileprivate var counts: [any WritableKeyPath<ApplyReport, Int> & Sendable] = []
        fileprivate var adServicesTokens: [NewAdServicesToken] = []
        fileprivate var report = ApplyReport()
    }

    /// One statement a table, rows in the order of their keys and tables in one order, so that two writers never
    /// deadlock.
    package static func prepare(_ writes: [StampedWrite]) -> Prepared {
        let fold = WriteFold(writes)
        var prepared = Prepared()
        prepared.report.lineageMismatches = fold.lineageMismatches
        prepared.adServicesTokens = fold.adServicesTokens
        func add(
            _ sql: String, _ columns: [PostgresParameter], _ count: any WritableKeyPath<ApplyReport, Int> & Sendable
        ) {
            prepared.statements.append(PostgresStatement(sql, columns))
            prepared.counts.append(count)
        }
        if !fold.customers.isEmpty {
            let (columns, cut) = customerColumns(fold)
            prepared.report.attributesCut = cut
            add(customerSQL, columns, \.customers)
        }
        if !fold.devices.isEmpty { add(deviceSQL, deviceColumns(fold), \.devices) }
        if !fold.purchases.isEmpty {
            add(purchaseSQL, purchaseColumns(fold), \.purchases)
            add(ownerWriteSQL, ownerWriteColumns(fold), \.ownerWrites)
        }
        if !fold.transactions.isEmpty { add(transactionSQL, transactionColumns(fold), \.transactions) }
        return prepared
    }

    /// Joins a batch into the store in one transaction. Applying it again, in parts, later or in another order ends in
    /// the same rows, and writes no row version where nothing changes.
    /// - Throws: a permanent error when a row of the batch can't be stored (nothing was; split the batch to find it),
    ///   otherwise one that a later try may not meet.
    /// - Parameter adServicesTimeScale: see `AdServicesTokens.accept`.
    package static func apply(
        _ prepared: Prepared, adServicesTimeScale: Int = 1, _ connection: PostgresConnection
    ) async throws(PostgresError) -> ApplyReport {
        var report = prepared.report
        _ = connection.takeNotices()
        if prepared.adServicesTokens.isEmpty {
            guard !prepared.statements.isEmpty else { return report }
            let results = try await connection.transaction(of: prepared.statements)
            for (count, result) in zip(prepared.counts, results) { report[keyPath: count] = result.affectedRows }
        } else {
            // What is asked last depends on answers.
            try await connection.transaction { () async throws(PostgresError) in
                for (count, statement) in zip(prepared.counts, prepared.statements) {
                    report[keyPath: count] =
                        try await connection.query(statement.sql, statement.parameters).affectedRows
                }
                let accepted = try await AdServicesTokens.accept(
                    prepared.adServicesTokens, timeScale: adServicesTimeScale, connection)
                report.adServicesTokens = accepted.written
                report.adServicesLater = accepted.later
            }
        }
        report.attributesCut += connection.takeNotices().count { $0.message == "attributes cut" }
        return report
    }

    /// Prepares and applies.
    package static func apply(
        _ writes: [StampedWrite], adServicesTimeScale: Int = 1, _ connection: PostgresConnection
    ) async throws(PostgresError) -> ApplyReport {
        try await apply(prepare(writes), adServicesTimeScale: adServicesTimeScale, connection)
    }

    // MARK: - Customers

    private static let customerSQL = """
        INSERT INTO customers AS c (
            id, organization, app_user_id, first_seen, last_seen, attested, last_write_at, last_write_attested,
            last_write_reason, platform, platform_at, os_version, os_version_at, device_model, device_model_at, locale,
            locale_at, attributes)
        SELECT \(rows([
            "uuid", "text", "text", "bigint", "bigint", "boolean", "bigint", "boolean", "text", "text", "bigint", "text",
            "bigint", "text", "bigint", "text", "bigint", "jsonb",
        ]))
        ON CONFLICT (id) DO UPDATE SET
            first_seen = least(c.first_seen, excluded.first_seen),
            last_seen = greatest(c.last_seen, excluded.last_seen),
            attested = c.attested OR excluded.attested,
            last_write_at = greatest(c.last_write_at, excluded.last_write_at),
            last_write_attested = CASE WHEN \(laterWrite)
                THEN excluded.last_write_attested ELSE c.last_write_attested END,
            last_write_reason = CASE WHEN \(laterWrite)
                THEN excluded.last_write_reason ELSE c.last_write_reason END,
            \(joinedText(["platform", "os_version", "device_model", "locale"], of: "c")),
            attributes = \(joinedAttributes)
        WHERE excluded.last_seen > c.last_seen OR excluded.first_seen < c.first_seen
            OR excluded.attested > c.attested OR \(laterWrite)
            OR \(laterText(["platform", "os_version", "device_model", "locale"], of: "c"))
            OR \(joinedAttributes) <> c.attributes
        """

    /// The join of attributes, by built-in operators where they say the same as `join_attributes`, which costs ten times
    /// as much: all of it later than all there is (a stamp of an attribute is never later than last_seen) and too small
    /// to hold more keys than are kept, which is the usual case and so comes first; or nothing new (equal pairs only:
    /// what holds a pair [stamp, text] is that pair). The column is stored uncompressed, so its size is that of its
    /// content.
    private static let joinedAttributes = """
        CASE WHEN excluded.first_seen > c.last_seen
                AND pg_column_size(c.attributes) + pg_column_size(excluded.attributes) < 4096
            THEN c.attributes || excluded.attributes
            WHEN c.attributes @> excluded.attributes THEN c.attributes
            ELSE join_attributes(c.attributes, excluded.attributes) END
        """

    /// The parameters as rows: arrays of one length, `$1` on. Set-returning functions of the select list go through
    /// their arrays step by step; `FROM unnest(…)` of several would first write each into a store of its own, which
    /// cost an eighth of the statement.
    static func rows(_ types: [String]) -> String {
        types.enumerated().map { "unnest($\($0.offset + 1)::\($0.element)[])" }.joined(separator: ", ")
    }

    private static let laterWrite = """
        (excluded.last_write_at, excluded.last_write_attested, coalesce(excluded.last_write_reason, '')) \
        > (c.last_write_at, c.last_write_attested, coalesce(c.last_write_reason, ''))
        """

    /// A text column with its stamp beside it. A column that was never written has stamp −1, less than any.
    private static func later(_ column: String, _ table: String) -> String {
        "(excluded.\(column)_at, excluded.\(column)) > (\(table).\(column)_at, \(table).\(column))"
    }

    private static func laterText(_ columns: [String], of table: String) -> String {
        columns.map { later($0, table) }.joined(separator: " OR ")
    }

    private static func joinedText(_ columns: [String], of table: String) -> String {
        columns.map { column in
            """
            \(column) = CASE WHEN \(later(column, table)) THEN excluded.\(column) ELSE \(table).\(column) END, \
            \(column)_at = greatest(\(table).\(column)_at, excluded.\(column)_at)
            """
        }.joined(separator: ", ")
    }

    private static func customerColumns(_ fold: WriteFold) -> (columns: [PostgresParameter], cut: Int) {
        let count = fold.customers.count
        // By id and place: the rows themselves stay where they are.
        let order = fold.customers.indices.map { (id: fold.customers[$0].id, place: $0) }.sorted { $0.id < $1.id }
        var ids = PostgresArray(of: .uuid, capacity: count)
        var organizations = PostgresArray(of: .text, capacity: count)
        var users = PostgresArray(of: .text, capacity: count)
        var firstSeen = PostgresArray(of: .int64, capacity: count)
        var lastSeen = PostgresArray(of: .int64, capacity: count)
        var attested = PostgresArray(of: .bool, capacity: count)
        var writeStamps = PostgresArray(of: .int64, capacity: count)
        var writeAttested = PostgresArray(of: .bool, capacity: count)
        var writeReasons = PostgresArray(of: .text, capacity: count)
        var platforms = StampedColumn(capacity: count)
        var osVersions = StampedColumn(capacity: count)
        var deviceModels = StampedColumn(capacity: count)
        var locales = StampedColumn(capacity: count)
        var attributes = PostgresArray(of: .jsonb, capacity: count)
        var cuts = 0
        fold.customers.withUnsafeBufferPointer { rows in
            for (id, place) in order {
                ids.append(uuidHigh: id.high, low: id.low)
                organizations.append(text: rows[place].organization)
                users.append(text: rows[place].appUserID)
                firstSeen.append(int64: rows[place].firstSeen)
                lastSeen.append(int64: rows[place].lastSeen)
                attested.append(bool: rows[place].attested)
                writeStamps.append(int64: rows[place].lastWrite.stamp)
                writeAttested.append(bool: rows[place].lastWrite.attested)
                writeReasons.append(text: rows[place].lastWrite.reason)
                platforms.append(rows[place].platform)
                osVersions.append(rows[place].osVersion)
                deviceModels.append(rows[place].deviceModel)
                locales.append(rows[place].locale)
                if attributes.append(jsonb: { rows[place].appendAttributes(to: &$0) }) { cuts += 1 }
            }
        }
        let columns =
            [ids, organizations, users, firstSeen, lastSeen, attested, writeStamps, writeAttested, writeReasons]
            + platforms.arrays + osVersions.arrays + deviceModels.arrays + locales.arrays + [attributes]
        return (columns.map(\.parameter), cuts)
    }

    /// A text column and that of its stamps.
    private struct StampedColumn {
        private var values: PostgresArray
        private var stamps: PostgresArray

        init(capacity: Int) {
            values = PostgresArray(of: .text, capacity: capacity)
            stamps = PostgresArray(of: .int64, capacity: capacity)
        }

        mutating func append(_ text: StampedText) {
            values.append(text: text.value)
            stamps.append(int64: text.stamp)
        }

        var arrays: [PostgresArray] { [values, stamps] }
    }

    // MARK: - Devices

    private static let deviceSQL = """
        UPDATE devices AS d SET last_seen_at = n.hour
        FROM unnest($1::text[], $2::text[], $3::bigint[]) AS n(organization, id, hour)
        WHERE d.organization = n.organization AND d.id = n.id AND n.hour > d.last_seen_at
        """

    private static func deviceColumns(_ fold: WriteFold) -> [PostgresParameter] {
        var organizations = PostgresArray(of: .text, capacity: fold.devices.count)
        var ids = PostgresArray(of: .text, capacity: fold.devices.count)
        var hours = PostgresArray(of: .int64, capacity: fold.devices.count)
        let rows = fold.devices.sorted { ($0.key.organization, $0.key.id) < ($1.key.organization, $1.key.id) }
        for (name, hour) in rows {
            organizations.append(text: name.organization)
            ids.append(text: name.id)
            hours.append(int64: hour)
        }
        return [organizations.parameter, ids.parameter, hours.parameter]
    }

    // MARK: - Purchases

    private static let purchaseSQL = """
        INSERT INTO purchases AS p (
            organization, store, lineage, original_transaction_id, first_seen, last_seen, attested, jws_verified,
            raw_bundle_id, raw_bundle_id_at, raw_product_id, raw_product_id_at)
        SELECT \(rows([
            "text", "text", "bytea", "text", "bigint", "bigint", "boolean", "boolean", "text", "bigint", "text", "bigint",
        ]))
        ON CONFLICT (organization, store, lineage) DO UPDATE SET
            first_seen = least(p.first_seen, excluded.first_seen),
            last_seen = greatest(p.last_seen, excluded.last_seen),
            attested = p.attested OR excluded.attested,
            jws_verified = p.jws_verified OR excluded.jws_verified,
            \(joinedText(["raw_bundle_id", "raw_product_id"], of: "p"))
        WHERE excluded.last_seen > p.last_seen OR excluded.first_seen < p.first_seen
            OR excluded.attested > p.attested OR excluded.jws_verified > p.jws_verified
            OR \(laterText(["raw_bundle_id", "raw_product_id"], of: "p"))
        """

    private static func purchaseColumns(_ fold: WriteFold) -> [PostgresParameter] {
        let rows = fold.purchases.sorted { $0.key < $1.key }
        var columns = keyColumns(rows.map(\.key))
        var ids = PostgresArray(of: .text, capacity: rows.count)
        var firstSeen = PostgresArray(of: .int64, capacity: rows.count)
        var lastSeen = PostgresArray(of: .int64, capacity: rows.count)
        var attested = PostgresArray(of: .bool, capacity: rows.count)
        var jws = PostgresArray(of: .bool, capacity: rows.count)
        var bundles = StampedColumn(capacity: rows.count)
        var products = StampedColumn(capacity: rows.count)
        for (_, row) in rows {
            ids.append(text: row.originalTransactionID)
            firstSeen.append(int64: row.firstSeen)
            lastSeen.append(int64: row.lastSeen)
            attested.append(bool: row.attested)
            jws.append(bool: row.jwsVerified)
            bundles.append(row.bundleID)
            products.append(row.productID)
        }
        columns += [ids, firstSeen, lastSeen, attested, jws] + bundles.arrays + products.arrays
        return columns.map(\.parameter)
    }

    private static func keyColumns(_ keys: [PurchaseKey]) -> [PostgresArray] {
        var organizations = PostgresArray(of: .text, capacity: keys.count)
        var stores = PostgresArray(of: .text, capacity: keys.count)
        var lineages = PostgresArray(of: .bytes, capacity: keys.count)
        for key in keys {
            organizations.append(text: key.organization)
            stores.append(text: key.store.rawValue)
            lineages.append(bytes: key.lineage)
        }
        return [organizations, stores, lineages]
    }

    private static let ownerWriteSQL = """
        INSERT INTO purchase_owner_writes AS w (
            organization, store, lineage, stamp, customer, attested, jws, device, address_hash, operator)
        SELECT \(rows(["text", "text", "bytea", "bigint", "uuid", "boolean", "boolean", "text", "text"])), false
        ON CONFLICT (organization, store, lineage, stamp, customer) DO UPDATE SET
            attested = w.attested OR excluded.attested,
            jws = w.jws OR excluded.jws,
            device = greatest(w.device, excluded.device),
            address_hash = greatest(w.address_hash, excluded.address_hash)
        WHERE excluded.attested > w.attested OR excluded.jws > w.jws
            OR greatest(w.device, excluded.device) IS DISTINCT FROM w.device
            OR greatest(w.address_hash, excluded.address_hash) IS DISTINCT FROM w.address_hash
        """

    private static func ownerWriteColumns(_ fold: WriteFold) -> [PostgresParameter] {
        let rows = fold.ownerWrites.sorted { a, b in
            if a.key.purchase != b.key.purchase { return a.key.purchase < b.key.purchase }
            if a.key.stamp != b.key.stamp { return a.key.stamp < b.key.stamp }
            return a.key.customer < b.key.customer
        }
        var columns = keyColumns(rows.map(\.key.purchase))
        var stamps = PostgresArray(of: .int64, capacity: rows.count)
        var customers = PostgresArray(of: .uuid, capacity: rows.count)
        var attested = PostgresArray(of: .bool, capacity: rows.count)
        var jws = PostgresArray(of: .bool, capacity: rows.count)
        var devices = PostgresArray(of: .text, capacity: rows.count)
        var addresses = PostgresArray(of: .text, capacity: rows.count)
        for (key, row) in rows {
            stamps.append(int64: key.stamp)
            customers.append(uuidHigh: key.customer.high, low: key.customer.low)
            attested.append(bool: row.attested)
            jws.append(bool: row.jws)
            devices.append(text: row.device)
            addresses.append(text: row.addressHash)
        }
        columns += [stamps, customers, attested, jws, devices, addresses]
        return columns.map(\.parameter)
    }
}
