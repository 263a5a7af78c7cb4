internal import Bytes
package import Postgres
internal import Wire

/// The writer's side of the store.
package enum SDKWrites {
    /// Joins a batch into the store in one transaction: one statement a table, rows in the order of their keys and
    /// tables in one order, so that two writers never deadlock. Applying a batch again, in parts, later or in another
    /// order ends in the same rows, and writes no row version where nothing changes.
    /// - Throws: a permanent error when a row of the batch can't be stored (nothing was; split the batch to find it),
    ///   otherwise one that a later try may not meet.
    /// - Parameter adServicesTimeScale: see `AdServicesTokens.accept`.
    package static func apply(
        _ writes: [StampedWrite], adServicesTimeScale: Int = 1, _ connection: PostgresConnection
    ) async throws(PostgresError) -> ApplyReport {
        var report = ApplyReport()
        guard !writes.isEmpty else { return report }
        let fold = WriteFold(writes)
        report.lineageMismatches = fold.lineageMismatches
        _ = connection.takeNotices()
        try await connection.transaction { () async throws(PostgresError) in
            if !fold.customers.isEmpty {
                let (customers, cut) = customerColumns(fold)
                report.attributesCut = cut
                report.customers = try await connection.query(customerSQL, customers).affectedRows
            }
            if !fold.devices.isEmpty { _ = try await connection.query(deviceSQL, deviceColumns(fold)) }
            if !fold.purchases.isEmpty {
                report.purchases = try await connection.query(purchaseSQL, purchaseColumns(fold)).affectedRows
                report.ownerWrites = try await connection.query(ownerWriteSQL, ownerWriteColumns(fold)).affectedRows
            }
            if !fold.transactions.isEmpty {
                report.transactions = try await connection.query(transactionSQL, transactionColumns(fold)).affectedRows
            }
            if !fold.adServicesTokens.isEmpty {
                let accepted = try await AdServicesTokens.accept(
                    fold.adServicesTokens, timeScale: adServicesTimeScale, connection)
                report.adServicesTokens = accepted.written
                report.adServicesLater = accepted.later
            }
        }
        report.attributesCut += connection.takeNotices().count { $0.message == "attributes cut" }
        return report
    }

    // MARK: - Customers

    private static let customerSQL = """
        INSERT INTO customers AS c (
            id, organization, app_user_id, first_seen, last_seen, attested, last_write_at, last_write_attested,
            last_write_reason, platform, platform_at, os_version, os_version_at, device_model, device_model_at, locale,
            locale_at, attributes)
        SELECT * FROM unnest(
            $1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::boolean[], $7::bigint[],
            $8::boolean[], $9::text[], $10::text[], $11::bigint[], $12::text[], $13::bigint[], $14::text[],
            $15::bigint[], $16::text[], $17::bigint[], $18::jsonb[])
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
    /// as much: nothing new (equal pairs only: what holds a pair [stamp, text] is that pair), or all of it later than
    /// all there is (a stamp of an attribute is never later than last_seen) and too small to hold more keys than are
    /// kept. The column is stored uncompressed, so its size is that of its content.
    private static let joinedAttributes = """
        CASE WHEN c.attributes @> excluded.attributes THEN c.attributes
            WHEN excluded.first_seen > c.last_seen
                AND pg_column_size(c.attributes) + pg_column_size(excluded.attributes) < 4096
            THEN c.attributes || excluded.attributes
            ELSE join_attributes(c.attributes, excluded.attributes) END
        """

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
        let rows = fold.customers.values.sorted { $0.id.bytes.lexicographicallyPrecedes($1.id.bytes) }
        var ids = PostgresArray(of: .uuid, capacity: rows.count)
        var organizations = PostgresArray(of: .text, capacity: rows.count)
        var users = PostgresArray(of: .text, capacity: rows.count)
        var firstSeen = PostgresArray(of: .int64, capacity: rows.count)
        var lastSeen = PostgresArray(of: .int64, capacity: rows.count)
        var attested = PostgresArray(of: .bool, capacity: rows.count)
        var writeStamps = PostgresArray(of: .int64, capacity: rows.count)
        var writeAttested = PostgresArray(of: .bool, capacity: rows.count)
        var writeReasons = PostgresArray(of: .text, capacity: rows.count)
        var attributes = PostgresArray(of: .jsonb, capacity: rows.count)
        var cuts = 0
        for row in rows {
            ids.append(uuid: row.id.bytes)
            organizations.append(text: row.organization)
            users.append(text: row.appUserID)
            firstSeen.append(int64: row.firstSeen)
            lastSeen.append(int64: row.lastSeen)
            attested.append(bool: row.attested)
            writeStamps.append(int64: row.lastWrite.stamp)
            writeAttested.append(bool: row.lastWrite.attested)
            writeReasons.append(text: row.lastWrite.reason)
            let (json, cut) = row.attributesJSON()
            attributes.append(jsonb: json)
            if cut { cuts += 1 }
        }
        var columns = [
            ids, organizations, users, firstSeen, lastSeen, attested, writeStamps, writeAttested, writeReasons,
        ]
        for column in [\CustomerFold.platform, \.osVersion, \.deviceModel, \.locale] {
            columns += stamped(rows, column)
        }
        columns.append(attributes)
        return (columns.map(\.parameter), cuts)
    }

    private static func stamped<Row>(_ rows: [Row], _ column: KeyPath<Row, StampedText>) -> [PostgresArray] {
        var values = PostgresArray(of: .text, capacity: rows.count)
        var stamps = PostgresArray(of: .int64, capacity: rows.count)
        for row in rows {
            values.append(text: row[keyPath: column].value)
            stamps.append(int64: row[keyPath: column].stamp)
        }
        return [values, stamps]
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
        SELECT * FROM unnest(
            $1::text[], $2::text[], $3::bytea[], $4::text[], $5::bigint[], $6::bigint[], $7::boolean[],
            $8::boolean[], $9::text[], $10::bigint[], $11::text[], $12::bigint[])
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
        for (_, row) in rows {
            ids.append(text: row.originalTransactionID)
            firstSeen.append(int64: row.firstSeen)
            lastSeen.append(int64: row.lastSeen)
            attested.append(bool: row.attested)
            jws.append(bool: row.jwsVerified)
        }
        columns += [ids, firstSeen, lastSeen, attested, jws]
        let values = rows.map(\.value)
        columns += stamped(values, \.bundleID) + stamped(values, \.productID)
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
            organization, store, lineage, stamp, customer, attested, jws, operator, device, address_hash)
        SELECT organization, store, lineage, stamp, customer, attested, jws, false, device, address_hash
        FROM unnest(
            $1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::uuid[], $6::boolean[], $7::boolean[],
            $8::text[], $9::text[]
        ) AS n(organization, store, lineage, stamp, customer, attested, jws, device, address_hash)
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
            return a.key.customer.bytes.lexicographicallyPrecedes(b.key.customer.bytes)
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
            customers.append(uuid: key.customer.bytes)
            attested.append(bool: row.attested)
            jws.append(bool: row.jws)
            devices.append(text: row.device)
            addresses.append(text: row.addressHash)
        }
        columns += [stamps, customers, attested, jws, devices, addresses]
        return columns.map(\.parameter)
    }
}
