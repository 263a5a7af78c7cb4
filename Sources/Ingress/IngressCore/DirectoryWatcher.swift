package import EventLoop
package import RedisQueue
package import Wire

/// Keeps an ingress loop's copy of the app directory fresh.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone.
package final class DirectoryWatcher: @unchecked Sendable {
    /// The directory; nil until the first one was read, and again when Redis has none (wiped, no writer): writes are
    /// then answered 503, since dropping them could lose what belongs to somebody. While Redis can't be reached the
    /// last one stays: the queue itself refuses writes then, and `isFresh` ends.
    package private(set) var current: AppDirectory?
    private var confirmedNanoseconds = Int64.min

    private let loop: EventLoop
    private let published: PublishedDirectory

    /// Changes must be seen within a second, the writer's own look at Postgres included.
    private static let pollMilliseconds: Int64 = 250
    /// Changes are promised within a second; twice that, so that one slow answer of Redis refuses nobody.
    private static let freshNanoseconds: Int64 = 2_000_000_000

    package init(loop: EventLoop, published: PublishedDirectory) {
        self.loop = loop
        self.published = published
    }

    /// Whether `current` was seen in Redis lately. An older one can't say that a bundle is nobody's: its app may have
    /// been connected since, and a dropped write is lost for good.
    package var isFresh: Bool {
        loop.preconditionInLoop()
        let oldest = loop.time.monotonicNanoseconds - Self.freshNanoseconds
        return current != nil && confirmedNanoseconds >= oldest
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
        // What Redis says was true at some time after this.
        let asked = loop.time.monotonicNanoseconds
        do {
            let version = try await published.version()
            if version != current?.version {
                if let snapshot = try await published.snapshot() {
                    current = try AppDirectory(version: snapshot.version, published: snapshot.body)
                } else {
                    current = nil
                }
            }
            confirmedNanoseconds = asked
        } catch {
            // Unreachable, or text that is none of ours: what is in hand stays.
            return
        }
    }
}
