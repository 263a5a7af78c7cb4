internal import CLibpq
package import EventLoop

/// One libpq connection, driven without blocking on one event loop.
///
/// One call at a time: a second one while the first runs is refused (`PostgresClient` queues). A call that misses its
/// deadline closes the connection, because what its late answer would belong to is then unknown; the server notices
/// the closed socket within two seconds, or at its statement_timeout, and stops.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone, which each entry point checks with
/// `preconditionInLoop`; the handle has this one owner and is freed by `close` or `deinit`.
package final class PostgresConnection: @unchecked Sendable {
    /// What the server said beside its answers. Kept for the reader, never printed.
    package struct Notice: Equatable, Sendable {
        package let sqlstate: String
        package let message: String
    }

    private struct Operation {
        let continuation: UnsafeContinuation<Result<[PostgresResult], PostgresError>, Never>
        let timer: EventLoop.TimerToken
        /// Ends with the sync instead of with the first statement's last result.
        let isPipeline: Bool
        var results: [PostgresResult] = []
        var failure: PostgresError?
    }

    /// Notices kept until they are taken; more are dropped.
    private static let mostNotices = 256
    /// Read at once, 16 kB each: a millisecond, after which others have their turn.
    private static let mostPartsPerTurn = 64

    package let loop: EventLoop
    package let configuration: PostgresConfiguration
    private var handle: OpaquePointer?
    private var watch: EventLoop.WatchToken?
    private var watchesWritable = false
    private var operation: Operation?
    private var closedBecause = PostgresError(.connection, "the connection is closed")
    private var notices: [Notice] = []
    var statements: [String: String] = [:]
    /// Monotonic nanoseconds at which the running transaction must have ended.
    var transactionDeadline: Int64?
    var inTransaction = false

    private init(_ handle: OpaquePointer, _ configuration: PostgresConfiguration, on loop: EventLoop) {
        self.handle = handle
        self.configuration = configuration
        self.loop = loop
        clibpq_on_notice(handle, Unmanaged.passUnretained(self).toOpaque())
    }

    deinit {
        // Nothing waits any more (a waiting call holds the connection), so only the descriptor is left to give back.
        guard let handle else { return }
        let leftover = Leftover(handle: handle, watch: watch, loop: loop)
        if loop.inLoop { leftover.free() } else { loop.execute { leftover.free() } }
    }

    // MARK: - Opening and closing

    /// Opens a connection and sets it up (UTF-8, UTC, search_path, timeouts, durable commits). Call on the loop.
    /// - Throws: `.connection`, `.deadline`, or `.server` when the server refuses the user; all worth another try.
    package static func connect(
        _ configuration: PostgresConfiguration, on loop: EventLoop
    ) async throws(PostgresError) -> PostgresConnection {
        loop.preconditionInLoop()
        if let schema = configuration.schema, !PostgresConfiguration.isPlainSchema(schema) {
            throw PostgresError(.usage, "a schema name is [a-z_][a-z0-9_]{0,62}: \(schema)")
        }
        _ = noticeReceiver
        guard let handle = clibpq_connect_start(configuration.conninfo, configuration.applicationName) else {
            throw PostgresError(.connection, "no memory for a connection")
        }
        let connection = PostgresConnection(handle, configuration, on: loop)
        let deadline = connection.deadline(after: configuration.connectDeadlineMilliseconds)
        do throws(PostgresError) {
            _ = try await connection.perform(deadline: deadline) { connection in
                if clibpq_is_good(handle) == 1 {
                    connection.watchSocket(for: [.writable])
                } else {
                    connection.fail(connection.lost())
                }
            }
            try await connection.setUp(deadline: deadline)
        } catch {
            connection.close()
            throw error
        }
        return connection
    }

    /// False once the connection was lost or closed; it never comes back.
    package var isOpen: Bool {
        loop.preconditionInLoop()
        return handle != nil
    }

    /// The server process behind the connection; 0 when closed.
    package var backendPID: Int32 {
        loop.preconditionInLoop()
        return handle.map { clibpq_backend_pid($0) } ?? 0
    }

    /// Closes at once. A running call fails with `.connection`; the server rolls back an open transaction.
    package func close() {
        loop.preconditionInLoop()
        fail(PostgresError(.connection, "the connection was closed"))
    }

    /// The notices since the last call.
    package func takeNotices() -> [Notice] {
        loop.preconditionInLoop()
        defer { notices.removeAll() }
        return notices
    }

    // MARK: - Running one request

    /// Monotonic nanoseconds of a deadline from now, never later than the running transaction's.
    func deadline(after milliseconds: Int64) -> Int64 {
        let span = max(0, milliseconds).multipliedReportingOverflow(by: 1_000_000)
        let end = loop.time.monotonicNanoseconds.addingReportingOverflow(span.overflow ? .max : span.partialValue)
        let deadline = end.overflow ? Int64.max : end.partialValue
        return min(deadline, transactionDeadline ?? .max)
    }

    /// Sends one request and waits for all of its results; answers the last one.
    func request(
        deadline: Int64, _ send: (OpaquePointer) -> Int32
    ) async throws(PostgresError) -> PostgresResult {
        let results = try await requests(deadline: deadline, inPipeline: false, send)
        guard let result = results.last else { throw PostgresError(.connection, "the server gave no result") }
        return result
    }

    /// Sends what `send` sends and waits for all of its results.
    /// - Parameter inPipeline: several statements and a sync, on a connection in pipeline mode.
    func requests(
        deadline: Int64, inPipeline: Bool, _ send: (OpaquePointer) -> Int32
    ) async throws(PostgresError) -> [PostgresResult] {
        try await perform(deadline: deadline, inPipeline: inPipeline) { connection in
            guard let handle = connection.handle else { return }
            if send(handle) == 1 {
                connection.pump()
            } else {
                connection.fail(connection.lost())
            }
        }
    }

    private func perform(
        deadline: Int64, inPipeline: Bool = false, _ start: (PostgresConnection) -> Void
    ) async throws(PostgresError) -> [PostgresResult] {
        loop.preconditionInLoop()
        guard handle != nil else { throw closedBecause }
        guard operation == nil else { throw PostgresError(.usage, "a call is already running on this connection") }
        let remaining = deadline - loop.time.monotonicNanoseconds
        // Nothing was sent, so the connection is still good.
        guard remaining > 0 else { throw PostgresError(.deadline, "the deadline passed before the call") }
        let outcome = await withUnsafeContinuation { continuation in
            // Rounded up, so that a deadline never fires early.
            let timer = loop.schedule(afterMilliseconds: (remaining + 999_999) / 1_000_000) { [weak self] in
                self?.fail(PostgresError(.deadline, "no answer from the database in time"))
            }
            operation = Operation(continuation: continuation, timer: timer, isPipeline: inPipeline)
            start(self)
        }
        return try outcome.get()
    }

    /// Ends the running operation, if there is one.
    private func finish(_ outcome: Result<[PostgresResult], PostgresError>) {
        guard let ended = operation else { return }
        operation = nil
        loop.cancel(ended.timer)
        ended.continuation.resume(returning: outcome)
    }

    /// Closes the connection for a reason, and fails what waits on it.
    private func fail(_ error: PostgresError) {
        guard let handle else { return }
        closedBecause = PostgresError(.connection, "the connection is closed: \(error.message)")
        unwatchSocket()
        self.handle = nil
        statements = [:]
        clibpq_finish(handle)
        finish(.failure(error))
    }

    private func lost() -> PostgresError {
        guard let handle else { return closedBecause }
        let message = String(cString: clibpq_error_message(handle)).split(separator: "\n").joined(separator: "; ")
        return PostgresError(.connection, message.isEmpty ? "the connection was lost" : message)
    }

    // MARK: - The descriptor

    private func watchSocket(for interest: EventLoop.Readiness) {
        guard let handle else { return }
        let socket = clibpq_socket(handle)
        guard socket >= 0 else { return fail(lost()) }
        watch = loop.watch(socket, for: interest) { [weak self] _ in self?.onReady() }
        if watch == nil { fail(PostgresError(.connection, "the connection's socket can't be watched")) }
    }

    private func unwatchSocket() {
        guard let token = watch else { return }
        watch = nil
        watchesWritable = false
        loop.unwatch(token)
    }

    private var isConnecting = true

    private func onReady() {
        if isConnecting { pollConnect() } else { pump() }
    }

    private func pollConnect() {
        guard let handle else { return }
        // libpq may close the socket and try the next address, so the old registration must go first.
        unwatchSocket()
        switch Int(clibpq_connect_poll(handle)) {
        case clibpq_poll_reading: watchSocket(for: [.readable])
        case clibpq_poll_writing: watchSocket(for: [.writable])
        case clibpq_poll_ok:
            guard clibpq_set_nonblocking(handle) == 0 else { return fail(lost()) }
            isConnecting = false
            watchSocket(for: [.readable])
            finish(.success([]))
        default: fail(lost())
        }
    }

    /// Moves bytes both ways as far as they go, and ends the operation when all of its results are there.
    private func pump() {
        guard let handle else { return }
        let more = clibpq_flush(handle) == 1
        var alive = clibpq_consume_input(handle) == 1
        // A large result comes in many parts: one a turn would take as many turns of a busy loop.
        var parts = 1
        while alive, parts < Self.mostPartsPerTurn, clibpq_is_busy(handle) == 1, clibpq_has_input(handle) == 1 {
            alive = clibpq_consume_input(handle) == 1
            parts += 1
        }
        if more != watchesWritable, let watch {
            watchesWritable = more
            loop.rewatch(watch, for: more ? [.readable, .writable] : [.readable])
        }
        guard operation != nil else {
            if !alive || clibpq_is_good(handle) == 0 { fail(lost()) }
            return
        }
        // After a loss nothing is busy: what the server said last (such as 57P01) is still there to be read.
        var atEnd = false
        while clibpq_is_busy(handle) == 0 {
            guard let raw = clibpq_get_result(handle) else {
                guard operation?.isPipeline == true else { return complete(handle) }
                // The next statement's results follow; twice nothing is a connection that ended.
                guard !atEnd else { return fail(operation?.failure ?? lost()) }
                atEnd = true
                continue
            }
            atEnd = false
            guard take(raw) else { return }
        }
    }

    /// Keeps one result; false when the operation is over.
    private func take(_ raw: OpaquePointer) -> Bool {
        switch Int(clibpq_result_kind(raw)) {
        case clibpq_result_done, clibpq_result_rows:
            operation?.results.append(PostgresResult(owning: raw))
        case clibpq_result_skipped: clibpq_clear(raw)
        case clibpq_result_synced:
            clibpq_clear(raw)
            guard let handle else { return false }
            if clibpq_exit_pipeline(handle) == 1 { complete(handle) } else { fail(lost()) }
            return false
        case clibpq_result_error:
            if operation?.failure == nil { operation?.failure = Self.error(of: raw) }
            clibpq_clear(raw)
        default:
            // COPY and the like: nothing here sends it, and its protocol state would never end.
            clibpq_clear(raw)
            fail(PostgresError(.usage, "this kind of statement is not supported"))
            return false
        }
        return true
    }

    private func complete(_ handle: OpaquePointer) {
        guard let ended = operation else { return }
        let failure = ended.failure
        if clibpq_is_good(handle) == 0 {
            fail(failure ?? lost())
        } else if let failure, failure.sqlstate == "0A000" || failure.sqlstate == "26000" {
            // A prepared statement no longer fits (a migration changed a type): only a new connection forgets it.
            fail(failure)
        } else if let failure {
            finish(.failure(failure))
        } else {
            finish(.success(ended.results))
        }
    }

    private static func error(of raw: OpaquePointer) -> PostgresError {
        let sqlstate = String(cString: clibpq_result_sqlstate(raw))
        let detail = String(cString: clibpq_result_detail(raw))
        let constraint = String(cString: clibpq_result_constraint(raw))
        var message = String(cString: clibpq_result_message(raw)).split(separator: "\n").joined(separator: "; ")
        // The detail of a violated constraint (class 23) is the row with all its values: what nobody may keep or log.
        if !detail.isEmpty, !sqlstate.hasPrefix("23") { message += ": " + detail }
        return PostgresError(
            sqlstate.isEmpty ? .connection : .server, sqlstate: sqlstate.isEmpty ? nil : sqlstate, message,
            constraint: constraint.isEmpty ? nil : constraint)
    }

    /// Whether the server is inside a transaction block, working or failed.
    var serverIsInTransaction: Bool {
        guard let handle else { return false }
        return Int(clibpq_transaction_status(handle)) != clibpq_transaction_idle
    }

    fileprivate func received(_ notice: Notice) {
        if notices.count < Self.mostNotices { notices.append(notice) }
    }
}

/// Set once for the process, before the first connection.
private let noticeReceiver: Void = clibpq_set_notice_receiver { context, sqlstate, message in
    guard let context, let sqlstate, let message else { return }
    // Unretained: libpq calls this only from inside our own calls on the connection's handle, which the connection
    // owns, so the object is alive.
    Unmanaged<PostgresConnection>.fromOpaque(context).takeUnretainedValue().received(
        PostgresConnection.Notice(sqlstate: String(cString: sqlstate), message: String(cString: message)))
}

/// A handle whose connection object is gone.
///
/// `@unchecked Sendable`: made in `deinit`, when nobody else can reach the handle, and freed once on the loop.
private struct Leftover: @unchecked Sendable {
    let handle: OpaquePointer
    let watch: EventLoop.WatchToken?
    let loop: EventLoop

    func free() {
        if let watch { loop.unwatch(watch) }
        clibpq_finish(handle)
    }
}
