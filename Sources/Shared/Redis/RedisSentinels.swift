internal import EventLoop

/// Asks all sentinels together who their primary is, and believes the newest election. Right after a failover only one
/// of them knows: the others go on naming the old primary for a second or two, and so does that one itself, should it
/// wake up just then.
///
/// Confined to its loop.
///
/// `@unchecked Sendable`: only so that callbacks of the loop may hold a weak reference.
final class RedisSentinels: @unchecked Sendable {
    private struct Word {
        let primary: RedisHost
        /// Number of the election that made it the primary.
        let epoch: Int64
    }

    private let loop: EventLoop
    private let panel: [RedisInformant<Word>]
    private var words: [Result<Word, RedisError>] = []
    private var waiting: [(Result<RedisHost, RedisError>) -> Void] = []
    private var timer: EventLoop.TimerToken?
    private var newestEpoch: Int64 = 0
    /// Tells answers to an earlier question from those to this one.
    private var round: UInt64 = 0

    /// How long the last ones are waited for when most have answered.
    private static let stragglerMilliseconds: Int64 = 200

    /// - Parameter login: offered to the sentinels, which may have none.
    init(
        loop: EventLoop, name: String, sentinels: [RedisHost], login: RedisAddress,
        configuration: RedisClientConfiguration
    ) {
        self.loop = loop
        panel = sentinels.map { sentinel in
            RedisInformant(
                loop: loop, hosts: [sentinel], login: login, isLoginOptional: true, configuration: configuration,
                questions: [
                    ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", .text(name)], ["SENTINEL", "MASTER", .text(name)],
                ]
            ) { replies, sentinel throws(RedisError) in
                let address = replies[0].elements ?? []
                let facts = replies[1].elements ?? []
                guard address.count == 2, let host = address[0].text, !host.isEmpty,
                    let port = address[1].int64.flatMap({ UInt16(exactly: $0) }), port > 0
                else {
                    throw RedisError(
                        code: .unavailable, message: "the sentinel \(sentinel) knows no primary named \(name)")
                }
                var epoch: Int64 = 0
                for index in stride(from: 0, to: facts.count - 1, by: 2) where facts[index].text == "config-epoch" {
                    epoch = facts[index + 1].int64 ?? 0
                }
                return Word(primary: RedisHost(name: host, port: port), epoch: epoch)
            }
        }
    }

    /// Calls back once, later or at once. Questions that meet share one answer.
    func ask(then body: @escaping (Result<RedisHost, RedisError>) -> Void) {
        waiting.append(body)
        guard waiting.count == 1 else { return }
        words = []
        round &+= 1
        let asked = round
        for informant in panel {
            informant.ask { [weak self] word in
                guard let self, round == asked, !waiting.isEmpty else { return }
                heard(word)
            }
        }
    }

    /// Whoever waits hears nothing more.
    func close() {
        waiting = []
        if let timer { loop.cancel(timer) }
        timer = nil
        for informant in panel { informant.close() }
    }

    private func heard(_ word: Result<Word, RedisError>) {
        words.append(word)
        if words.count == panel.count { return decide() }
        guard words.count * 2 > panel.count, timer == nil else { return }
        timer = loop.schedule(afterMilliseconds: Self.stragglerMilliseconds) { [weak self] in
            self?.timer = nil
            self?.decide()
        }
    }

    private func decide() {
        if let timer { loop.cancel(timer) }
        timer = nil
        let known = words.compactMap { try? $0.get() }
        let newest = known.max { $0.epoch < $1.epoch }
        // All of them know of no such election: they were set up anew.
        if known.count == panel.count { newestEpoch = 0 }
        let answer: Result<RedisHost, RedisError>
        if let newest, newest.epoch >= newestEpoch {
            newestEpoch = newest.epoch
            answer = .success(newest.primary)
        } else if newest != nil {
            answer = .failure(RedisError(code: .unavailable, message: "the sentinels lag behind the last election"))
        } else {
            var error = RedisError(code: .unavailable, message: "no sentinel answers")
            for case .failure(let problem) in words { error = problem }
            answer = .failure(error)
        }
        let told = waiting
        waiting = []
        for body in told { body(answer) }
    }
}
