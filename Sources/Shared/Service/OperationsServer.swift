package import EventLoop
internal import HTTP

/// Health and metrics of a process, for machines that watch it: `GET /healthz`, `/readyz`, `/metrics`.
///
/// It listens on an address of its own and writes `host:port` into `<name>.ops` of the run folder, so that a free port
/// can be found by name. It is not meant for the public: keep it on loopback or a private network.
package final class OperationsServer: Sendable {
    /// How long one check may take before it counts as failed: half of what probes usually wait.
    package static let checkTimeoutMilliseconds: Int64 = 2_000
    /// Probes and scrapers are few; more connections are a mistake or an attack.
    private static let maxConnections = 64

    private let name: String
    private let metrics: Metrics
    private let lifecycle: ProcessLifecycle
    private let liveness: HealthChecks
    private let readiness: HealthChecks
    private let loop: EventLoop

    /// - Parameters:
    ///   - name: of the address file, `<name>.ops`.
    ///   - loop: runs the server and the checks; better not a loop that carries the process's own work.
    ///   - checkTimeoutMilliseconds: of the loop's clock.
    package init(
        name: String, loop: EventLoop, metrics: Metrics, lifecycle: ProcessLifecycle,
        checkTimeoutMilliseconds: Int64 = OperationsServer.checkTimeoutMilliseconds
    ) {
        self.name = name
        self.loop = loop
        self.metrics = metrics
        self.lifecycle = lifecycle
        liveness = HealthChecks(loop: loop, timeoutMilliseconds: checkTimeoutMilliseconds)
        readiness = HealthChecks(loop: loop, timeoutMilliseconds: checkTimeoutMilliseconds)
    }

    /// Adds a question to `/readyz`: can the process do its work now? It starts on the server's loop and is cancelled
    /// when it takes too long.
    package func addReadiness(_ check: String, _ ask: @escaping @Sendable () async -> Health) {
        readiness.add(check, ask)
    }

    /// Adds a question to `/healthz`: must the process be restarted? A dependency that is away is no reason.
    package func addLiveness(_ check: String, _ ask: @escaping @Sendable () async -> Health) {
        liveness.add(check, ask)
    }

    /// Lets `/healthz` fail when a loop no longer runs what it is given.
    package func addLiveness(of watched: EventLoop, _ check: String) {
        addLiveness(check) {
            await withUnsafeContinuation { continuation in
                watched.execute { continuation.resume(returning: .good) }
            }
        }
    }

    /// A server that listens.
    package struct Listening: Sendable {
        /// Where, with the port that was really taken.
        package let address: ListenAddress
        fileprivate let server: HTTPServer
        fileprivate let folder: RunFolder
        fileprivate let file: String

        /// Removes the address file, then stops the server; answers that were begun get a short while.
        package func stop(graceMilliseconds: Int64 = 500) async {
            folder.remove(file, ifItSays: "\(address)\n")
            await server.shutdown(graceMilliseconds: graceMilliseconds)
        }
    }

    /// Listens and tells where.
    /// - Throws: `.configuration` when the address is taken or the run folder can't be written.
    package func start(at address: ListenAddress, runFolder: RunFolder) throws(ServiceError) -> Listening {
        var configuration = HTTPServerConfiguration()
        configuration.maxConnections = Self.maxConnections
        let server = HTTPServer(loop: loop, configuration: configuration) { [self] in await answer($0) }
        let port: Int
        do {
            port = try server.listen(host: address.host, port: address.port)
        } catch {
            throw ServiceError(
                .configuration, "cannot serve health and metrics at RATCHET_OPS_LISTEN=\(address): \(error.message)")
        }
        let bound = ListenAddress(host: address.host, port: port)
        let file = "\(name).ops"
        do {
            try runFolder.write(file, "\(bound)\n")
        } catch {
            loop.spawn { await server.shutdown(graceMilliseconds: 0) }
            throw error
        }
        return Listening(address: bound, server: server, folder: runFolder, file: file)
    }

    // MARK: - Answers

    private func answer(_ request: HTTPRequest) async -> HTTPResponse {
        let answers: [String: @Sendable () async -> HTTPResponse] = [
            "/healthz": { [self] in await health(liveness, good: "live", bad: "stuck", stopping: false) },
            "/readyz": { [self] in
                await health(readiness, good: "ready", bad: "not ready", stopping: lifecycle.isStopping)
            },
            "/metrics": { [self] in
                HTTPResponse(
                    status: 200, headers: [("Content-Type", Metrics.contentType), ("Cache-Control", "no-store")],
                    body: Array(metrics.exposition().utf8))
            },
        ]
        guard let answer = answers[request.path] else {
            return HTTPResponse(status: 404, text: "not found; there are /healthz, /readyz and /metrics")
        }
        guard request.method == .get else {
            return HTTPResponse(status: 405, headers: [("Allow", "GET")], text: "only GET")
        }
        return await answer()
    }

    /// 503 when a check is bad, otherwise 200; the body names each check either way, and says `degraded` when all is
    /// ready but something is refused.
    private func health(_ checks: HealthChecks, good: StaticString, bad: StaticString, stopping: Bool) async
        -> HTTPResponse
    {
        var results = await checks.results()
        if stopping { results.append((name: "stopping", health: .bad("the process is stopping"))) }
        let allGood = results.allSatisfy { if case .bad = $0.health { false } else { true } }
        let isDegraded = results.contains {
            if case .level(let level, let reason) = $0.health { level > 0 || !reason.isEmpty } else { false }
        }
        var json = JSONText()
        json.raw("{\"status\":")
        json.string(allGood && isDegraded ? "degraded" : (allGood ? good : bad).description)
        json.raw(",\"checks\":[")
        for (index, result) in results.enumerated() {
            if index > 0 { json.raw(",") }
            json.raw("{\"name\":")
            json.string(result.name)
            json.raw(",\"ok\":")
            var reason = ""
            switch result.health {
            case .good: json.flag(true)
            case .level(let level, let text):
                json.flag(true)
                json.raw(",\"level\":")
                json.integer(level)
                reason = text
            case .bad(let text):
                json.flag(false)
                reason = text
            }
            if !reason.isEmpty {
                json.raw(",\"reason\":")
                json.string(reason, limit: 1_024)
            }
            json.raw("}")
        }
        json.raw("]}")
        json.newline()
        return HTTPResponse(
            status: allGood ? 200 : 503,
            headers: [("Content-Type", "application/json"), ("Cache-Control", "no-store")], body: json.bytes)
    }
}
