internal import CHiredis
internal import EventLoop
internal import Glibc

/// Turns a host into socket addresses. Literal addresses are answered at once; names on a thread of their own, because
/// getaddrinfo may block for seconds and the loop serves others meanwhile.
enum AddressResolver {
    typealias Answer = Result<[chiredis_endpoint], RedisError>

    private static let maxEndpoints = 8

    /// Calls back on the loop, possibly before it returns.
    static func resolve(host: String, port: UInt16, on loop: EventLoop, then body: @escaping @Sendable (Answer) -> Void)
    {
        loop.preconditionInLoop()
        if case .success(let endpoints) = lookup(host: host, port: port, numeric: true) {
            body(.success(endpoints))
            return
        }
        let thread = LookupThread {
            let answer = lookup(host: host, port: port, numeric: false)
            loop.execute { body(answer) }
        }
        if !thread.start() {
            body(.failure(RedisError(code: .unavailable, message: "no thread left to resolve \(host)")))
        }
    }

    private final class LookupThread: Sendable {
        private let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) { self.body = body }

        /// False when the system has no thread left; the body has not run then.
        func start() -> Bool {
            var thread = pthread_t()
            // The thread owns one reference from here on and releases it when it has run.
            let context = Unmanaged.passRetained(self)
            let result = pthread_create(
                &thread, nil,
                { raw in
                    // Never null: it is the context given below.
                    Unmanaged<LookupThread>.fromOpaque(raw!).takeRetainedValue().body()
                    return nil
                }, context.toOpaque())
            guard result == 0 else {
                context.release()
                return false
            }
            pthread_detach(thread)
            return true
        }
    }

    private static func lookup(host: String, port: UInt16, numeric: Bool) -> Answer {
        var endpoints = Array(repeating: chiredis_endpoint(), count: maxEndpoints)
        let count = chiredis_resolve(host, port, numeric ? 1 : 0, &endpoints, Int32(maxEndpoints))
        guard count > 0 else {
            let problem = String(cString: chiredis_resolve_problem(count))
            return .failure(RedisError(code: .unavailable, message: "can't resolve \(host): \(problem)"))
        }
        return .success(Array(endpoints.prefix(Int(count))))
    }
}
