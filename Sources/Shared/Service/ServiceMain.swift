internal import Bytes
package import EventLoop
internal import Glibc

/// What every process is given once it runs.
package struct ServiceContext: Sendable {
    package let process: ServiceProcess
    package let settings: Settings
    package let log: Log
    package let metrics: Metrics
    /// Add readiness checks here before the first await that can take long.
    package let operations: OperationsServer
    package let lifecycle: ProcessLifecycle
    package let time: any TimeSource
    /// A loop for what is small: it also serves operations. Real work belongs on loops of its own.
    package let loop: EventLoop
    /// `host-pid-random`: never used before, whatever is restarted where.
    package let livenessName: String

    /// Returns when the process must stop, or when the task is cancelled.
    package func stopping() async { await lifecycle.stopping() }
}

/// The frame of every process's main: settings, signals, run files, operations, exit codes.
package enum ServiceMain {
    /// Runs a process and ends it; the caller's `main` needs nothing else.
    ///
    /// The body sets the process up, waits for `context.stopping()`, and cleans up. Returning ends the process with 0.
    /// A `ServiceError` ends it with its exit code (2 configuration, 3 dependency away), any other error with 70, each
    /// with one line on standard error. From the order to stop on, the body has RATCHET_STOP_GRACE_MS; then the process
    /// ends with 70.
    /// - Parameters:
    ///   - environment: the process's own when nil.
    ///   - body: starts on the global executor.
    package static func run(
        _ process: ServiceProcess, environment: [String: String]? = nil,
        _ body: @escaping @Sendable (ServiceContext) async throws -> Void
    ) async -> Never {
        do {
            let settings = try Settings(environment: environment ?? Settings.processEnvironment(), for: process)
            try await run(process, settings, body)
            end(ExitCode.success)
        } catch let error as ServiceError {
            end(error.exitCode, error.message, process)
        } catch {
            end(ExitCode.internalFault, "\(error)", process)
        }
    }

    private static func run(
        _ process: ServiceProcess, _ settings: Settings,
        _ body: @escaping @Sendable (ServiceContext) async throws -> Void
    ) async throws {
        let time = SystemTime()
        let name = process.rawValue
        let log = Log(process: name, level: settings.logLevel, time: time)
        for unknown in settings.unknownNames {
            log.warn("unknown setting", ["name": unknown.name, "nearest": unknown.nearest ?? ""])
        }
        let lifecycle = ProcessLifecycle(graceMilliseconds: settings.stopGraceMilliseconds, time: time)
        _ = try SignalThread(lifecycle: lifecycle, log: log)
        let folder = RunFolder(path: settings.runFolder)
        let processFile = (name: "\(process.fileName).pid", text: "\(getpid())\n")
        try folder.write(processFile.name, processFile.text)
        defer { folder.remove(processFile.name, ifItSays: processFile.text) }
        let metrics = Metrics()
        metrics.registerProcess(name, time: time)
        metrics.gauge("ratchet_log_lines_dropped", "Log lines that standard error didn't take.") {
            Double(log.droppedLines)
        }
        let loop = EventLoop(name: "operations", time: time)
        let operations = OperationsServer(name: process.fileName, loop: loop, metrics: metrics, lifecycle: lifecycle)
        let listening = try operations.start(at: settings.operationsAddress, runFolder: folder)
        let context = ServiceContext(
            process: process, settings: settings, log: log, metrics: metrics, operations: operations,
            lifecycle: lifecycle, time: time, loop: loop, livenessName: livenessName())
        log.info(
            "started",
            [
                "version": Version.text, "pid": getpid(), "operations": "\(listening.address)",
                "name": context.livenessName,
            ])
        let result = await Task { try await body(context) }.result
        // A body that ended by itself, well or not, leaves through the same door, with the same deadline.
        lifecycle.stop(because: "the work ended")
        await listening.stop()
        if case .success = result { log.info("stopped", ["reason": lifecycle.stopReason ?? ""]) }
        try result.get()
    }

    /// `host-pid-random`, of letters, digits, dots and dashes.
    package static func livenessName() -> String {
        var buffer = [CChar](repeating: 0, count: 256)
        let named = gethostname(&buffer, buffer.count - 1) == 0
        let bytes = buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        let host = String(decoding: bytes.map { isNameCharacter($0) ? $0 : UInt8(ascii: "-") }, as: UTF8.self)
        return "\(named && !host.isEmpty ? host : "host")-\(getpid())-\(Hex.encode(Secrets.random(4)))"
    }

    private static func isNameCharacter(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E: true
        default: false
        }
    }

    /// Ends the process without running exit handlers: other threads are still at work and must not meet globals that
    /// are being torn down. Nothing is buffered.
    private static func end(_ code: Int32, _ message: String? = nil, _ process: ServiceProcess? = nil) -> Never {
        if let message, let process {
            for line in message.split(separator: "\n") {
                _ = DescriptorLogSink().write(Array("\(process.rawValue): \(line)\n".utf8))
            }
        }
        _exit(code)
    }
}
