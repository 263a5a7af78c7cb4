internal import Glibc
internal import Synchronization

/// A wish to end: Ctrl-C, SIGTERM, or a terminal that went away. A command that asks for it ends by itself, and says
/// what stays as it is.
enum Interruption {
    private static let flag = Atomic<Bool>(false)
    /// Once: from then on these signals only set the flag. The flag is made first, since a handler must not.
    private static let caught: Bool = {
        flag.store(false, ordering: .relaxed)
        for number in [SIGINT, SIGTERM, SIGHUP] where number != SIGHUP || !ignoresHangup() {
            signal(number) { _ in Interruption.set() }
        }
        return true
    }()

    /// Whether it was started to outlive its terminal (`nohup`).
    private static func ignoresHangup() -> Bool {
        var action = sigaction()
        sigaction(SIGHUP, nil, &action)
        return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self)
            == unsafeBitCast(SIG_IGN, to: Int.self)
    }

    private static func set() { flag.store(true, ordering: .relaxed) }

    static func happened() -> Bool { caught && flag.load(ordering: .relaxed) }
}
