import Redis
import Synchronization
import TestSupport
import Testing

/// What the queue of a test lies on: a server or a cluster that all tests share.
final class SharedRedis: Sendable {
    enum Form: Sendable {
        case server
        case cluster
    }

    @TaskLocal static var current = SharedRedis(.server)

    private let form: Form
    private let used = Mutex(false)

    init(_ form: Form) { self.form = form }

    var isUsed: Bool { used.withLock { $0 } }

    /// Its address and a key prefix that nobody else has.
    func use() async throws -> (RedisAddress, String) {
        used.withLock { $0 = true }
        switch form {
        case .server:
            let server = try await TestRedis.shared()
            return (server.address, server.keyPrefix())
        case .cluster:
            let cluster = try await TestRedisCluster.shared()
            return (cluster.address, cluster.keyPrefix())
        }
    }
}

/// Runs a test on a server and, unless it brings its own, on a cluster of three primaries: what works there touches
/// no two slots at once.
struct OnEachRedis: SuiteTrait, TestTrait, TestScoping {
    let isRecursive = true

    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        let server = SharedRedis(.server)
        try await SharedRedis.$current.withValue(server) { try await function() }
        guard server.isUsed else { return }
        try await SharedRedis.$current.withValue(SharedRedis(.cluster)) { try await function() }
    }
}

extension Trait where Self == OnEachRedis {
    static var onEachRedis: Self { OnEachRedis() }
}
