/// Who reads a setting. The raw value is the executable's name, which log lines and metrics carry.
package enum ServiceProcess: String, CaseIterable, Sendable {
    case ingress = "ratchet-ingress"
    case verifier = "ratchet-verifier"
    case writer = "ratchet-writer"
    case console = "ratchet-console"
    case commandLine = "ratchet"
    /// The development stack, which starts all of them.
    case stack = "make run"

    /// Names the files of the process in the run folder: `ingress.pid`, `ingress.ops`.
    package var fileName: String {
        rawValue.utf8.starts(with: "ratchet-".utf8) ? String(rawValue.dropFirst("ratchet-".count)) : rawValue
    }
}

extension Set<ServiceProcess> {
    /// The processes that run for ever.
    static var services: Self { [.ingress, .verifier, .writer] }
    static var workers: Self { [.verifier, .writer] }
    static var everyone: Self { services.union([.commandLine]) }
}
