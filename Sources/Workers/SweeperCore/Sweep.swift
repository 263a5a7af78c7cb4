package import AppleAds
package import Bytes
package import EventLoop
internal import JSON
package import Postgres
package import Service
internal import Store
internal import Wire

/// The sweep: claims tokens that are due, asks about them, and writes down what came of it, until it is stopped. Several
/// sweepers share the work through the leases in Postgres.
///
/// Nothing is lost with the process: what it held is due again at the end of its lease, and asking again changes nothing
/// at Apple's.
///
/// `@unchecked Sendable`: every property that changes is touched on the loop alone, which the entry points check.
package final class Sweep: @unchecked Sendable {
    package struct Configuration: Sendable {
        /// Asks at once.
        package var concurrency = 32
        package var ladder = AdServicesLadder()
        /// How long a claimed token is nobody else's: several times what an ask can take, and short enough that a
        /// crash doesn't matter.
        package var leaseMicroseconds: Int64 = 60_000_000
        /// Nobody asks with less of the lease left: the 10 s of an ask, and 2 s for writing it down and for clocks.
        package var leastLeaseMicroseconds: Int64 = 12_000_000
        /// How often to look for what is due when nothing is known to be. Not scaled.
        package var pollMicroseconds: Int64 = 1_000_000

        package init() {}
    }

    package struct Parts: Sendable {
        package let clock: any SweepClock
        package let endpoint: any AdServicesEndpoint
        /// Opens what the ingress has sealed.
        package let sealer: TextSealer
        /// Looks and claims. On the sweep's loop, as is `results`.
        package let claims: PostgresClient
        /// Another connection, so that results never wait behind a claim.
        package let results: PostgresClient
        package let target: (any AdServicesOutcomeTarget)?
        package let log: Log
        package let metrics: SweepMetrics

        package init(
            clock: any SweepClock, endpoint: any AdServicesEndpoint, sealer: TextSealer, claims: PostgresClient,
            results: PostgresClient, target: (any AdServicesOutcomeTarget)? = nil, log: Log, metrics: SweepMetrics
        ) {
            self.clock = clock
            self.endpoint = endpoint
            self.sealer = sealer
            self.claims = claims
            self.results = results
            self.target = target
            self.log = log
            self.metrics = metrics
        }
    }

    let loop: EventLoop
    let configuration: Configuration
    let parts: Parts

    /// Claimed and not asked about yet, the earliest due last: it is asked about next.
    private var waiting: [ClaimedToken] = []
    private var inFlight = 0
    private var breaker = SweepBreaker()
    private var standstills: StandstillWatch
    /// The last claim brought all that was wanted: there may be more.
    private var moreIsDue = false
    /// Where the next claim goes on: what was due before has been claimed.
    private var claimedUntil: Int64 = 0
    /// When a look last began at the beginning, monotonic nanoseconds.
    private var lastWholeLook: Int64 = 0
    private(set) var isStopping = false
    /// When the database was last asked what is due, monotonic nanoseconds; how the sweep stood then.
    package private(set) var lastLook: Int64
    private(set) var lastState: SweepState?
    private let parser = JSONParser()
    private lazy var results = SweepResults(self)

    private var alarm: UnsafeContinuation<Void, Never>?
    private var alarmIsDue = false

    /// Without `Retry-After`, a 429 stops the sweep for so long.
    private static let tooManySeconds: Int64 = 60
    /// And no answer stops it for longer: the next one may ask for more.
    private static let longestHoldSeconds: Int64 = 3_600
    /// A token that can't be decrypted is tried again so much later: somebody must set the right secret.
    private static let unreadableSeconds: Int64 = 900
    /// While more is due, claims go on where the last one ended. What becomes due before that place waits so long.
    private static let wholeLookNanoseconds: Int64 = 1_000_000_000
    /// A sweeper that has not seen the table for so long is not ready.
    private static let staleLookMilliseconds: Int64 = 15_000

    package init(loop: EventLoop, configuration: Configuration, parts: Parts) {
        self.loop = loop
        self.configuration = configuration
        self.parts = parts
        lastLook = loop.time.monotonicNanoseconds
        standstills = StandstillWatch(now: loop.time.monotonicNanoseconds)
    }

    // MARK: - The loop

    /// Works until `stop`. What is asked then is waited for and written down, what isn't is given back. Call on the loop.
    package func run() async {
        loop.preconditionInLoop()
        noteThatItRuns()
        let watching = loop.spawn { [self] in
            while !Task.isCancelled {
                await loop.sleep(milliseconds: StandstillWatch.tickMilliseconds)
                noteThatItRuns()
            }
        }
        while !isStopping {
            let look = await refill()
            startAsks()
            if !isStopping { await wait(until: look) }
        }
        giveBackWaiting()
        while !isIdle { await waitForAlarm() }
        watching.cancel()
    }

    private func noteThatItRuns() {
        guard let gap = standstills.runs(at: loop.time.monotonicNanoseconds) else { return }
        parts.log.warn("this process stood still; asks of that time don't count", ["ms": gap / 1_000_000])
    }

    /// Lets `run` end. Call on the loop.
    package func stop() {
        loop.preconditionInLoop()
        isStopping = true
        ring()
    }

    private var isIdle: Bool { inFlight == 0 && waiting.isEmpty && results.isIdle }
    /// So many are held at once, asked about or not: at the slowest, each ask taking its 10 s, the last of them still has
    /// enough of its lease left.
    private var claimSize: Int { 4 * configuration.concurrency }
    /// While more is due, the next claim is made as soon as there is room for so many: one that waited until few are
    /// left came when all of them had been asked about, since Postgres is busy with results as well.
    private var leastClaimed: Int { max(1, configuration.concurrency / 2) }
    private var isHeld: Bool { results.holdUntil > parts.clock.microseconds }

    /// Claims what is due and there is room for.
    /// - Returns: when to look again, if nothing happens before.
    private func refill() async -> Int64 {
        do throws(PostgresError) {
            let began = loop.time.monotonicNanoseconds
            if !moreIsDue || began - lastWholeLook >= Self.wholeLookNanoseconds {
                lastWholeLook = began
                claimedUntil = 0
            }
            let (since, now) = (claimedUntil, parts.clock.microseconds)
            let state = try await parts.claims.withConnection { connection throws(PostgresError) in
                try await AdServicesSweep.state(now: now, since: since, connection)
            }
            lastLook = loop.time.monotonicNanoseconds
            parts.clock.correct(databaseTime: state.databaseTime, took: (lastLook - began) / 1000)
            lastState = state
            return try await claim(state)
        } catch {
            parts.log.limited(.warn, "postgres is away; nothing is claimed", ["text": error.message])
            moreIsDue = false
            return parts.clock.microseconds + configuration.pollMicroseconds
        }
    }

    private func claim(_ state: SweepState) async throws(PostgresError) -> Int64 {
        let now = parts.clock.microseconds
        let poll = now + configuration.pollMicroseconds
        let heldUntil = max(state.heldUntil, results.unwrittenHold)
        let isPaused = state.isPaused(at: now)
        parts.metrics.paused.set(isPaused ? 1 : 0)
        parts.metrics.held.set(heldUntil > now ? 1 : 0)
        moreIsDue = false
        guard !isPaused else {
            giveBackWaiting()
            return min(poll, state.pausedUntil ?? poll)
        }
        guard heldUntil <= now else {
            breaker.held()
            giveBackWaiting()
            return min(poll, heldUntil)
        }
        let room = breaker.isProbing ? (inFlight == 0 && waiting.isEmpty ? 1 : 0) : claimSize - waiting.count
        guard room > 0 else { return poll }
        guard breaker.isProbing || room >= leastClaimed else {
            moreIsDue = true
            return poll
        }
        guard let nextDue = state.nextDueAt, nextDue <= now else {
            lookFromTheStart()
            return min(poll, state.nextDueAt ?? poll)
        }
        let lease = Secrets.random(16)
        let end = now + configuration.leaseMicroseconds
        let (isProbing, since) = (breaker.isProbing, claimedUntil)
        let claimed = try await parts.claims.withConnection { connection throws(PostgresError) in
            // A token that always fails says nothing of Apple: it must not keep the others waiting.
            if isProbing {
                let untroubled = try await AdServicesSweep.claim(
                    room, lease: lease, leaseEnd: end, now: now, since: since, untroubled: true, connection)
                guard untroubled.isEmpty else { return untroubled }
            }
            return try await AdServicesSweep.claim(
                room, lease: lease, leaseEnd: end, now: now, since: since, connection)
        }
        waiting = claimed.reversed() + waiting
        moreIsDue = claimed.count == room
        if !moreIsDue { lookFromTheStart() }
        if moreIsDue, !isProbing, let last = claimed.last { claimedUntil = last.dueAt }
        return poll
    }

    /// Nothing is left to claim; but something may have become due before the place where the look began.
    private func lookFromTheStart() {
        if claimedUntil > 0 { ring() }
    }

    private func startAsks() {
        if isStopping || isHeld { return giveBackWaiting() }
        while inFlight < configuration.concurrency, let token = waiting.popLast() { start(token) }
        if moreIsDue && waiting.count <= claimSize - leastClaimed && !breaker.isProbing { ring() }
    }

    private func start(_ token: ClaimedToken) {
        let now = parts.clock.microseconds
        guard now < configuration.ladder.end(receivedAt: token.receivedAt) else {
            return results.add(SweptToken(token, ask: nil, next: .ended(.expired, nil, at: now)))
        }
        guard now + configuration.leastLeaseMicroseconds <= token.leaseEnd else {
            return results.add(.givenBack(token))
        }
        let context = AdServicesToken.context(
            organization: token.key.organization, bundleID: token.key.bundleID, subject: token.key.subject)
        guard let text = parts.sealer.open(token.sealedToken, context: context) else {
            parts.metrics.addUnreadableToken()
            parts.log.limited(
                .error, "a token can't be decrypted: is RATCHET_SECRET the one of the ingress?",
                ["organization": token.key.organization, "bundle_id": token.key.bundleID])
            let due = now + configuration.ladder.scaled(seconds: Self.unreadableSeconds)
            let end = configuration.ladder.end(receivedAt: token.receivedAt)
            return results.add(SweptToken(token, ask: nil, next: .due(min(due, end))))
        }
        inFlight += 1
        let began = loop.time.monotonicNanoseconds
        parts.endpoint.ask(text) { [self] reply in
            loop.preconditionInLoop()
            parts.metrics.asked(reply, microseconds: (loop.time.monotonicNanoseconds - began) / 1000)
            // The tick may come later than what ended while the process stood still.
            noteThatItRuns()
            ended(token, text, askedAt: now, reply, stoodStill: standstills.stoodStill(since: began))
        }
    }

    private func ended(
        _ token: ClaimedToken, _ text: [UInt8], askedAt: Int64, _ reply: AdServicesReply, stoodStill: Bool
    ) {
        inFlight -= 1
        let verdict = AdServicesVerdict(reply, using: parser)
        tell(token, reply, verdict)
        var retryAfter: Int64?
        if case .answered(_, let seconds, _) = reply { retryAfter = seconds }
        let ask: SweptToken.Ask
        let next: SweptToken.Next
        switch verdict {
        case .final(let ending, var payload):
            payload?.leaveOut(token: text)
            ask = SweptToken.Ask(at: askedAt, status: reply.status, counts: true)
            next = .ended(ending, payload, at: parts.clock.microseconds)
        case .notYet, .trouble, .tooMany:
            let burnt = verdict == .notYet
            ask = SweptToken.Ask(at: askedAt, status: reply.status, counts: burnt)
            next = .due(
                configuration.ladder.next(
                    attempts: token.attempts + (burnt ? 1 : 0), burnt: burnt, askedAt: askedAt,
                    receivedAt: token.receivedAt, retryAfterSeconds: retryAfter, jitter: .random(in: 0...1)))
        }
        if verdict == .tooMany {
            hold(seconds: min(retryAfter ?? Self.tooManySeconds, Self.longestHoldSeconds), reason: "too_many")
        } else if AdServicesVerdict.isOutage(reply) {
            // What was asked before a hold and fails after it says nothing new, nor does a token that failed before while
            // others are answered, nor one that this process could not wait for.
            if !isHeld, !(stoodStill && reply.status == 0), breaker.isProbing || !token.isTroubled,
                let seconds = breaker.failed()
            {
                hold(seconds: seconds, reason: "unreachable")
            }
        } else if !isHeld {
            let wasProbing = breaker.isProbing
            breaker.answered()
            if wasProbing { ring() }
        }
        results.add(SweptToken(token, ask: ask, next: next))
        startAsks()
    }

    /// Tells operators what no counter can: what Apple doesn't document, and at debug level each ask.
    private func tell(_ token: ClaimedToken, _ reply: AdServicesReply, _ verdict: AdServicesVerdict) {
        if case .answered(let status, _, let body) = reply, verdict == .notYet, status != 404 {
            if status == 200 { parts.metrics.addUnreadableAnswer() }
            parts.log.limited(
                .warn, "an answer is none of Apple's: does something stand in between?",
                ["status": status, "bytes": body.count])
        }
        if case .none(let problem) = reply {
            parts.log.limited(.warn, "apple could not be asked", ["text": problem])
        }
        // The text itself is a secret; what it was sealed to tells which it is.
        parts.log.debug(
            "asked",
            [
                "token": String(SHA256Digest(of: token.sealedToken).hex.prefix(12)), "status": reply.status,
                "attempts": token.attempts,
            ])
    }

    private func hold(seconds: Int64, reason: StaticString) {
        let until = parts.clock.microseconds + configuration.ladder.scaled(seconds: seconds)
        breaker.held()
        guard until > results.holdUntil else { return }
        parts.log.warn("nobody asks for a while", ["reason": "\(reason)", "seconds": Int(seconds)])
        parts.metrics.held.set(1)
        // Before what is given back: others must not claim that.
        results.hold(until: until, reason: "\(reason)")
        giveBackWaiting()
    }

    private func giveBackWaiting() {
        for token in waiting.reversed() { results.add(.givenBack(token)) }
        waiting = []
    }

    // MARK: - Waiting

    /// Something may have changed: look again.
    func ring() {
        alarmIsDue = true
        alarm?.resume()
        alarm = nil
    }

    func writeResults() async { await results.writeAll() }

    /// What the results call when all are written.
    func resultsAreWritten() { if isIdle { ring() } }

    private func wait(until end: Int64) async {
        guard !alarmIsDue else {
            alarmIsDue = false
            return
        }
        let (clock, idle) = (parts.clock, isIdle)
        let sleeping = loop.spawn { [self] in
            await clock.sleep(until: end, idle: idle)
            if !Task.isCancelled { ring() }
        }
        await waitForAlarm()
        sleeping.cancel()
    }

    private func waitForAlarm() async {
        if !alarmIsDue { await withUnsafeContinuation { alarm = $0 } }
        alarmIsDue = false
    }
}

