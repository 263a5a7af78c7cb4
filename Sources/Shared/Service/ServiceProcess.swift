/// Who reads a setting. The raw value is the executable's name, which also names its pid and operations files.
package enum ServiceProcess: String, CaseIterable, Sendable {
    case ingress = "ratchet-ingress"
    case verifier = "ratchet-verifier"
    case writer = "ratchet-writer"
    case console = "ratchet-console"
    case commandLine = "ratchet"
    /// The development stack, which starts all of them.
    case stack = "make run"
}

extension Set<ServiceProcess> {
    /// The processes that run for ever.
    static var services: Self { [.ingress, .verifier, .writer] }
    static var workers: Self { [.verifier, .writer] }
    static var everyone: Self { services.union([.commandLine]) }
}
