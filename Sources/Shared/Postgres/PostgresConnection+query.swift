internal import CLibpq
internal import EventLoop

extension PostgresConnection {
    /// Statements kept prepared; further ones are planned at each call. This program has a few dozen.
    private static let mostStatements = 256

    /// Runs one statement, prepared at its first use and kept by its text.
    /// - Parameters:
    ///   - sql: one statement; `$1`… stand for the parameters, whose types must be the same at each call.
    ///   - deadlineMilliseconds: for this call; nil takes the configuration's. A running transaction's deadline holds
    ///     as well.
    package func query(
        _ sql: String, _ parameters: [PostgresParameter] = [], deadlineMilliseconds: Int64? = nil
    ) async throws(PostgresError) -> PostgresResult {
        let deadline = deadline(after: deadlineMilliseconds ?? configuration.queryDeadlineMilliseconds)
        let statement = PostgresStatement(sql, parameters)
        let name = try await prepare(statement, deadline: deadline)
        return try await request(deadline: deadline) { Self.send(statement, prepared: name, $0) }
    }

    /// Runs statements as one transaction in one exchange: the server goes from one to the next without waiting for
    /// this side, and commits at the end. All of them took effect, durably, or none did.
    /// - Returns: the result of each statement.
    /// - Throws: the first failure; with `.connection` and `.deadline` nobody knows whether they took effect.
    package func transaction(
        of statements: [PostgresStatement], deadlineMilliseconds: Int64? = nil
    ) async throws(PostgresError) -> [PostgresResult] {
        guard !inTransaction else { throw PostgresError(.usage, "transactions don't nest") }
        let deadline = deadline(after: deadlineMilliseconds ?? configuration.queryDeadlineMilliseconds)
        var names: [String?] = []
        for statement in statements { names.append(try await prepare(statement, deadline: deadline)) }
        let results = try await requests(deadline: deadline, inPipeline: true) { handle in
            guard clibpq_enter_pipeline(handle) == 1 else { return 0 }
            for (statement, name) in zip(statements, names) {
                guard Self.send(statement, prepared: name, handle) == 1 else { return 0 }
            }
            return clibpq_send_sync(handle)
        }
        guard results.count == statements.count else {
            throw PostgresError(
                .connection, "the server gave \(results.count) results for \(statements.count) statements")
        }
        return results
    }

    /// Prepares a statement at its first use.
    /// - Returns: its name; nil when there are too many already.
    private func prepare(_ statement: PostgresStatement, deadline: Int64) async throws(PostgresError) -> String? {
        if let name = statements[statement.sql] { return name }
        guard statements.count < Self.mostStatements else { return nil }
        let name = "s\(statements.count)"
        _ = try await request(deadline: deadline) { handle in
            clibpq_send_prepare(
                handle, name, statement.sql, Int32(statement.parameters.count), statement.parameters.map(\.type))
        }
        statements[statement.sql] = name
        return name
    }

    private static func send(_ statement: PostgresStatement, prepared name: String?, _ handle: OpaquePointer) -> Int32 {
        withParameters(statement.parameters) { count, types, values, lengths in
            guard let name else {
                return clibpq_send_query(handle, statement.sql, count, types, values, lengths)
            }
            return clibpq_send_prepared(handle, name, count, values, lengths)
        }
    }

    /// Runs a script of any number of statements (simple protocol, no parameters); answers the last one's result.
    /// Outside a transaction the whole script is one.
    @discardableResult
    package func execute(
        _ script: String, deadlineMilliseconds: Int64? = nil
    ) async throws(PostgresError) -> PostgresResult {
        let deadline = deadline(after: deadlineMilliseconds ?? configuration.queryDeadlineMilliseconds)
        return try await request(deadline: deadline) { clibpq_send_script($0, script) }
    }

