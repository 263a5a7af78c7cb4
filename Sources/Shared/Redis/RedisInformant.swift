internal import EventLoop

/// Asks one of several servers where things are: a sentinel for its primary, a node for its cluster. Those that are away
/// or know nothing are passed over; the one that answered is asked first the next time.
///
/// Confined to its loop; each question is asked from there and answered there.
///
/// `@unchecked Sendable`: only so that callbacks of the loop may hold a weak reference.
final class RedisInformant<Answer>: @unchecked Sendable {
    private let loop: EventLoop
    private let login: RedisAddress
    private let configuration: RedisClientConfiguration
    private let questions: [[RedisArgument]]
    private let isLoginOptional: Bool
    private let parse: ([RedisValue], RedisHost) throws(RedisError) -> Answer

    /// Who is asked, the likeliest first.
    private(set) var hosts: [RedisHost]
    private var link: RedisLink?
    private var waiting: [(Result<Answer, RedisError>) -> Void] = []
    private var left = 0
    private var replies: [RedisValue] = []
    private var isClosed = false

    /// A server that needs longer for a question that costs nothing is as good as away.
    private static var patienceMilliseconds: Int64 { 1000 }

    /// - Parameters:
    ///   - login: its user and password are used; its endpoint is not.
    ///   - isLoginOptional: sentinels mostly have no password, though the servers they watch do.
    ///   - questions: asked together.
    ///   - parse: gets a reply for each, errors among them; throws for what is of no use, and the next server is asked.
    init(
        loop: EventLoop, hosts: [RedisHost], login: RedisAddress, isLoginOptional: Bool = false,
        configuration: RedisClientConfiguration, questions: [[RedisArgument]],
        parse: @escaping ([RedisValue], RedisHost) throws(RedisError) -> Answer
    ) {
        self.loop = loop
        self.hosts = hosts
        self.login = login
        self.isLoginOptional = isLoginOptional
        self.questions = questions
        self.parse = parse
        var configuration = configuration
        configuration.connectTimeoutMilliseconds = min(
            configuration.connectTimeoutMilliseconds, Self.patienceMilliseconds)
        self.configuration = configuration
    }

    /// Calls back once, later or at once, with the first useful answer or the last failure. Questions that meet share
    /// one answer.
    func ask(then body: @escaping (Result<Answer, RedisError>) -> Void) {
        loop.preconditionInLoop()
        guard !isClosed else { return }
        waiting.append(body)
        guard waiting.count == 1 else { return }
        left = hosts.count
        askFirst()
    }

    /// The last answer did not hold: another server has the next word.
    func doubt() {
        drop()
        if hosts.count > 1 { hosts.append(hosts.removeFirst()) }
    }

    /// Takes other servers for later questions. The order of those that stay is kept.
    func replace(hosts new: [RedisHost]) {
        let kept = hosts.filter(new.contains)
        hosts = kept + new.filter { !kept.contains($0) }
    }

    /// Whoever waits hears nothing more.
    func close() {
        isClosed = true
        waiting = []
        drop()
    }

    private func drop() {
        link?.onStateChange = nil
        link?.close()
        link = nil
    }

    private func askFirst() {
        guard let host = hosts.first else { return finish(.failure(Self.nobody)) }
        if let link, link.connection != nil { return send(on: link, host) }
        drop()
        var address = login
        address.endpoint = .tcp(host: host.name, port: host.port)
        address.database = 0
        let link = RedisLink(
            loop: loop, address: address, configuration: configuration, isLoginOptional: isLoginOptional)
        self.link = link
        link.onStateChange = { [weak self, weak link] state in
            guard let self, let link, self.link === link else { return }
            switch state {
            case .connected: if !waiting.isEmpty { send(on: link, host) }
            case .disconnected(let error): failed(error)
            case .connecting, .closed: break
            }
        }
        link.start()
    }

    private func send(on link: RedisLink, _ host: RedisHost) {
        replies = []
        for question in questions {
            let completion = PendingCommand.Completion.handler { [weak self, weak link] result in
                guard let self, let link, self.link === link else { return }
                received(result, host)
            }
            link.connection?.send(question, timeoutMilliseconds: Self.patienceMilliseconds, completion: completion)
        }
    }

    private func received(_ result: Result<RedisValue, RedisError>, _ host: RedisHost) {
        do throws(RedisError) {
            do throws(RedisError) {
                replies.append(try result.get())
            } catch {
                guard case .server = error.code else { throw error }
                replies.append(.error(RedisServerError(message: error.message)))
            }
            guard replies.count == questions.count else { return }
            finish(.success(try parse(replies, host)))
        } catch {
            failed(error)
        }
    }

    private func failed(_ error: RedisError) {
        doubt()
        guard !waiting.isEmpty else { return }
        left -= 1
        if left > 0 { askFirst() } else { finish(.failure(error)) }
    }

    private func finish(_ result: Result<Answer, RedisError>) {
        let told = waiting
        waiting = []
        for body in told { body(result) }
    }

    private static var nobody: RedisError { RedisError(code: .unavailable, message: "nobody to ask") }
}
