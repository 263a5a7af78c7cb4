/// How a connection is opened and what it is set to.
package struct PostgresConfiguration: Sendable {
    /// A libpq connection string or URI. Prefer a socket folder or an address: host names are looked up on the loop.
    package var conninfo: String
    /// Becomes the search_path; nil keeps the server's. `[a-z_][a-z0-9_]{0,62}`. It need not exist yet.
    package var schema: String?
    /// Shown in pg_stat_activity.
    package var applicationName: String
    package var connectDeadlineMilliseconds: Int64
    /// The deadline of a call that names none; also the server's statement_timeout, so that a statement nobody waits
    /// for ends by itself.
    package var queryDeadlineMilliseconds: Int64

    /// - Parameters:
    ///   - connectDeadlineMilliseconds: 5 s by default: a local server answers in milliseconds, a remote one in one or
    ///     two SYN retries.
    ///   - queryDeadlineMilliseconds: 10 s by default, well below the 30 s after which a job changes hands.
    package init(
        conninfo: String, schema: String?, applicationName: String = "ratchet",
        connectDeadlineMilliseconds: Int64 = 5_000, queryDeadlineMilliseconds: Int64 = 10_000
    ) {
        self.conninfo = conninfo
        self.schema = schema
        self.applicationName = applicationName
        self.connectDeadlineMilliseconds = connectDeadlineMilliseconds
        self.queryDeadlineMilliseconds = queryDeadlineMilliseconds
    }

    /// Whether a schema name needs no quoting: `[a-z_][a-z0-9_]{0,62}`.
    package static func isPlainSchema(_ name: String) -> Bool {
        let bytes = Array(name.utf8)
        guard let first = bytes.first, bytes.count <= 63 else { return false }
        let letter: (UInt8) -> Bool = { (0x61...0x7a).contains($0) || $0 == 0x5f }
        return letter(first) && bytes.allSatisfy { letter($0) || (0x30...0x39).contains($0) }
    }
}
