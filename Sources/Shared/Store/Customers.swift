internal import Bytes
package import Postgres

/// One customer as operators see it.
package struct CustomerRecord: Equatable, Sendable {
    package struct Attribute: Equatable, Sendable {
        package let key: String
        /// JSON text, as it was sent.
        package let value: String

        package init(key: String, value: String) {
            self.key = key
            self.value = value
        }
    }

    package struct LastWrite: Equatable, Sendable {
        package let attested: Bool
        /// Microseconds since 1970.
        package let at: Int64
        /// Why it was not attested, if the SDK said so.
        package let reason: String?

        package init(attested: Bool, at: Int64, reason: String?) {
            self.attested = attested
            self.at = at
            self.reason = reason
        }
    }

    package let organization: String
    package let appUserID: String
    /// The UUID that identify answered.
    package let id: String
    /// In the order of the keys' bytes, without deleted ones.
    package let attributes: [Attribute]
    package let platform: String?
    package let osVersion: String?
    package let deviceModel: String?
    package let locale: String?
    /// Microseconds since 1970: stamps of the first and the last write.
    package let firstSeenAt: Int64
    package let lastSeenAt: Int64
    /// Some write of this customer was attested.
    package let attested: Bool
    /// `attested`, or some owner write of this customer, for a purchase it owns now, carried proof.
    package let verified: Bool
    package let lastWrite: LastWrite
    /// The purchases it owns now.
    package let purchases: [PurchaseRecord]
}

package enum Customers {
    private static let customerSQL = """
        SELECT c.*, c.attested OR EXISTS (
            SELECT FROM purchase_owner_writes AS w
            WHERE w.organization = c.organization AND w.customer = c.id AND (w.attested OR w.jws OR w.operator)
                AND w.customer = (
                    SELECT l.customer FROM purchase_owner_writes AS l
                    WHERE l.organization = w.organization AND l.store = w.store AND l.lineage = w.lineage
                    ORDER BY l.stamp DESC, l.customer DESC LIMIT 1)
        ) AS verified
        FROM customers AS c WHERE c.organization = $1 AND c.id = $2
        """

    private static let attributeSQL = """
        SELECT a.key, a.value ->> 1 AS value FROM customers AS c, jsonb_each(c.attributes) AS a
        WHERE c.organization = $1 AND c.id = $2 AND a.value ->> 1 IS NOT NULL ORDER BY a.key COLLATE "C"
        """

    /// One customer by the id the app uses; nil when the organization has none of that id.
    /// - Parameter nowMicroseconds: the wall clock, for the purchases' `flapping`.
    package static func show(
        organization: String, appUserID: String, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> CustomerRecord? {
        let id = UUIDv8.customer(organization: organization, appUserID: appUserID)
        let key = [PostgresParameter.text(organization), .uuid(id.bytes)]
        guard let row = try await connection.query(customerSQL, key).first else { return nil }
        var attributes: [CustomerRecord.Attribute] = []
        for attribute in try await connection.query(attributeSQL, key).rows {
            attributes.append(.init(key: try attribute.string("key"), value: try attribute.string("value")))
        }
        return CustomerRecord(
            organization: organization, appUserID: try row.string("app_user_id"), id: try row.string("id"),
            attributes: attributes, platform: try row.optionalString("platform"),
            osVersion: try row.optionalString("os_version"), deviceModel: try row.optionalString("device_model"),
            locale: try row.optionalString("locale"), firstSeenAt: try row.int64("first_seen"),
            lastSeenAt: try row.int64("last_seen"), attested: try row.bool("attested"),
            verified: try row.bool("verified"),
            lastWrite: .init(
                attested: try row.bool("last_write_attested"), at: try row.int64("last_write_at"),
                reason: try row.optionalString("last_write_reason")),
            purchases: try await Purchases.list(
                organization: organization, appUserID: appUserID, nowMicroseconds: nowMicroseconds, connection))
    }
}
