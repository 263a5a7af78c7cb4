/// Who reads a setting. The raw value is the executable's name, which log lines and metrics carry.
package enum ServiceProcess: String, CaseIterable, Sendable {
    case ingress = "ratchet-ingress"
    case verifier = "ratchet-verifier"
    case writer = "ratchet-writer"
    case sweeper = "ratchet-sweeper"
    case console = "ratchet-console"
    case commandLine = "ratchet"
    /// The development stack, which starts all of them.
    case stack = "make run"

    /// Names the files of the process in the run folder: `ingress.pid`, `ingress.ops`.
    package var fileName: String {
        rawValue.utf8.starts(with: "ratchet-".utf8) ? String(rawValue.dropFirst("ratchet-".count)) : rawValue
    }
}

extension ServiceProcess {
    /// The processes that run for ever, in the order of a write's way.
    package static let services: [ServiceProcess] = [.ingress, .verifier, .writer, .sweeper]
}

extension Set<ServiceProcess> {
    static var services: Self { Set(ServiceProcess.services) }
    static var workers: Self { [.verifier, .writer] }
    static var everyone: Self { services.union([.commandLine]) }
    /// Who knows Redis.
    static var queue: Self { everyone.subtracting([.sweeper]) }
    /// Who knows Postgres.
    static var database: Self { [.writer, .sweeper, .commandLine] }
}
