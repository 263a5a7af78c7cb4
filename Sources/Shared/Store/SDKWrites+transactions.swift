internal import Bytes
internal import Postgres
internal import Wire

extension SDKWrites {
    /// The columns after the keys, in the order of `transactionColumns`, with their types.
    private static let factColumns: [(name: String, type: String)] = [
        ("transaction_id", "text"), ("lineage", "bytea"), ("signed_at", "bigint"), ("payload_digest", "text"),
        ("bundle_id", "text"), ("product_id", "text"), ("environment", "text"), ("purchased_at", "bigint"),
        ("original_purchased_at", "bigint"), ("expires_at", "bigint"), ("type", "text"), ("ownership", "text"),
        ("revoked_at", "bigint"), ("revocation_reason", "bigint"), ("is_upgraded", "boolean"), ("price", "bigint"),
        ("currency", "text"), ("storefront", "text"), ("app_account_token", "text"), ("quantity", "bigint"),
    ]

    /// The whole row goes with the later receipt, its revocation too: an older receipt can't take a revocation back,
    /// a newer one without it does, as Apple's REFUND_REVERSED means it.
    static let transactionSQL: String = {
        let types = ["text", "text", "bytea"] + factColumns.map(\.type)
        let names = factColumns.map(\.name)
        return """
            INSERT INTO transactions AS t (organization, store, transaction_key, \(names.joined(separator: ", ")))
            SELECT \(rows(types))
            ON CONFLICT (organization, store, transaction_key) DO UPDATE SET
                \(names.map { "\($0) = excluded.\($0)" }.joined(separator: ", "))
            WHERE (excluded.signed_at, excluded.payload_digest) > (t.signed_at, t.payload_digest)
            """
    }()

    static func transactionColumns(_ fold: WriteFold) -> [PostgresParameter] {
        let rows = fold.transactions.sorted { $0.key < $1.key }
        func texts(_ value: (TransactionFacts) -> String?) -> PostgresParameter {
            .texts(rows.map { value($0.value) })
        }
        func integers(_ value: (TransactionFacts) -> Int64?) -> PostgresParameter {
            .int64s(rows.map { value($0.value) })
        }
        var keys = PostgresArray(of: .bytes, capacity: rows.count)
        var lineages = PostgresArray(of: .bytes, capacity: rows.count)
        var upgraded = PostgresArray(of: .bool, capacity: rows.count)
        for (key, facts) in rows {
            keys.append(bytes: key.digest)
            lineages.append(bytes: SHA256Digest(of: Array(facts.originalTransactionID.utf8)).bytes)
            upgraded.append(bool: facts.isUpgraded)
        }
        return [
            .texts(rows.map(\.key.organization)), .texts(rows.map(\.key.store.rawValue)), keys.parameter,
            texts(\.transactionID), lineages.parameter, integers(\.signedDate), texts(\.payloadDigest),
            texts(\.bundleID), texts(\.productID), texts(\.environment), integers(\.purchaseDate),
            integers(\.originalPurchaseDate), integers(\.expiresDate), texts(\.type), texts(\.ownership),
            integers(\.revocationDate), integers(\.revocationReason), upgraded.parameter, integers(\.price),
            texts(\.currency), texts(\.storefront), texts(\.appAccountToken), integers(\.quantity),
        ]
    }
}
