package import EventLoop
package import Redis

/// Keeps a process' `live:` key fresh, so that others don't take over what it holds. Runs until cancelled; at a stop
/// it goes on to the last moment.
package struct LiveProcess: Sendable {
    /// Host, pid and random text: never the same twice, so a restarted process is not taken for its dead self.
    package let name: String
    private let loop: EventLoop
    private let client: RedisClient
    private let key: String

    /// The key lives 5 s: four missed beats.
    private static let beatMilliseconds: Int64 = 1000

    package init(name: String, loop: EventLoop, client: RedisClient, keys: QueueKeys) {
        self.name = name
        self.loop = loop
        self.client = client
        key = keys.live(name)
    }

    /// One beat. Errors are left to the next one.
    package func beat() async {
        _ = try? await client.evaluate(
            QueueScripts.live, keys: [.text(key)], arguments: [], timeoutMilliseconds: Self.beatMilliseconds)
    }

    /// Beats each second until the task is cancelled.
    package func run() async {
        while !Task.isCancelled {
            await beat()
            await loop.sleep(milliseconds: Self.beatMilliseconds)
        }
    }

    /// Says that the process is gone, so that others need not wait for the key to expire.
    package func end() async {
        _ = try? await client.command(["DEL", .text(key)], timeoutMilliseconds: Self.beatMilliseconds)
    }
}