// MARK: - What others see

extension Sweep {
    /// For `/readyz`. Call on the loop.
    package func health() -> Health {
        loop.preconditionInLoop()
        let age = (loop.time.monotonicNanoseconds - lastLook) / 1_000_000
        guard age < Self.staleLookMilliseconds else { return .bad("the table was not looked at since \(age) ms") }
        guard let state = lastState else { return .good }
        let now = parts.clock.microseconds
        if state.isPaused(at: now) { return .level(0, "the sweep is paused by hand") }
        if state.heldUntil > now {
            return .level(0, "nobody asks for a while: \(state.holdReason ?? "held")")
        }
        return .good
    }

    /// Keeps the gauges of what waits up to date.
    package func measureUntilCancelled() async {
        loop.preconditionInLoop()
        while !Task.isCancelled {
            let now = parts.clock.microseconds
            let backlog = try? await parts.claims.withConnection { connection throws(PostgresError) in
                try await AdServicesSweep.backlog(now: now, connection)
            }
            if let backlog {
                parts.metrics.due.set(Double(backlog.due))
                parts.metrics.oldestDue.set(Double(max(0, now - (backlog.oldestDueAt ?? now))) / 1_000_000)
            }
            await loop.sleep(milliseconds: Self.measureMilliseconds)
        }
    }

    /// As often as scrapes usually come.
    private static let measureMilliseconds: Int64 = 15_000
}
