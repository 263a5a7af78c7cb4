import Foundation
import Glibc
import TestSupport

/// An nginx that speaks TLS and HTTP/2 under a certificate of its own for `localhost`, and answers every POST alike.
struct SecureServer {
    let url: String
    /// PEM file.
    let certificate: String
    private let pid: pid_t
    private let folder: String

    static func start() async throws -> SecureServer {
        let folder = "/tmp/ratchet-tls-\(UUID().uuidString.prefix(8))"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let port = try LoopbackPort.free()
        let configuration = """
            daemon on;
            pid \(folder)/nginx.pid;
            error_log \(folder)/error.log info;
            events { }
            http {
                access_log off;
                client_body_temp_path \(folder)/body;
                proxy_temp_path \(folder)/proxy;
                fastcgi_temp_path \(folder)/fastcgi;
                uwsgi_temp_path \(folder)/uwsgi;
                scgi_temp_path \(folder)/scgi;
                server {
                    listen 127.0.0.1:\(port) ssl http2;
                    ssl_certificate \(folder)/certificate.pem;
                    ssl_certificate_key \(folder)/key.pem;
                    location / { return 200 '{"attribution":false}'; }
                }
            }
            """
        try Data(configuration.utf8).write(to: URL(fileURLWithPath: folder + "/nginx.conf"))
        let path = ["PATH": "/usr/sbin:/usr/bin:/bin"]
        let made = try await CommandRun.of(
            "/usr/bin/openssl",
            [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
                "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder + "/key.pem",
                "-out", folder + "/certificate.pem",
            ], path)
        guard made.code == 0 else { throw RatchetProcess.Failure(description: made.errors) }
        // It listens by the time that the first process ends.
        let started = try await CommandRun.of("/usr/sbin/nginx", ["-p", folder, "-c", folder + "/nginx.conf"], path)
        let text = try? String(contentsOfFile: folder + "/nginx.pid", encoding: .utf8)
        guard started.code == 0, let pid = text.flatMap({ pid_t($0.trimmingCharacters(in: .whitespacesAndNewlines)) })
        else { throw RatchetProcess.Failure(description: started.errors) }
        return SecureServer(
            url: "https://localhost:\(port)/api/v1/", certificate: folder + "/certificate.pem", pid: pid,
            folder: folder)
    }

    func stop() async {
        kill(pid, SIGTERM)
        try? FileManager.default.removeItem(atPath: folder)
    }
}
