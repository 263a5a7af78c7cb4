internal import EventLoop
package import Jobs
internal import Redis

extension RedisJobSource {
    private static let unparkMilliseconds: Int64 = 1000

    /// Moves parked jobs back when their pause is over, lifted or run out. Runs until cancelled; survives every error.
    package func unparkUntilCancelled() async {
        while !Task.isCancelled {
            await unparkOnce()
            await loop.sleep(milliseconds: Self.unparkMilliseconds)
        }
    }

    /// One look at all parked jobs of the stage. One call at a time: however many come back, others are served between.
    func unparkOnce() async {
        for stream in streams { await unpark(stream) }
    }

    /// Goes through the parked jobs of a stream, past those that are still paused, unless it did so under the orders
    /// that stand now.
    private func unpark(_ stream: Stream) async {
        var cursor = "-"
        var mark: String?
        while !Task.isCancelled {
            let answer = try? await client.evaluate(
                QueueScripts.unpark,
                keys: [
                    .text(keys.meta(stream.partition)), .text(keys.parked(stream.partition, stream.lane)),
                    .text(stream.key),
                ],
                arguments: [
                    .integer(Int64(QueueScripts.mostEntries)), .text(cursor), .text(looked[stream.key] ?? ""),
                ])
            guard let parts = answer?.elements, parts.count == 4, let parked = parts[0].int64,
                let next = parts[2].text, let stands = parts[3].text
            else { return }
            parkedJobs[stream.key] = parked
            // Orders that changed on the way may free what was passed by: the next look begins anew.
            looked[stream.key] = next.isEmpty && stands == mark ?? stands ? stands : nil
            mark = mark ?? stands
            if next.isEmpty { return }
            cursor = next
        }
    }

    /// How many jobs of a lane are parked, as of the last look.
    package func parkedJobs(_ lane: Lane) -> Int64 {
        streams.reduce(0) { $1.lane == lane ? $0 + (parkedJobs[$1.key] ?? 0) : $0 }
    }

    /// Whether the last fetch was refused because the lane is paused.
    package func isPaused(_ lane: Lane) -> Bool {
        streams.contains { $0.lane == lane && $0.refusedAt != nil }
    }
}
