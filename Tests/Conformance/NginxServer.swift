import Foundation
import Glibc
import TestSupport

/// A private nginx on a loopback port: its own configuration, no state outside a temporary folder.
final class NginxServer {
    enum Problem: Error {
        case notInstalled
        case didNotStart(String)
    }

    /// Where Debian's package puts it.
    static let path = "/usr/sbin/nginx"

    let port: Int
    private let process: pid_t
    private let folder: URL

    /// Starts nginx, with a front that reads each request whole and hands it to a back that answers 200.
    init() async throws {
        guard FileManager.default.isExecutableFile(atPath: Self.path) else { throw Problem.notInstalled }
        folder = FileManager.default.temporaryDirectory.appendingPathComponent("nginx-\(UUID().uuidString.prefix(8))")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        port = try LoopbackPort.free()
        let configuration = """
            daemon off;
            master_process off;
            pid \(folder.path)/nginx.pid;
            error_log \(folder.path)/error.log info;
            events { worker_connections 4096; }
            http {
                access_log off;
                client_body_temp_path \(folder.path)/body;
                proxy_temp_path \(folder.path)/proxy;
                fastcgi_temp_path \(folder.path)/fastcgi;
                uwsgi_temp_path \(folder.path)/uwsgi;
                scgi_temp_path \(folder.path)/scgi;
                client_max_body_size 64k;
                large_client_header_buffers 4 8k;
                server {
                    listen unix:\(folder.path)/back.sock;
                    location / { return 200 "served"; }
                }
                server {
                    listen 127.0.0.1:\(port);
                    location / { proxy_pass http://unix:\(folder.path)/back.sock; }
                }
            }
            """
        let file = folder.appendingPathComponent("nginx.conf")
        try Data(configuration.utf8).write(to: file)
        process = try Self.spawn(["-p", folder.path, "-c", file.path])
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            if (try? await RawHTTPClient.connect(port: port)) != nil { break }
            guard ContinuousClock.now < deadline, kill(process, 0) == 0 else {
                let log = try? String(contentsOf: folder.appendingPathComponent("error.log"), encoding: .utf8)
                throw Problem.didNotStart(log ?? "no log")
            }
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    deinit {
        kill(process, SIGTERM)
        var status: Int32 = 0
        waitpid(process, &status, 0)
        try? FileManager.default.removeItem(at: folder)
    }

    /// Starts nginx with no signal blocked. A child inherits the mask of the thread that starts it, Dispatch's threads
    /// block most signals, and an nginx of one process never unblocks them: it could not be told to end.
    private static func spawn(_ arguments: [String]) throws -> pid_t {
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        var argv: [UnsafeMutablePointer<CChar>?] = ([path] + arguments).map { strdup($0) }
        defer { for pointer in argv { free(pointer) } }
        argv.append(nil)
        var pid: pid_t = 0
        let result = posix_spawn(&pid, path, nil, &attributes, argv, environ)
        guard result == 0 else { throw Problem.didNotStart(String(cString: strerror(result))) }
        return pid
    }
}
