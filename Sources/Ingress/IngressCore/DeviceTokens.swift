internal import Bytes
package import EventLoop
internal import Jobs
package import Redis
package import RedisQueue
package import Wire

/// Knows whose a device token is: from its own bounded memory, else from Redis, else by asking a writer. Tokens are
/// kept and looked for by their SHA-256 alone.
///
/// A revocation is told by message and takes effect at once; one whose message was lost, when the memory of it ends.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone, which each entry point checks.
package final class DeviceTokens: @unchecked Sendable {
    package enum Finding: Equatable, Sendable {
        case live(DeviceFacts)
        /// Nobody's: never minted, replaced, revoked, or its app is disconnected.
        case notLive
        /// Nobody could say; asking again later helps.
        case unavailable(String)
    }

    private struct Known {
        let facts: DeviceFacts?
        let endsNanoseconds: Int64
    }

    /// The longest that a revocation whose message was lost goes unnoticed.
    static let memoryNanoseconds: Int64 = 60_000_000_000
    /// A token that is nobody's now may be minted by another ingress in a moment, though nobody can guess it before.
    static let nobodyNanoseconds: Int64 = 10_000_000_000
    /// Some 200 bytes each.
    static let mostKnown = 100_000
    /// A phone waits for the answer.
    private static let askMilliseconds: Int64 = 3000

    /// Counts since the start, for metrics. Read on the loop.
    package private(set) var fromMemory: Int64 = 0
    package private(set) var fromRedis: Int64 = 0
    package private(set) var asked: Int64 = 0

    private let loop: EventLoop
    private let client: RedisClient
    private let keys: QueueKeys
    private let devices: KnownDevices
    private let asker: Asker
    private var known: [[UInt8]: Known] = [:]
    /// Looks under way: calls of one phone come together, and one look serves all.
    private var looking: [[UInt8]: Task<Finding, Never>] = [:]
    /// Tokens that were revoked while a look at them was under way: what it finds is older than that.
    private var overtaken: Set<[UInt8]> = []

    package init(loop: EventLoop, client: RedisClient, keys: QueueKeys, asker: Asker) {
        self.loop = loop
        self.client = client
        self.keys = keys
        self.asker = asker
        devices = KnownDevices(client: client, keys: keys)
    }

    /// Begins to hear of revocations, until the client is closed or the task cancelled.
    package func start() -> Task<Void, Never> {
        loop.preconditionInLoop()
        let messages = client.subscribe(keys.revocations)
        return loop.spawn { [weak self] in
            for await hash in messages { self?.forget(hash) }
        }
    }

    /// SHA-256 of a token's text, which is all that anybody keeps of it.
    package static func hash(of token: String) -> [UInt8] { SHA256Digest(of: Array(token.utf8)).bytes }

    /// A new token: `dt_` and 32 random bytes as base64url.
    package static func mint() -> String { "dt_" + Base64.encode(Secrets.random(32), .url) }

    /// What is in memory about a token, by its hash; nil when it has to be looked for.
    func remembered(_ hash: [UInt8]) -> Finding? {
        loop.preconditionInLoop()
        guard let known = known[hash], known.endsNanoseconds > loop.time.monotonicNanoseconds else { return nil }
        fromMemory += 1
        return known.facts.map { .live($0) } ?? .notLive
    }

    /// - Parameters:
    ///   - hash: of the token.
    ///   - mayAsk: whether a writer may be bothered with a token that Redis does not know either; false for an address
    ///     that brings one unknown token after the other. Called when the token is not in memory.
    package func find(_ hash: [UInt8], mayAsk: () -> Bool) async -> Finding {
        if let finding = remembered(hash) { return finding }
        if let under = looking[hash] { return await under.value }
        let allowed = mayAsk()
        let look = Task(executorPreference: loop) { await self.look(hash, mayAsk: allowed) }
        looking[hash] = look
        let finding = await look.value
        looking[hash] = nil
        overtaken.remove(hash)
        return finding
    }

    private func finding(_ hash: [UInt8], _ facts: DeviceFacts?) -> Finding {
        let facts = overtaken.remove(hash) == nil ? facts : nil
        remember(hash, facts)
        return facts.map { .live($0) } ?? .notLive
    }

    private func look(_ hash: [UInt8], mayAsk: Bool) async -> Finding {
        do {
            if let stands = try await devices.look(hash), let facts = DeviceFacts.decode(stands) {
                fromRedis += 1
                return finding(hash, facts)
            }
        } catch {
            return .unavailable("redis: \(error.message)")
        }
        guard mayAsk else { return .unavailable("too many unknown tokens from one address") }
        asked += 1
        let question = NewJob(
            kind: .device, lane: .writeLive, organization: DeviceQuestion.organization, subject: Hex.encode(hash),
            payload: DeviceQuestion(tokenHash: hash).encodePayload())
        switch await asker.ask(question, timeoutMilliseconds: Self.askMilliseconds) {
        case .answered(let payload):
            guard let facts = DeviceFacts.decode(payload) else { return .unavailable("an answer of another form") }
            return finding(hash, facts)
        case .limited: return .unavailable("the queue refuses for now")
        case .unavailable(let why): return .unavailable(why)
        }
    }

    /// Uses a challenge up.
    /// - Returns: false when another call used it before.
    func useChallenge(_ challenge: String, callDigest: [UInt8], milliseconds: Int64) async throws(RedisError) -> Bool {
        try await devices.useChallenge(
            Self.hash(of: challenge), callDigest: callDigest, milliseconds: milliseconds)
    }

    /// What this loop just learned or minted.
    package func remember(_ hash: [UInt8], _ facts: DeviceFacts?) {
        loop.preconditionInLoop()
        if known.count >= Self.mostKnown {
            let now = loop.time.monotonicNanoseconds
            known = known.filter { $0.value.endsNanoseconds > now }
            // Redis knows them all; starting anew costs it a look for each.
            if known.count > Self.mostKnown / 2 { known.removeAll(keepingCapacity: true) }
        }
        known[hash] = Known(
            facts: facts,
            endsNanoseconds: loop.time.monotonicNanoseconds
                + (facts == nil ? Self.nobodyNanoseconds : Self.memoryNanoseconds))
    }

    private func forget(_ hash: [UInt8]) {
        guard hash.count == 32 else { return }
        if looking[hash] != nil { overtaken.insert(hash) }
        remember(hash, nil)
    }

    /// As if it had just been started; for tests.
    func forgetAll() { known.removeAll() }

    /// Tokens in memory now.
    package var knownCount: Int { known.count }
}
