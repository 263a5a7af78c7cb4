internal import EventLoop
package import Jobs
internal import Redis

extension RedisJobSource {
    /// Most jobs one settle call ends: each costs some seven commands, and 256 took Redis 4 ms on average.
    private static let mostPerCall = 128
    /// Most bytes one settle call carries: Redis works on nothing else meanwhile.
    private static let mostBytesPerCall = 512 << 10
    /// First pause after a failed settle; doubled up to the cap.
    private static let retryMilliseconds: Int64 = 50
    private static let retryCapMilliseconds: Int64 = 1000

    package func settle(_ settlements: [Settlement]) async {
        loop.preconditionInLoop()
        var groups: [Int: [Settlement]] = [:]
        for settlement in settlements {
            groups[settlement.job.partition * Lane.allCases.count + settlement.job.lane.rawValue, default: []]
                .append(settlement)
        }
        await withTaskGroup(of: Void.self) { tasks in
            for (_, group) in groups {
                tasks.addTask { await self.settle(oneLane: group) }
            }
        }
        for settlement in settlements {
            held.remove(
                HeldEntry(settlement.job.partition, settlement.job.lane, settlement.job.entryID))
        }
    }

    private func settle(oneLane group: [Settlement]) async {
        let job = group[0].job
        // Done comes first: the script acknowledges all of those in one command.
        let isDone = { (settlement: Settlement) in if case .done = settlement.action { true } else { false } }
        let ordered = group.allSatisfy(isDone) ? group : group.filter(isDone) + group.filter { !isDone($0) }
        var call = EncodedArguments()
        var count = 0
        for settlement in ordered {
            if count == Self.mostPerCall
                || (count > 0 && call.byteCount + Self.size(settlement) > Self.mostBytesPerCall)
            {
                await send([.encoded(call)], job.partition, job.lane)
                call = EncodedArguments()
                count = 0
            }
            Self.append(settlement, to: &call)
            count += 1
        }
        if count > 0 { await send([.encoded(call)], job.partition, job.lane) }
    }

    /// About what one settlement takes on the wire.
    private static func size(_ settlement: Settlement) -> Int {
        switch settlement.action {
        case .done: 96
        case .forward(_, let payload): payload.count + 256
        case .retry, .park: settlement.job.payload.count + 256
        case .dead: settlement.job.payload.count + 256 + deadTextBytes
        }
    }

    private static func append(_ settlement: Settlement, to call: inout EncodedArguments) {
        let job = settlement.job
        var owner: String { "\(job.header.kind.rawValue)|\(job.header.organization)" }
        switch settlement.action {
        case .done:
            call.append("done")
            call.append(job.entryID)
            call.append(owner)
            call.append(job.header.stamp)
        case .forward(let lane, let payload):
            var header = job.header
            header.attempts = 0
            call.append("forward")
            call.append(job.entryID)
            call.append(job.header.stamp)
            call.append(Int64(lane.rawValue + 1))
            call.append(header.encoded)
            call.append(payload)
        case .retry(let milliseconds, let attempts):
            var header = job.header
            header.attempts = attempts
            call.append("retry")
            call.append(job.entryID)
            call.append(job.header.stamp)
            call.append(milliseconds)
            call.append(header.encoded)
            call.append(job.payload)
        case .park:
            call.append("park")
            call.append(job.entryID)
            call.append(job.header.encoded)
            call.append(job.payload)
        case .dead(let reason, let text):
            call.append("dead")
            call.append(job.entryID)
            call.append(owner)
            call.append(job.header.stamp)
            call.append(job.header.encoded)
            call.append(job.payload)
            call.append(reason)
            call.append(deadText(text))
        }
    }

    /// Error text kept with a dead letter: enough for a message, too little for a stack trace to fill memory.
    private static let deadTextBytes = 1024

    private static func deadText(_ text: String) -> [UInt8] { Array(text.utf8.prefix(deadTextBytes)) }

    /// Sends one call until it succeeds: a settle that fails is kept, or a finished job would run again for nothing
    /// and a retry be lost.
    private func send(_ jobs: [RedisArgument], _ partition: Int, _ lane: Lane) async {
        let callKeys: [RedisArgument] =
            [
                .text(keys.lane(partition, lane)), .text(keys.due(partition, lane)),
                .text(keys.later(partition, lane)), .text(keys.dead(partition, lane)), .text(keys.backlog(partition)),
                .text(keys.stats(partition)), .text(keys.alone(partition)),
            ] + Lane.allCases.map { RedisArgument.text(keys.lane(partition, $0)) }
            + [.text(keys.meta(partition)), .text(keys.parked(partition, lane))]
        let arguments: [RedisArgument] = [.text(QueueKeys.group), .text(consumer), .text(lane.name)] + jobs
        var pause = Self.retryMilliseconds
        while true {
            do {
                _ = try await client.evaluate(QueueScripts.settle, keys: callKeys, arguments: arguments)
                return
            } catch {
                // After a wipe there is no stream and no group: nothing is left to settle.
                if case .server(let prefix) = error.code, prefix == "NOGROUP" { return }
                if error.code == .closed { return }
                counters.settleRetries += 1
                await loop.sleep(milliseconds: pause)
                pause = min(pause * 2, Self.retryCapMilliseconds)
            }
        }
    }

    /// Buries an entry that is not of our form, with whatever it holds.
    func buryMalformed(_ stream: Stream, id: String, header: [UInt8], payload: [UInt8]) async {
        await send(
            [
                "dead", .text(id), "|", "0", .bytes(header), .bytes(payload), "malformed",
                "the entry has no readable header",
            ], stream.partition, stream.lane)
    }

    /// Notes that a suspected job starts alone.
    /// - Returns: how many starts alone, this one included, have not ended; nil when Redis did not answer, and the job
    ///   must then not be started.
    package func startAlone(_ job: FetchedJob) async -> Int? {
        let answer = try? await client.evaluate(
            QueueScripts.startAlone, keys: [.text(keys.alone(job.partition))],
            arguments: [.integer(job.header.stamp)])
        return answer?.int64.map { Int($0) }
    }

    package func forgetStart(_ job: FetchedJob) async {
        _ = try? await client.evaluate(
            QueueScripts.forgetCounts, keys: [.text(keys.alone(job.partition))],
            arguments: [.integer(job.header.stamp), .integer(1)])
    }
}
