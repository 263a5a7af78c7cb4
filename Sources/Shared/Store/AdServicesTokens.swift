internal import AppleAds
package import Postgres
package import Wire

/// An AdServices token for the sweep.
package struct NewAdServicesToken: Equatable, Sendable {
    /// Whose campaign Apple is asked for. Only the first token of one subject of one app counts.
    package enum Subject: Equatable, Sendable {
        /// An install, by its id as sent.
        case install(String)
        /// A customer of the second protocol, by its id.
        case customer(String)
    }

    package var organization: String
    package var bundleID: String
    package var subject: Subject
    /// Microseconds: when the queue took the token.
    package var stamp: Int64
    /// For `AdServicesToken.context` of the organization, the bundle id and `name`.
    package var sealedToken: [UInt8]
    /// Who is told of the outcome; nil when only reads show it.
    package var callback: String?
    package var appVersion: String?
    package var storefront: String?
    package var environment: AdServicesWrite.Environment
    package var proof: WriteProof

    package init(
        organization: String, bundleID: String, subject: Subject, stamp: Int64, sealedToken: [UInt8],
        callback: String? = nil, appVersion: String? = nil, storefront: String? = nil,
        environment: AdServicesWrite.Environment = .production, proof: WriteProof = WriteProof()
    ) {
        self.organization = organization
        self.bundleID = bundleID
        self.subject = subject
        self.stamp = stamp
        self.sealedToken = sealedToken
        self.callback = callback
        self.appVersion = appVersion
        self.storefront = storefront
        self.environment = environment
        self.proof = proof
    }

    init(_ write: AdServicesWrite, organization: String, stamp: Int64) {
        self.init(
            organization: organization, bundleID: write.bundleID, subject: .install(write.installID), stamp: stamp,
            sealedToken: write.sealedToken, appVersion: write.appVersion, storefront: write.storefront,
            environment: write.environment, proof: write.proof)
    }

    /// The subject as it stands in the key.
    package var name: String {
        switch subject {
        case .install(let id): TextRules.foldedInstallID(id)
        case .customer(let id): id
        }
    }

    fileprivate var sentName: String? {
        guard case .install(let id) = subject, !id.utf8.elementsEqual(name.utf8) else { return nil }
        return id
    }

    fileprivate var key: KeyBytes {
        let kind =
            switch subject {
            case .install: "install"
            case .customer: "customer"
            }
        return KeyBytes(
            parts: [Array(organization.utf8), Array(bundleID.utf8), Array(kind.utf8), Array(name.utf8)])
    }
}

/// Ordered as Postgres orders the primary key, by bytes.
private struct KeyBytes: Hashable, Comparable {
    /// Organization, bundle id, kind of subject, subject.
    let parts: [[UInt8]]

    static func < (a: Self, b: Self) -> Bool {
        for (a, b) in zip(a.parts, b.parts) where a != b { return a.lexicographicallyPrecedes(b) }
        return false
    }
}

