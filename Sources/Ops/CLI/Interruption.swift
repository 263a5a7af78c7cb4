internal import Glibc
internal import Synchronization

/// A wish to end: Ctrl-C, SIGTERM, or a terminal that went away. A command that asks for it ends by itself, and says
/// what stays as it is.
enum Interruption {
    private static let flag = Atomic<Bool>(false)
    /// Once: from then on these signals only set the flag. The flag is made first, since a handler must not.
    private static let caught: Bool = {
        flag.store(false, ordering: .relaxed)
        for number in [SIGINT, SIGTERM, SIGHUP] { signal(number) { _ in Interruption.set() } }
        return true
    }()

    private static func set() { flag.store(true, ordering: .relaxed) }

    static func happened() -> Bool { caught && flag.load(ordering: .relaxed) }
}
