internal import EventLoop
internal import Jobs
internal import Redis

extension RedisJobSource {
    /// Most jobs moved per stream and call. After an outage this paces what comes back.
    private static let promoteAtOnce: Int64 = 100
    private static let promoteMilliseconds: Int64 = 1000
    /// A due time that is almost here is not worth a busy loop.
    private static let shortestPauseMilliseconds: Int64 = 20

    /// Moves delayed jobs back when their time has come. Runs until cancelled; survives every error, since a promoter
    /// that dies silently leaves delayed jobs lying for days.
    package func promoteUntilCancelled() async {
        while !Task.isCancelled {
            let pause = await promoteOnce()
            await loop.sleep(milliseconds: max(Self.shortestPauseMilliseconds, min(pause, Self.promoteMilliseconds)))
        }
    }

    /// One pass over all delayed jobs of the stage.
    /// - Returns: milliseconds until the next one is due, at most a second.
    func promoteOnce() async -> Int64 {
        let streams = self.streams
        return await withTaskGroup(of: Int64.self) { group in
            for stream in streams {
                group.addTask { await self.promote(stream) }
            }
            return await group.reduce(Self.promoteMilliseconds) { min($0, $1) }
        }
    }

    private func promote(_ stream: Stream) async -> Int64 {
        let answer = try? await client.evaluate(
            QueueScripts.promote,
            keys: [
                .text(keys.due(stream.partition, stream.lane)), .text(keys.later(stream.partition, stream.lane)),
                .text(stream.key),
            ],
            arguments: [.integer(Self.promoteAtOnce)])
        guard let parts = answer?.elements, parts.count == 2, let moved = parts[0].int64, let next = parts[1].int64
        else { return Self.promoteMilliseconds }
        counters.promoted += moved
        return next < 0 ? Self.promoteMilliseconds : next
    }
}
