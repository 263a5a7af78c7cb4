internal import EventLoop
internal import Jobs
internal import Redis

extension RedisJobSource {
    private static let reclaimMilliseconds: Int64 = 1000
    /// Entries idle for longer are taken over even from a worker that seems alive: every dependency call ends well
    /// before, and workers refresh what they hold.
    private static let idleMilliseconds: Int64 = 30_000
    /// XAUTOCLAIM looks at ten times as many entries as it is asked for: 64 keep a call near 3 ms.
    private static let idleAtOnce: Int64 = 64
    /// Not more is taken over than a worker soon gets to, and at least a full batch: with a quarter of that, a dead
    /// writer's 1,024 jobs took four passes of a second.
    private static let mostTakenOver = 1024
    /// Refreshing each five seconds leaves five tries before the thirty are over.
    private static let refreshEveryPasses = 5

    /// Takes over what dead workers held, keeps what is held here fresh, and forgets dead consumers. Runs until
    /// cancelled; survives every error.
    package func reclaimUntilCancelled() async {
        var pass = 0
        while !Task.isCancelled {
            if !stopping { await reclaimOnce() }
            pass += 1
            let isTurn = pass % Self.refreshEveryPasses == 0
            // Where a delivery may have been lost, this look and the next one bring it back within two seconds.
            if isTurn || deliveriesInDoubt || !strays.isEmpty { await refreshHeld() }
            if isTurn && !stopping { await reclaimIdle() }
            await loop.sleep(milliseconds: Self.reclaimMilliseconds)
        }
    }

    private struct Consumer {
        let stream: Stream
        let name: String
        let pending: Int64
    }

    /// One pass: finds consumers without liveness and takes over what they hold.
    func reclaimOnce() async {
        let streams = self.streams
        let answers = await client.pipeline(
            streams.map { ["XINFO", "CONSUMERS", .text($0.key), .text(QueueKeys.group)] })
        var others: [Consumer] = []
        for (stream, answer) in zip(streams, answers) {
            guard case .success(let value) = answer else { continue }
            for item in value.elements ?? [] {
                let fields = item.elements ?? []
                var name: String?
                var pending: Int64 = 0
                for index in stride(from: 0, to: fields.count - 1, by: 2) {
                    if fields[index].text == "name" { name = fields[index + 1].text }
                    if fields[index].text == "pending" { pending = fields[index + 1].int64 ?? 0 }
                }
                if let name, name != consumer { others.append(Consumer(stream: stream, name: name, pending: pending)) }
            }
        }
        let names = Array(Set(others.map(\.name)))
        guard !names.isEmpty else { return }
        let alive = await client.pipeline(names.map { ["EXISTS", .text(keys.live($0))] })
        var dead: Set<String> = []
        for (name, answer) in zip(names, alive) {
            // No answer is not a death certificate.
            if case .success(let value) = answer, value.int64 == 0 { dead.insert(name) }
        }
        for other in others where dead.contains(other.name) {
            if other.pending > 0 {
                if takenOver.count < Self.mostTakenOver && !stopping { await takeOver(other) }
            } else if other.name != "released" {
                _ = try? await client.evaluate(
                    QueueScripts.reap, keys: [.text(other.stream.key)],
                    arguments: [.text(QueueKeys.group), .text(other.name)])
            }
        }
    }

    private func takeOver(_ other: Consumer) async {
        let answer = try? await client.evaluate(
            QueueScripts.reclaim, keys: [.text(keys.meta(other.stream.partition)), .text(other.stream.key)],
            arguments: [
                .text(QueueKeys.group), .text(consumer), .integer(Int64(QueueScripts.mostEntries)), .text(other.name),
            ])
        guard let parts = answer?.elements, let pending = parts.first?.int64 else { return }
        let claimed = parts.dropFirst()
        if Int64(claimed.count) < pending { counters.lostWhilePending += pending - Int64(claimed.count) }
        for part in claimed {
            guard let entry = part.elements, entry.count == 3, let id = entry[0].text else { continue }
            let deliveries = Int(entry[1].int64 ?? 1) + 1
            if let job = await job(other.stream, id: id, fields: entry[2], deliveries: deliveries) {
                takenOver.append(job)
                counters.reclaimed += 1
            }
        }
    }

    /// Takes over entries that nobody has touched for long, whoever holds them.
    func reclaimIdle() async {
        for stream in streams where takenOver.count < Self.mostTakenOver {
            let answer = try? await client.command([
                "XAUTOCLAIM", .text(stream.key), .text(QueueKeys.group), .text(consumer),
                .integer(Self.idleMilliseconds), .text(idleCursors[stream.key] ?? "0-0"), "COUNT",
                .integer(Self.idleAtOnce),
            ])
            guard let parts = answer?.elements, parts.count >= 2, let cursor = parts[0].text else { continue }
            idleCursors[stream.key] = cursor
            // Pending ones without an entry, whoever held them: Redis takes them off the list as it tells of them.
            if parts.count > 2 { counters.lostWhilePending += Int64(parts[2].elements?.count ?? 0) }
            for item in parts[1].elements ?? [] {
                guard let entry = item.elements, entry.count == 2, let id = entry[0].text,
                    !held.contains(HeldEntry(stream.partition, stream.lane, id))
                else { continue }
                // Its holder neither ended nor refreshed it: run alone, whatever its count.
                if let job = await job(stream, id: id, fields: entry[1], deliveries: 3) {
                    takenOver.append(job)
                    counters.reclaimed += 1
                }
            }
        }
    }

    /// Refreshes what this consumer holds. An entry that Redis says it holds, twice in a row, while nobody here knows
    /// of it was handed out in a reply that never arrived (a connection cut or a timeout): it is taken in hand now, as
    /// nobody else ever would while this process lives.
    func refreshHeld() async {
        let known = strays
        strays = []
        deliveriesInDoubt = false
        for stream in streams {
            var start = "-"
            var more = true
            while more {
                guard let ids = await refresh(stream, from: start) else { break }
                let unknown = ids.filter { !held.contains(HeldEntry(stream.partition, stream.lane, $0)) }
                let lost = unknown.filter { known.contains(HeldEntry(stream.partition, stream.lane, $0)) }
                await takeInHand(lost, stream)
                strays.formUnion(unknown.map { HeldEntry(stream.partition, stream.lane, $0) })
                strays.subtract(held)
                more = ids.count == QueueScripts.mostEntries
                start = "(" + (ids.last ?? "")
            }
        }
    }

    /// - Returns: what this consumer holds of a stream, from an id on; nil when Redis does not say.
    private func refresh(_ stream: Stream, from start: String) async -> [String]? {
        do {
            return try await client.evaluate(
                QueueScripts.refresh, keys: [.text(stream.key)],
                arguments: [
                    .text(QueueKeys.group), .text(consumer), .integer(Int64(QueueScripts.mostEntries)), .text(start),
                ]
            ).elements?.compactMap(\.text)
        } catch {
            deliveriesInDoubt = true
            return nil
        }
    }

    private func takeInHand(_ ids: [String], _ stream: Stream) async {
        guard !ids.isEmpty else { return }
        let answer = try? await client.command(
            ["XCLAIM", .text(stream.key), .text(QueueKeys.group), .text(consumer), "0"] + ids.map { .text($0) })
        for item in answer?.elements ?? [] {
            guard let entry = item.elements, entry.count == 2, let id = entry[0].text,
                let job = await job(stream, id: id, fields: entry[1], deliveries: 2)
            else { continue }
            takenOver.append(job)
            counters.reclaimed += 1
        }
    }
}