    /// Runs statements in one transaction: committed when the body returns, rolled back when it throws. Not nested.
    /// - Parameter deadlineMilliseconds: for the whole transaction, commit included; nil takes the configuration's.
    /// - Throws: what the body threw; or the commit's own failure, and with `.connection` and `.deadline` nobody knows
    ///   whether it took effect.
    package func transaction<Value>(
        deadlineMilliseconds: Int64? = nil, _ body: () async throws(PostgresError) -> Value
    ) async throws(PostgresError) -> Value {
        guard !inTransaction else { throw PostgresError(.usage, "transactions don't nest") }
        inTransaction = true
        transactionDeadline = deadline(after: deadlineMilliseconds ?? configuration.queryDeadlineMilliseconds)
        defer {
            inTransaction = false
            transactionDeadline = nil
        }
        do throws(PostgresError) {
            try await execute("BEGIN")
            let value = try await body()
            let commit = try await execute("COMMIT")
            // A failed transaction answers COMMIT with ROLLBACK and no error.
            guard commit.command == "COMMIT" else {
                throw PostgresError(.usage, "the transaction had failed and was rolled back")
            }
            return value
        } catch {
            if isOpen && serverIsInTransaction {
                do throws(PostgresError) {
                    try await execute("ROLLBACK")
                } catch {
                    close()
                }
            }
            throw error
        }
    }

    /// Session settings that this program relies on, whatever the server's configuration says.
    func setUp(deadline: Int64) async throws(PostgresError) {
        let limit = configuration.queryDeadlineMilliseconds
        let settings: [(String, String)] = [
            ("TimeZone", "UTC"),
            ("bytea_output", "hex"),
            ("client_min_messages", "notice"),
            ("statement_timeout", "\(limit)"),
            // A lock that isn't had in half the time is given up while the connection still lives.
            ("lock_timeout", "\(max(1, limit / 2))"),
            // A frozen client must not hold its locks for ever.
            ("idle_in_transaction_session_timeout", "\(limit.multipliedReportingOverflow(by: 2).partialValue)"),
            // A closed client ends its statement soon: what is abandoned must not go on holding locks.
            ("client_connection_check_interval", "2000"),
        ]
        var columns = settings.indices.map { "set_config($\(2 * $0 + 1), $\(2 * $0 + 2), false)" }
        // An answer follows the commit, so the commit must be on disk.
        columns.append(
            """
            set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') \
            THEN 'on' ELSE current_setting('synchronous_commit') END, false)
            """)
        var parameters = settings.flatMap { [PostgresParameter.text($0.0), .text($0.1)] }
        if let schema = configuration.schema {
            columns.append("set_config('search_path', $\(parameters.count + 1), false) AS path")
            parameters.append(.text("\"\(schema)\""))
        }
        let sql = "SELECT " + columns.joined(separator: ", ")
        let result = try await request(deadline: deadline) { handle in
            Self.withParameters(parameters) { count, types, values, lengths in
                clibpq_send_query(handle, sql, count, types, values, lengths)
            }
        }
        if let schema = configuration.schema, try result.first?.optionalString("path") != "\"\(schema)\"" {
            throw PostgresError(.connection, "the server did not take the search_path \(schema)")
        }
    }

    /// Lends the parameters as libpq wants them: types, pointers and lengths, valid during the call.
    private static func withParameters(
        _ parameters: [PostgresParameter],
        _ body: (Int32, [UInt32], [UnsafePointer<UInt8>?], [Int32]) -> Int32
    ) -> Int32 {
        // One copy of all bytes into one block: an array's own storage can't be lent for several arrays at once. One
        // byte more, since an empty value is not NULL and needs an address.
        let total = parameters.reduce(1) { $0 + ($1.bytes?.count ?? 0) }
        let block = UnsafeMutablePointer<UInt8>.allocate(capacity: total)
        defer { block.deallocate() }
        var offset = 0
        var values: [UnsafePointer<UInt8>?] = []
        values.reserveCapacity(parameters.count)
        for parameter in parameters {
            guard let bytes = parameter.bytes else {
                values.append(nil)
                continue
            }
            bytes.withUnsafeBufferPointer { source in
                if let base = source.baseAddress { (block + offset).update(from: base, count: source.count) }
            }
            values.append(UnsafePointer(block + offset))
            offset += bytes.count
        }
        return body(
            Int32(parameters.count), parameters.map(\.type), values,
            parameters.map { Int32(truncatingIfNeeded: $0.bytes?.count ?? 0) })
    }
}
