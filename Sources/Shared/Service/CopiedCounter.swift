internal import Synchronization

/// Feeds a counter from a total that is kept elsewhere (on an event loop, say) and copied now and then.
package final class CopiedCounter: Sendable {
    private let counter: Counter
    private let copied = Mutex<Int64>(0)

    package init(_ counter: Counter) { self.counter = counter }

    /// Raises the counter to a total; a smaller one than before is ignored.
    package func copy(_ total: Int64) {
        let growth = copied.withLock { copied -> Int64 in
            let growth = max(0, total - copied)
            copied += growth
            return growth
        }
        if growth > 0 { counter.add(Int(growth)) }
    }
}
