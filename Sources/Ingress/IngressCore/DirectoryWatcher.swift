package import EventLoop
package import RedisQueue
package import Wire

/// Keeps an ingress loop's copy of the app directory fresh.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone.
package final class DirectoryWatcher: @unchecked Sendable {
    /// The directory; nil until the first one was read, and again when Redis has none (wiped, no writer): writes are
    /// then answered 503, since dropping them could lose what belongs to somebody. While Redis can't be reached the
    /// last one stays: the queue itself refuses writes then.
    package private(set) var current: AppDirectory?

    private let loop: EventLoop
    private let published: PublishedDirectory

    /// Changes must be seen within a second, the writer's own look at Postgres included.
    private static let pollMilliseconds: Int64 = 250

    package init(loop: EventLoop, published: PublishedDirectory) {
        self.loop = loop
        self.published = published
    }

    /// Looks four times a second until the task is cancelled.
    package func run() async {
        while !Task.isCancelled {
            await look()
            await loop.sleep(milliseconds: Self.pollMilliseconds)
        }
    }

    /// One look: reads the directory when its version is another than the one in hand.
    package func look() async {
        loop.preconditionInLoop()
        do {
            let version = try await published.version()
            if version == current?.version { return }
            guard let snapshot = try await published.snapshot() else {
                current = nil
                return
            }
            current = try AppDirectory(version: snapshot.version, published: snapshot.body)
        } catch {
            // Unreachable, or text that is none of ours: what is in hand stays.
            return
        }
    }
}
