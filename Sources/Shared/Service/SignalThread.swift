internal import CLinux
internal import Glibc

/// The thread that turns signals into orders and that ends the process when a stop takes too long. It runs no task and
/// needs no loop, so nothing that hangs can hold it up.
///
/// A second signal ends the process at once. Of another kind it does so only after a second: a terminal and a
/// supervisor that both pass on one Ctrl-C send SIGINT and SIGTERM together and mean one stop.
final class SignalThread: Sendable {
    private static let togetherNanoseconds: Int64 = 1_000_000_000
    private let lifecycle: ProcessLifecycle
    private let log: Log
    private let reading: Int32

    /// Takes over SIGTERM and SIGINT of the whole process and ignores SIGPIPE; once in a process. The thread and its
    /// pipe live as long as the process.
    init(lifecycle: ProcessLifecycle, log: Log) throws(ServiceError) {
        reading = clinux_take_signals()
        guard reading >= 0 else {
            throw ServiceError(.internalFault, "cannot take signals: \(String(cString: strerror(-reading)))")
        }
        self.lifecycle = lifecycle
        self.log = log
        // A stop that no signal ordered must wake the thread too, so that it watches the deadline.
        lifecycle.onStop { clinux_wake_signals() }
        var thread = pthread_t()
        // The thread owns a reference, given up only with the process.
        let context = Unmanaged.passRetained(self).toOpaque()
        let result = pthread_create(
            &thread, nil,
            { raw in
                // The only caller passes the retained object above.
                Unmanaged<SignalThread>.fromOpaque(raw!).takeUnretainedValue().main()
            }, context)
        guard result == 0 else { throw ServiceError(.internalFault, "cannot start the signal thread") }
        pthread_detach(thread)
    }

    private func main() -> Never {
        clinux_name_thread("signals", -1)
        var first: (number: UInt8, at: Int64)?
        while true {
            var question = pollfd(fd: reading, events: Int16(POLLIN), revents: 0)
            let remaining = lifecycle.remainingGraceMilliseconds
            if remaining == 0 {
                log.error("the stop took longer than its grace")
                _exit(ExitCode.internalFault)
            }
            _ = poll(&question, 1, remaining.map { Int32(clamping: $0 + 1) } ?? -1)
            var number: UInt8 = 0
            while read(reading, &number, 1) == 1 {
                guard number != 0 else { continue }
                let now = clinux_monotonic_ns()
                guard let earlier = first else {
                    first = (number, now)
                    lifecycle.stop(because: Self.name(number))
                    continue
                }
                guard earlier.number == number || now - earlier.at >= Self.togetherNanoseconds else { continue }
                log.warn("ended at once by a second signal", ["signal": Self.name(number)])
                _exit(ExitCode.signalBase + Int32(number))
            }
        }
    }

    private static func name(_ number: UInt8) -> String {
        switch Int32(number) {
        case SIGTERM: "SIGTERM"
        case SIGINT: "SIGINT"
        default: "signal \(number)"
        }
    }
}
