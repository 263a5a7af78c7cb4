package import EventLoop
internal import Service

/// Looks at everything an installation stands on and says how to mend what is wrong. Changes nothing.
package struct Doctor: Sendable {
    typealias Check = Diagnosis.Check

    let environment: [String: String]
    let installation: Installation?
    let time: any TimeSource
    private let settingsError: ServiceError?

    /// - Parameters:
    ///   - environment: of the processes, as far as it is known here.
    ///   - loop: where the connections live.
    package init(environment: [String: String], loop: EventLoop) {
        self.environment = environment
        time = loop.time
        do throws(ServiceError) {
            let settings = try Settings(environment: environment, for: .commandLine)
            installation = Installation(settings: settings, loop: loop)
            settingsError = nil
        } catch {
            installation = nil
            settingsError = error
        }
    }

    /// Runs every check that can be run, in the order in which faults build on each other. A server that is away costs
    /// a few seconds.
    package func examine() async -> Diagnosis {
        guard let installation else {
            let lines = (settingsError?.message ?? "").split(separator: "\n")
            let faults = lines.map {
                Check("configuration", .fail, String($0), remedy: "correct the variable in the processes' environment")
            }
            return Diagnosis(checks: faults + certificates(extraRoots: nil))
        }
        let settings = installation.settings
        var checks = configuration(settings)
        checks += certificates(extraRoots: settings.extraAppleRoots)
        let redis = await redis(installation)
        checks += redis.checks
        checks += await postgres(installation, redis)
        checks += await processes(settings, installation.loop)
        if redis.answers && !redis.isReplica { checks += await echo(installation) }
        checks += proxy(settings)
        await installation.close()
        return Diagnosis(checks: checks)
    }

    // MARK: - Configuration

    private func configuration(_ settings: Settings) -> [Check] {
        let given = settings.effective.count { $0.source == .environment }
        var checks = [
            Check("configuration", .ok, "mode \(settings.mode.rawValue), \(given) settings from the environment")
        ]
        for unknown in settings.unknownNames {
            checks.append(
                Check(
                    "configuration", .warn, "\(unknown.name) is no setting and is ignored",
                    remedy: unknown.nearest.map { "did you mean \($0)?" } ?? "remove it; ratchet config lists all"))
        }
        for process in ServiceProcess.services {
            do throws(ServiceError) {
                _ = try Settings(environment: environment, for: process)
            } catch {
                for line in error.message.split(separator: "\n") {
                    checks.append(
                        Check(
                            "configuration", .warn,
                            "with this environment \(process.rawValue) would not start: \(line)",
                            remedy: "set it where \(process.rawValue) is started"))
                }
            }
        }
        return checks
    }

    // MARK: - The proxy in front

    private func proxy(_ settings: Settings) -> [Check] {
        let address = ListenAddress(host: settings.ingressHost, port: settings.ingressPort)
        let isLoopback = Self.isLoopback(settings.ingressHost)
        guard settings.mode == .production else {
            return isLoopback
                ? [Check("proxy", .ok, "development mode on \(address): none is needed")]
                : [
                    Check(
                        "proxy", .warn, "development mode listens on \(address), which others can reach",
                        remedy: "set RATCHET_INGRESS_HOST=127.0.0.1, or RATCHET_MODE=production")
                ]
        }
        guard isLoopback else {
            return [
                Check(
                    "proxy", .warn, "the SDK API listens on \(address) without TLS",
                    remedy:
                        "put a TLS proxy in front and set RATCHET_INGRESS_HOST=127.0.0.1 (deploy/ has an nginx site);"
                        + " if it stands on another machine, let only it reach the port")
            ]
        }
        var checks: [Check] = []
        if settings.trustedProxies.isEmpty {
            checks.append(
                Check(
                    "proxy", .warn, "no proxy is trusted, so all callers behind one count as one address",
                    remedy: "set RATCHET_TRUSTED_PROXIES=127.0.0.1,::1"))
        }
        if let listening = Self.somethingListens(onPort: Self.tlsPort), !listening {
            checks.append(
                Check(
                    "proxy", .warn,
                    "nothing listens on port \(Self.tlsPort) of this machine, and the SDK API only on"
                        + " \(address): no app can reach it",
                    remedy: "start the TLS proxy (deploy/ has an nginx site)"))
        }
        return checks.isEmpty ? [Check("proxy", .ok, "the SDK API listens on \(address), behind a proxy")] : checks
    }

    private static let tlsPort = 443

    static func isLoopback(_ host: String) -> Bool {
        guard let bytes = AddressRange.bytes(of: host) else { return false }
        return AddressRange.list("127.0.0.0/8,::1")?.contains { $0.contains(bytes) } ?? false
    }

    /// Nil when the kernel doesn't tell.
    private static func somethingListens(onPort port: Int) -> Bool? {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].compactMap { TextFile.read($0) }
        guard !tables.isEmpty else { return nil }
        return tables.contains { listens(inTable: String(decoding: $0, as: UTF8.self), onPort: port) }
    }

    /// Reads the kernel's table of sockets (proc(5), /proc/net/tcp): address:port in hexadecimal, state 0A is LISTEN.
    static func listens(inTable table: String, onPort port: Int) -> Bool {
        table.split(separator: "\n").dropFirst().contains { line in
            let fields = line.split(separator: " ")
            guard fields.count > 3, fields[3] == "0A", let text = fields[1].split(separator: ":").last else {
                return false
            }
            return Int(text, radix: 16) == port
        }
    }
}
