/// A command that was written and waits for its reply.
struct PendingCommand {
    enum Completion {
        case task(UnsafeContinuation<Result<RedisValue, RedisError>, Never>)
        case pipeline(PipelineReplies, index: Int)
        case handler((Result<RedisValue, RedisError>) -> Void)
    }

    let completion: Completion
    /// Nanoseconds of the loop's monotonic clock.
    let deadline: Int64

    func complete(_ result: Result<RedisValue, RedisError>) {
        switch completion {
        case .task(let continuation): continuation.resume(returning: result)
        case .pipeline(let replies, let index): replies.set(result, at: index)
        case .handler(let body): body(result)
        }
    }
}

/// Gathers the replies of one pipeline and resumes its task with the last of them.
final class PipelineReplies {
    private var results: [Result<RedisValue, RedisError>]
    private var missing: Int
    private let continuation: UnsafeContinuation<[Result<RedisValue, RedisError>], Never>

    init(count: Int, continuation: UnsafeContinuation<[Result<RedisValue, RedisError>], Never>) {
        results = Array(repeating: .success(.null), count: count)
        missing = count
        self.continuation = continuation
    }

    /// Each index is set once: by its reply, or by the end of its connection.
    func set(_ result: Result<RedisValue, RedisError>, at index: Int) {
        results[index] = result
        missing -= 1
        if missing == 0 { continuation.resume(returning: results) }
    }
}

/// Commands in the order they were written, which is the order their replies come in.
struct PendingQueue {
    private var storage: [PendingCommand?] = []
    private var head = 0

    var count: Int { storage.count - head }
    var isEmpty: Bool { head == storage.count }

    mutating func append(_ command: PendingCommand) { storage.append(command) }

    mutating func popFirst() -> PendingCommand? {
        guard head < storage.count else { return nil }
        let first = storage[head]
        storage[head] = nil
        head += 1
        if head == storage.count {
            storage.removeAll(keepingCapacity: true)
            head = 0
        } else if head >= 1024, head * 2 > storage.count {
            storage.removeFirst(head)
            head = 0
        }
        return first
    }

    mutating func removeAll() -> [PendingCommand] {
        let all = storage[head...].compactMap { $0 }
        storage.removeAll()
        head = 0
        return all
    }

    var earliestDeadline: Int64? {
        storage[head...].lazy.compactMap { $0?.deadline }.min()
    }
}