/// The tokens that wait to be asked about, from where they come in. What happens to them afterwards is the sweep's.
package enum AdServicesTokens {
    /// Apple advises to wait so long after a token was made; asked earlier it often answers 404.
    private static let firstAskSeconds: Int64 = 5

    package struct Accepted: Equatable, Sendable {
        /// Row versions written.
        package var written = 0
        /// Tokens of subjects that had one, counted for the first time.
        package var later = 0

        package init() {}
    }

    /// Takes tokens in. Of one subject the token with the smallest stamp wins until Apple was asked, whatever the order
    /// of calls; later ones are counted and thrown away. A repeated call changes nothing. Rows are locked in the order
    /// of their keys, and stay locked until the caller's transaction ends.
    /// - Parameter timeScale: divides the wait for the first ask; 1 but in development.
    package static func accept(
        _ tokens: [NewAdServicesToken], timeScale: Int = 1, _ connection: PostgresConnection
    ) async throws(PostgresError) -> Accepted {
        var accepted = Accepted()
        guard !tokens.isEmpty else { return accepted }
        let ordered = tokens.map { (key: $0.key, token: $0) }.sorted { a, b in
            a.key == b.key ? a.token.stamp < b.token.stamp : a.key < b.key
        }
        var firsts: [NewAdServicesToken] = []
        var before: KeyBytes?
        for (key, token) in ordered where key != before {
            firsts.append(token)
            before = key
        }
        let wait = AdServicesLadder(timeScale: timeScale).scaled(seconds: firstAskSeconds)
        accepted.written = try await connection.query(firstSQL, columns(firsts) + [.int64(wait)]).affectedRows
        guard accepted.written < tokens.count else { return accepted }
        // Their rows are locked by the statement before, so what this one reads of them stands.
        let counted = try await connection.query(laterSQL, keyColumns(ordered.map(\.token))).rows
        for row in counted { accepted.later += Int(try row.int64("tokens")) }
        accepted.written += counted.count
        return accepted
    }

    /// A token that is displaced is a later one as well.
    private static let firstSQL = """
        INSERT INTO adservices_tokens AS t (
            organization, bundle_id, subject_kind, subject, stamp, due_at, subject_as_sent, sealed_token, callback,
            app_version, storefront, environment, attested, unattested_reason, device, address_hash)
        SELECT organization, bundle_id, subject_kind, subject, stamp, stamp + $16, subject_as_sent, sealed_token,
            callback, app_version, storefront, environment, attested, unattested_reason, device, address_hash
        FROM unnest(
            $1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bytea[], $8::text[],
            $9::text[], $10::text[], $11::text[], $12::boolean[], $13::text[], $14::text[], $15::text[]
        ) AS n(
            organization, bundle_id, subject_kind, subject, stamp, subject_as_sent, sealed_token, callback,
            app_version, storefront, environment, attested, unattested_reason, device, address_hash)
        ON CONFLICT (organization, bundle_id, subject_kind, subject) DO UPDATE SET
            stamp = excluded.stamp, due_at = excluded.due_at, subject_as_sent = excluded.subject_as_sent,
            sealed_token = excluded.sealed_token, callback = excluded.callback, app_version = excluded.app_version,
            storefront = excluded.storefront, environment = excluded.environment, attested = excluded.attested,
            unattested_reason = excluded.unattested_reason, device = excluded.device,
            address_hash = excluded.address_hash,
            later_tokens = t.later_tokens + (t.stamp > t.later_at)::integer,
            later_at = greatest(t.later_at, t.stamp)
        WHERE excluded.stamp < t.stamp AND t.state = 'pending' AND t.asks = 0 AND t.lease IS NULL
        """

    private static let laterSQL = """
        UPDATE adservices_tokens AS t SET
            later_tokens = t.later_tokens + n.tokens,
            later_after_failure = t.later_after_failure
                + CASE WHEN t.state IN ('invalid', 'expired') THEN n.tokens ELSE 0 END,
            later_at = n.latest
        FROM (
            SELECT n.organization, n.bundle_id, n.subject_kind, n.subject, count(DISTINCT n.stamp)::integer AS tokens,
                max(n.stamp) AS latest
            FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
                AS n(organization, bundle_id, subject_kind, subject, stamp)
            JOIN adservices_tokens AS k USING (organization, bundle_id, subject_kind, subject)
            WHERE n.stamp <> k.stamp AND n.stamp > k.later_at
            GROUP BY n.organization, n.bundle_id, n.subject_kind, n.subject
        ) AS n
        WHERE t.organization = n.organization AND t.bundle_id = n.bundle_id AND t.subject_kind = n.subject_kind
            AND t.subject = n.subject
        RETURNING n.tokens
        """

    private static func keyColumns(_ tokens: [NewAdServicesToken]) -> [PostgresParameter] {
        let keys = tokens.map(\.key)
        let parts = (0..<4).map { part in
            PostgresParameter.texts(keys.map { String(decoding: $0.parts[part], as: UTF8.self) })
        }
        return parts + [.int64s(tokens.map(\.stamp))]
    }

    private static func columns(_ tokens: [NewAdServicesToken]) -> [PostgresParameter] {
        var sealed = PostgresArray(of: .bytes, capacity: tokens.count)
        var attested = PostgresArray(of: .bool, capacity: tokens.count)
        for token in tokens {
            sealed.append(bytes: token.sealedToken)
            attested.append(bool: token.proof.attested)
        }
        return keyColumns(tokens) + [
            .texts(tokens.map(\.sentName)), sealed.parameter, .texts(tokens.map(\.callback)),
            .texts(tokens.map(\.appVersion)), .texts(tokens.map(\.storefront)),
            .texts(tokens.map { $0.environment.rawValue }), attested.parameter,
            .texts(tokens.map(\.proof.unattestedReason)), .texts(tokens.map(\.proof.deviceID)),
            .texts(tokens.map(\.proof.addressHash)),
        ]
    }
}
