internal import EventLoop
internal import OpsCore
internal import Service
internal import Synchronization

/// What commands share while one of them runs. Settings are read and servers asked only by those that need them.
final class Session: Sendable {
    let environment: [String: String]
    let time: any TimeSource
    /// Tells people of progress; goes to standard error.
    let progress: @Sendable (String) -> Void
    /// Whether somebody watches the progress.
    let isWatched: Bool
    /// Tells people of progress in place of what it told last; only where somebody watches.
    let redraw: @Sendable (String) -> Void
    /// Whether somebody wants the command to end: Ctrl-C, SIGTERM, or a terminal that went away. From the first call on
    /// these end nothing by themselves.
    let isInterrupted: @Sendable () -> Bool
    /// Shows text at once, before the command has ended; false when nobody reads any more.
    let show: @Sendable (String) -> Bool
    private let opened = Mutex<Administration?>(nil)

    init(
        environment: [String: String], time: any TimeSource = SystemTime(),
        isWatched: Bool = false,
        progress: @escaping @Sendable (String) -> Void = { _ in },
        redraw: (@Sendable (String) -> Void)? = nil, isInterrupted: @escaping @Sendable () -> Bool = { false },
        show: @escaping @Sendable (String) -> Bool = { _ in false }
    ) {
        self.environment = environment
        self.isWatched = isWatched
        self.time = time
        self.progress = progress
        self.redraw = redraw ?? progress
        self.isInterrupted = isInterrupted
        self.show = show
    }

    /// - Throws: `ServiceError` for settings that can't be used.
    func settings() throws -> Settings { try Settings(environment: environment, for: .commandLine) }

    /// The installation that the settings name.
    func administration() throws -> Administration {
        let settings = try settings()
        return opened.withLock { slot in
            if let administration = slot { return administration }
            let installation = Installation(
                settings: settings, loop: EventLoop(name: "ratchet", time: time))
            let administration = Administration(
                installation: installation, actor: Operator.loginName(environment: environment))
            slot = administration
            return administration
        }
    }

    /// Closes what was opened.
    func close() async {
        let administration = opened.withLock { slot in
            defer { slot = nil }
            return slot
        }
        guard let administration else { return }
        await administration.installation.close()
        administration.installation.loop.stop()
    }
}
