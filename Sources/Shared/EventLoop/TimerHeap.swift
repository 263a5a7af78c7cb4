/// Timers of one loop: a binary heap by due time, with removal by token done lazily.
struct TimerHeap {
    private struct Entry {
        let due: Int64
        let token: UInt64
    }
    private var heap: [Entry] = []
    private var bodies: [UInt64: () -> Void] = [:]

    var isEmpty: Bool { bodies.isEmpty }
    /// Timers that will run.
    var count: Int { bodies.count }
    /// Entries held, those of cancelled timers included.
    var entries: Int { heap.count }

    /// Nanoseconds of the loop's clock at which the next live timer is due.
    var nextDue: Int64? {
        mutating get {
            dropCancelled()
            return heap.first?.due
        }
    }

    mutating func insert(token: UInt64, due: Int64, body: @escaping () -> Void) {
        bodies[token] = body
        heap.append(Entry(due: due, token: token))
        siftUp(heap.count - 1)
    }

    /// Forgets a timer.
    /// - Returns: its body, which the caller lets go once it is done with the heap; nil when it had run.
    mutating func remove(token: UInt64) -> (() -> Void)? {
        guard let body = bodies.removeValue(forKey: token) else { return nil }
        // Cancelled entries wait in the heap for their time; when they are most of it, it is built anew, so that a
        // timer set and cancelled per request costs no memory.
        if heap.count > 64 && heap.count > 2 * bodies.count {
            heap = heap.filter { bodies[$0.token] != nil }
            heap.sort(by: Self.before)
        }
        return body
    }

    /// Removes and returns the body of the next due timer.
    /// - Parameter limit: timers with this token or a later one wait for the next turn, even when due, so that a timer
    ///   that sets itself anew can't hold the loop.
    mutating func popDue(now: Int64, olderThan limit: UInt64) -> (() -> Void)? {
        dropCancelled()
        guard let first = heap.first, first.due <= now, first.token < limit else { return nil }
        pop()
        return bodies.removeValue(forKey: first.token)
    }

    private mutating func dropCancelled() {
        while let first = heap.first, bodies[first.token] == nil { pop() }
    }

    private static func before(_ a: Entry, _ b: Entry) -> Bool {
        a.due != b.due ? a.due < b.due : a.token < b.token
    }

    private mutating func pop() {
        heap.swapAt(0, heap.count - 1)
        heap.removeLast()
        var parent = 0
        while true {
            let left = 2 * parent + 1
            guard left < heap.count else { return }
            let right = left + 1
            let child = right < heap.count && Self.before(heap[right], heap[left]) ? right : left
            guard Self.before(heap[child], heap[parent]) else { return }
            heap.swapAt(child, parent)
            parent = child
        }
    }

    private mutating func siftUp(_ start: Int) {
        var child = start
        while child > 0 {
            let parent = (child - 1) / 2
            guard Self.before(heap[child], heap[parent]) else { return }
            heap.swapAt(child, parent)
            child = parent
        }
    }
}
