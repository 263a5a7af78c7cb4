import EventLoop
import Foundation
package import Redis
import Synchronization

/// A private redis-server on a unix socket in a short temporary folder, for one test process.
///
/// `shared()` is one server for all tests of the process: keep keys apart with `keyPrefix()`, never flush, stop or
/// reconfigure it. Tests of faults start their own with `start(_:)`. A server dies with the test process, however that
/// ends: its wrapper kills it when the pipe to the process closes, and removes the folder.
package final class TestRedis: Sendable {
    package struct Options: Sendable {
        package var appendOnly: Bool
        /// `always`, `everysec` or `no`.
        package var appendFsync: String
        /// As Redis writes it: `16mb`; nil is no limit. The policy is always noeviction.
        package var maxMemory: String?
        /// Listens on 127.0.0.1 too, on a free port.
        package var tcp: Bool
        /// More of redis-server's own arguments, such as `--requirepass`, `secret`.
        package var arguments: [String]
        /// Lines of a sentinel's configuration: a sentinel then, and no server. It listens on TCP.
        package var sentinel: [String]?

        package init(
            appendOnly: Bool = false, appendFsync: String = "everysec", maxMemory: String? = nil, tcp: Bool = false,
            arguments: [String] = [], sentinel: [String]? = nil
        ) {
            self.appendOnly = appendOnly
            self.appendFsync = appendFsync
            self.maxMemory = maxMemory
            self.tcp = tcp || sentinel != nil
            self.arguments = arguments
            self.sentinel = sentinel
        }
    }

    package struct Failure: Error, CustomStringConvertible {
        package let description: String
        package init(description: String) { self.description = description }
    }

    /// How a server is ended.
    package enum Ending: String, Sendable {
        /// SIGKILL: nothing is saved or said.
        case killed
        /// SIGTERM: AOF is flushed, clients are hung up on.
        case terminated
    }

    private struct Running {
        let wrapper: pid_t
        let orders: Int32
        let server: pid_t
    }

    package let options: Options
    /// Holds the socket, the AOF and `log`.
    package let folder: String
    /// Non-zero when `Options.tcp` was set; the same over restarts.
    package let port: Int
    private let running = Mutex<Running?>(nil)

    private static let sharedServer = Task { try await TestRedis.start() }
    private static let prefixes = Mutex(0)
    /// A debug build on a busy machine included.
    private static let patienceMilliseconds: Int64 = 20_000

    // MARK: - Starting

    /// The server that all tests of this process share.
    package static func shared() async throws -> TestRedis { try await sharedServer.value }

    /// A server of the test's own, ready for commands. It ends with the process or with `stop`.
    package static func start(_ options: Options = Options()) async throws -> TestRedis {
        let server = try TestRedis(options)
        try await server.start()
        return server
    }

    private init(_ options: Options) throws {
        self.options = options
        var template = Array("/tmp/rr-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Failure(description: "no temporary folder for redis-server") }
        folder = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        port = options.tcp ? try LoopbackPort.lasting() : 0
    }

    /// A prefix that no other test of this process or another has used: `t<pid>-<n>:`.
    package func keyPrefix() -> String {
        let number = Self.prefixes.withLock { number in
            number += 1
            return number
        }
        return "t\(getpid())-\(number):"
    }

    /// The unix socket.
    package var address: RedisAddress { RedisAddress(endpoint: .unix(path: socketPath)) }
    package var tcpAddress: RedisAddress { RedisAddress(endpoint: .tcp(host: "127.0.0.1", port: UInt16(port))) }
    /// The unix socket as a setting: `unix:///…`.
    package var url: String { "unix://\(socketPath)" }
    package var socketPath: String { "\(folder)/s" }
    /// The server's process; nil while stopped.
    package var processID: Int32? { running.withLock { $0?.server } }
    /// False once it has ended by itself, or was stopped.
    package var isRunning: Bool {
        guard let processID, let status = try? String(contentsOfFile: "/proc/\(processID)/stat", encoding: .utf8),
            let state = status.split(separator: ")").last?.split(separator: " ").first
        else { return false }
        // The wrapper collects its child only when it is told to.
        return state != "Z"
    }
    package var log: String { (try? String(contentsOfFile: "\(folder)/log", encoding: .utf8)) ?? "" }

    /// Starts the server again after `stop`, with the same folder and port, and waits until it takes commands.
    package func start() async throws {
        try launch()
        try await waitUntilReady()
    }

    /// Starts the server and does not wait: it may still be loading.
    /// - Parameter more: arguments for this run alone.
    package func launch(_ more: [String] = []) throws {
        // A leftover of a killed server would make waiting for the new one end too early.
        unlink(socketPath)
        unlink("\(folder)/pid")
        var ends: [Int32] = [0, 0]
        // A socket pair, since Glibc's module has no pipe2: close-on-exec from birth, or a process that another test
        // starts meanwhile would inherit the writing end and keep the server alive.
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(bitPattern: SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { throw Failure(description: "no pipe for redis-server") }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[0], 0)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // No signal blocked, as the threads of a task pool have them: SIGTERM would never reach the server. And a group
        // of its own: Ctrl-C ends the tests, and their end ends the server.
        var unblocked = sigset_t()
        sigemptyset(&unblocked)
        posix_spawnattr_setsigmask(&attributes, &unblocked)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK))
        posix_spawnattr_setpgroup(&attributes, 0)
        let arguments = ["sh", "-c", Self.wrapper, folder] + (try serverArguments()) + more
        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) }
        defer { for argument in argv { free(argument) } }
        argv.append(nil)
        var wrapper = pid_t()
        let result = posix_spawn(&wrapper, "/bin/sh", &actions, &attributes, argv, environ)
        close(ends[0])
        guard result == 0 else {
            close(ends[1])
            throw Failure(description: "can't start /bin/sh for redis-server")
        }
        var server: pid_t?
        for _ in 0..<2_000 where server == nil {
            usleep(5_000)
            server = (try? String(contentsOfFile: "\(folder)/pid", encoding: .utf8)).flatMap {
                pid_t($0.trimmingCharacters(in: .whitespacesAndNewlines))
            }
        }
        guard let server else {
            close(ends[1])
            throw Failure(description: "redis-server did not start: install the package redis-server")
        }
        running.withLock { $0 = Running(wrapper: wrapper, orders: ends[1], server: server) }
    }

    /// `$0` is the folder. The shell waits for one line of orders; the end of the pipe without one means that the test
    /// process is gone.
    private static let wrapper = """
        exec 3<&0
        # A file size limit, as tests of a full disk set, then makes writing fail instead of ending the server by signal.
        trap '' XFSZ
        redis-server "$@" </dev/null >>"$0/log" 2>&1 3<&- &
        server=$!
        echo $server >"$0/pid.new" && mv "$0/pid.new" "$0/pid"
        # The shell would report the end of its child to the terminal.
        exec 2>/dev/null
        order=remove
        read -r order <&3
        [ "$order" = terminated ] || kill -9 $server 2>/dev/null
        [ "$order" = terminated ] && kill -15 $server 2>/dev/null
        wait $server
        case "$order" in killed|terminated) ;; *) rm -rf "$0" ;; esac
        """

    private func serverArguments() throws -> [String] {
        if let lines = options.sentinel {
            let file = "\(folder)/sentinel.conf"
            // A sentinel writes down there what it learns, and must find it again.
            if !FileManager.default.fileExists(atPath: file) {
                let own = ["port \(port)", "bind 127.0.0.1", "unixsocket \(socketPath)", "dir \(folder)"]
                try ((own + lines).joined(separator: "\n") + "\n").write(
                    toFile: file, atomically: true, encoding: .utf8)
            }
            return [file, "--sentinel"]
        }
        return [
            "--port", "\(port)", "--bind", "127.0.0.1", "--unixsocket", socketPath, "--dir", folder,
            "--save", "", "--appendonly", options.appendOnly ? "yes" : "no", "--appendfsync", options.appendFsync,
            "--maxmemory", options.maxMemory ?? "0", "--maxmemory-policy", "noeviction", "--daemonize", "no",
            "--enable-debug-command", "yes",
        ] + options.arguments
    }

    private func waitUntilReady() async throws {
        var login = address
        if let at = options.arguments.firstIndex(of: "--requirepass"), at + 1 < options.arguments.count {
            login.password = options.arguments[at + 1]
        }
        let loop = Self.loop
        let client = RedisClient(loop: loop, address: login)
        let ready = try await loop.run { await client.waitUntilConnected(milliseconds: Self.patienceMilliseconds) }
        await client.close()
        guard ready else { throw Failure(description: "redis-server does not answer: \(log)") }
    }

    // MARK: - Commands and faults

    private static let loop = EventLoop(name: "test-redis")

    /// Runs one command on a short connection of its own, from any task.
    @discardableResult
    package func command(_ arguments: [RedisArgument]) async throws -> RedisValue {
        try await pipeline([arguments])[0].get()
    }

    /// Runs commands in order on one short connection of their own, from any task.
    package func pipeline(_ commands: [[RedisArgument]]) async throws -> [Result<RedisValue, RedisError>] {
        let loop = Self.loop
        let configuration = RedisClientConfiguration(
            commandTimeoutMilliseconds: 3 * Self.patienceMilliseconds,
            connectionWaitMilliseconds: Self.patienceMilliseconds)
        let client = RedisClient(loop: loop, address: address, configuration: configuration)
        let results = try await loop.run { await client.pipeline(commands) }
        await client.close()
        return results
    }

    /// Ends the server and waits until its process is gone. The folder stays for `start`.
    package func stop(_ ending: Ending = .killed) async {
        guard
            let ended = running.withLock({ running -> Running? in
                defer { running = nil }
                return running
            })
        else { return }
        if ending == .killed { kill(ended.server, SIGKILL) }
        let order = Array("\(ending.rawValue)\n".utf8)
        _ = write(ended.orders, order, order.count)
        close(ended.orders)
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            Thread.detachNewThread {
                var status: Int32 = 0
                while waitpid(ended.wrapper, &status, 0) < 0 && errno == EINTR {}
                continuation.resume()
            }
        }
    }

    /// `stop` and `start`.
    package func restart(_ ending: Ending = .killed) async throws {
        await stop(ending)
        try await start()
    }

    /// SIGSTOP: the server keeps its connections and answers nothing.
    package func freeze() {
        if let processID { kill(processID, SIGSTOP) }
    }

    /// SIGCONT after `freeze`.
    package func thaw() {
        if let processID { kill(processID, SIGCONT) }
    }

    /// Stops the server and removes its folder; for tests that start many.
    package func remove() async {
        await stop()
        try? FileManager.default.removeItem(atPath: folder)
    }
}
