package import EventLoop
package import RedisQueue

/// Counts writes that were dropped because their bundle resolves to no organization or to several, and hands the
/// counts to the queue's Redis once a second. The first question of every integration is 'where did my calls go?'.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone.
package final class DropCounter: @unchecked Sendable {
    /// Dropped since the start.
    package private(set) var total: Int64 = 0
    private var counts: [String: Int64] = [:]
    private let loop: EventLoop
    private let store: UnresolvedCounts

    private static let flushMilliseconds: Int64 = 1000
    /// Names kept between two flushes; beyond, drops are counted under `otherNames`. Strangers choose the names.
    private static let mostNames = 1000
    /// No bundle id: those have no asterisk.
    private static let otherNames = "*"

    package init(loop: EventLoop, store: UnresolvedCounts) {
        self.loop = loop
        self.store = store
    }

    package func count(bundleID: String) {
        loop.preconditionInLoop()
        total += 1
        add(bundleID, 1)
    }

    private func add(_ bundleID: String, _ count: Int64) {
        let name = counts[bundleID] != nil || counts.count < Self.mostNames ? bundleID : Self.otherNames
        counts[name, default: 0] += count
    }

    /// Hands counts over each second until the task is cancelled, and once more at the end.
    package func run() async {
        while !Task.isCancelled {
            await flush()
            await loop.sleep(milliseconds: Self.flushMilliseconds)
        }
        await flush()
    }

    /// Hands the counts over now. Counts that another call has on its way are not waited for.
    package func flush() async {
        guard !counts.isEmpty else { return }
        let batch = counts
        counts.removeAll(keepingCapacity: true)
        do {
            try await store.add(batch)
        } catch {
            // Kept for the next second; a count that was added although its answer was lost is counted twice, which
            // a hint may be.
            for (name, count) in batch { add(name, count) }
        }
    }
}
