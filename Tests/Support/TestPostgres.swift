import Foundation
import Glibc
package import Postgres
import Synchronization

/// A private Postgres server of this test process: unix socket only, no durability, its own data in a short folder
/// under /tmp. It ends with the process, however that ends: a shell holds the read end of a pipe and takes the server
/// down at its end of file.
///
/// `@unchecked Sendable`: what changes after `init` is behind the mutex; `Process` and the pipe are only kept alive.
package final class TestPostgres: @unchecked Sendable {
    package struct Failure: Error, CustomStringConvertible {
        package let description: String
    }

    /// The server that all tests of a process share; started at first use (about two seconds). Each test takes its own
    /// schema.
    package static let shared = Result { try TestPostgres() }

    /// A libpq connection string for the superuser.
    package let conninfo: String
    package let folder: String
    private let wrapper = Process()
    private let lifeline = Pipe()
    private let answers = Pipe()
    private let commands = Mutex(())
    private static let schemas = Atomic<Int>(0)

    /// Starts a server of its own, for tests that stop or freeze it. Blocks until it takes connections.
    package init() throws {
        var template = Array("/tmp/ratchet-pg-XXXXXX\0".utf8CString.dropLast())
        guard let made = template.withUnsafeMutableBufferPointer({ mkdtemp($0.baseAddress!) }) else {
            throw Failure(description: "no temporary folder: errno \(errno)")
        }
        folder = String(cString: made)
        conninfo = Self.conninfo(folder, "postgres")
        wrapper.executableURL = URL(fileURLWithPath: "/bin/sh")
        wrapper.arguments = ["-c", Self.script, "test-postgres", folder, Self.binaries]
        wrapper.standardInput = lifeline
        wrapper.standardOutput = answers
        // Other children of this process must not keep the lifeline open.
        for handle in [lifeline.fileHandleForWriting, answers.fileHandleForReading] {
            _ = fcntl(handle.fileDescriptor, F_SETFD, FD_CLOEXEC)
        }
        try wrapper.run()
        let answer = readAnswer()
        guard answer == "ready" else {
            let log = (try? String(contentsOfFile: folder + "/log", encoding: .utf8)) ?? ""
            throw Failure(description: "the test Postgres did not start: \(answer) \(log)")
        }
    }

    deinit { try? lifeline.fileHandleForWriting.close() }

    /// A libpq connection string for another database of this server.
    package func conninfo(database: String) -> String { Self.conninfo(folder, database) }

    private static func conninfo(_ folder: String, _ database: String) -> String {
        "host=\(folder) user=postgres dbname=\(database)"
    }

    /// The path of a program that belongs to the server, such as `pg_dump`.
    package static func program(_ name: String) -> String { "\(binaries)/\(name)" }

    /// A schema name that no other test of this process has. It does not exist yet.
    package func schema() -> String {
        "t\(getpid())_\(Self.schemas.add(1, ordering: .relaxed).newValue)"
    }

    /// A configuration for a schema on this server.
    package func configuration(
        schema: String?, connectDeadlineMilliseconds: Int64 = 10_000, queryDeadlineMilliseconds: Int64 = 60_000
    ) -> PostgresConfiguration {
        // Generous, since the machine may be busy with other builds; tests of deadlines name their own.
        PostgresConfiguration(
            conninfo: conninfo, schema: schema, applicationName: "tests",
            connectDeadlineMilliseconds: connectDeadlineMilliseconds,
            queryDeadlineMilliseconds: queryDeadlineMilliseconds)
    }

    /// Stops the server at once, as a crash would. Blocks until it has ended.
    package func stop() throws { try order("stop") }

    /// Starts it again with its data. Blocks until it takes connections.
    package func start() throws { try order("start") }

    /// Stops the server and all of its backends from running (SIGSTOP), so that it accepts and answers nothing.
    package func freeze() { signalAll(SIGSTOP) }

    /// Lets a frozen server go on.
    package func thaw() { signalAll(SIGCONT) }

    private func signalAll(_ signal: Int32) {
        guard let text = try? String(contentsOfFile: folder + "/data/postmaster.pid", encoding: .utf8),
            let first = text.split(separator: "\n").first, let postmaster = pid_t(first)
        else { return }
        // The parent first, so that no new child escapes.
        kill(postmaster, signal)
        let children = try? String(contentsOfFile: "/proc/\(postmaster)/task/\(postmaster)/children", encoding: .utf8)
        for child in (children ?? "").split(separator: " ") {
            if let pid = pid_t(child) { kill(pid, signal) }
        }
    }

    private func order(_ word: String) throws {
        let answer = commands.withLock { _ in
            lifeline.fileHandleForWriting.write(Data((word + "\n").utf8))
            return readAnswer()
        }
        guard answer == "ready" else { throw Failure(description: "the test Postgres did not \(word): \(answer)") }
    }

    private func readAnswer() -> String {
        var line: [UInt8] = []
        while let byte = try? answers.fileHandleForReading.read(upToCount: 1)?.first, byte != 10 { line.append(byte) }
        return String(decoding: line, as: UTF8.self)
    }

    private static let binaries =
        ProcessInfo.processInfo.environment["RATCHET_PG_BIN"] ?? "/usr/lib/postgresql/15/bin"

    /// Runs the server as user postgres when the tests run as root, since initdb refuses root. deadlock_timeout is
    /// short, so that a deadlock shows as one.
    private static let script = """
        folder=$1; bin=$2
        trap '' INT TERM HUP
        as() {
            if [ "$(id -u)" = 0 ]; then
                setpriv --reuid=postgres --regid=postgres --init-groups "$@"
            else
                "$@"
            fi
        }
        start() {
            as "$bin/pg_ctl" start -w -t 60 -s -D "$folder/data" -l "$folder/log" </dev/null >&2 && echo ready || echo failed
        }
        stop() {
            pid=$(head -n 1 "$folder/data/postmaster.pid" 2>/dev/null)
            if [ -n "$pid" ]; then kill -CONT $pid $(cat /proc/$pid/task/$pid/children 2>/dev/null) 2>/dev/null; fi
            as "$bin/pg_ctl" stop -w -t 20 -s -m immediate -D "$folder/data" </dev/null >&2 && echo ready || echo failed
        }
        if [ "$(id -u)" = 0 ]; then chown postgres "$folder"; fi
        cd "$folder" || exit 1
        if as "$bin/initdb" -D "$folder/data" -U postgres -E UTF8 --locale=C -A trust --no-sync >"$folder/initdb.log" 2>&1
        then
            cat >>"$folder/data/postgresql.conf" <<CONF
        listen_addresses = ''
        unix_socket_directories = '$folder'
        fsync = off
        full_page_writes = off
        shared_buffers = 64MB
        max_connections = 400
        max_wal_size = 512MB
        deadlock_timeout = 100ms
        log_min_messages = fatal
        CONF
            start
        else
            echo "initdb failed, see $folder/initdb.log"
            read line
            exit 1
        fi
        while read order; do
            case $order in
                start) start ;;
                stop) stop ;;
            esac
        done
        stop >/dev/null
        rm -rf "$folder"
        """
}
