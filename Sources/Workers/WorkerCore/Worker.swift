package import EventLoop
package import Jobs
package import Service

/// The loop that every worker shares: fetch, handle, settle; a breaker when a dependency is away; suspects in small
/// groups, then alone.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone.
package final class Worker: @unchecked Sendable {
    package struct Configuration: Sendable {
        /// Most jobs handled at once.
        package var batch = 1024
        package var ladder = RetryLadder()
        package init() {}
    }

    /// True while a dependency is away and nothing is fetched.
    package private(set) var breakerOpen = false
    /// Jobs fetched and not settled.
    package private(set) var inHand = 0 {
        didSet { metrics.inHand.set(inHand) }
    }

    private let loop: EventLoop
    private let source: any JobSource
    private let handler: any JobHandler
    private let configuration: Configuration
    private let log: Log
    private let metrics: WorkerMetrics
    private var stopping = false
    /// The last batch fetched, until it is handled.
    private var handling: Task<Void, Never>?
    private var settling: Task<Void, Never>?
    /// The last fetch brought so much that more is likely to wait.
    private var hasBacklog = false

    /// Pause after a dependency failed, doubled up to the cap: workers must go on within five seconds of its return.
    private static let breakerMilliseconds: Int64 = 100
    private static let breakerCapMilliseconds: Int64 = 2000
    /// A job that was started alone so often without an end is poison.
    private static let mostStartsAlone = 3
    /// Jobs of one lost batch run in groups of so many: a full one of 1,024 costs 32 database transactions instead of
    /// as many as it has jobs, and a job that ends its worker takes no more than 31 others along (decision 005).
    private static let firstSuspects = 32

    package init(
        loop: EventLoop, source: any JobSource, handler: any JobHandler, configuration: Configuration = .init(),
        log: Log, metrics: WorkerMetrics
    ) {
        self.loop = loop
        self.source = source
        self.handler = handler
        self.configuration = configuration
        self.log = log
        self.metrics = metrics
    }

    /// Ends `run` after the batch in hand. What could not be settled by then stays pending; its owner releases it.
    package func stop() {
        loop.preconditionInLoop()
        stopping = true
    }

    /// Works until stopped. Runs on the loop.
    ///
    /// While more waits than a batch holds, the next batch is fetched and made ready while the one before it is at the
    /// database; otherwise it gathers meanwhile, and is fetched when that one is through. Settling a batch overlaps with
    /// the next; more than one behind would hide a Redis that can't keep up.
    package func run() async {
        while !stopping {
            if !hasBacklog || breakerOpen { await handling?.value }
            let jobs = await source.fetch(atMost: configuration.batch)
            guard !jobs.isEmpty else {
                hasBacklog = false
                continue
            }
            inHand += jobs.count
            hasBacklog = jobs.count >= configuration.batch / 2
            let new = jobs.filter { $0.deliveries <= 1 }
            let before = handling
            if !new.isEmpty {
                handling = loop.spawn {
                    let settlements = await self.work(new, after: before)
                    await before?.value
                    await self.settling?.value
                    self.settling = self.loop.spawn { await self.settle(settlements) }
                }
            }
            // Two batches are handled at a time, and suspects by themselves.
            await before?.value
            guard new.count < jobs.count else { continue }
            await handling?.value
            let lostOnce = jobs.filter { $0.deliveries == 2 }
            for start in stride(from: 0, to: lostOnce.count, by: Self.firstSuspects) where !stopping {
                await settle(await work(Array(lostOnce[start...].prefix(Self.firstSuspects))))
            }
            for job in jobs where job.deliveries > 2 && !stopping { await alone(job) }
        }
        await handling?.value
        await settling?.value
    }

    /// Handles jobs until the dependency is there or the worker stops.
    /// - Parameter before: the batch before this one. When this one fails for a dependency, that one tries the way.
    private func work(_ jobs: [FetchedJob], after before: Task<Void, Never>? = nil) async -> [Settlement] {
        var remaining = jobs[...]
        var settlements: [Settlement] = []
        var pause = Self.breakerMilliseconds
        while !remaining.isEmpty && !(stopping && breakerOpen) {
            // Half-open: one job tries the way, the others follow when it got through.
            let part = Array(breakerOpen ? remaining.prefix(1) : remaining)
            do {
                let outcomes = try await handler.handle(part)
                precondition(outcomes.count == part.count, "a handler answered for another number of jobs")
                closeBreaker()
                metrics.batchSizes.observe(Int64(part.count))
                for (job, outcome) in zip(part, outcomes) { settlements.append(settlement(job, outcome)) }
                remaining = remaining.dropFirst(part.count)
            } catch {
                openBreaker(error)
                await before?.value
                if stopping { break }
                await loop.sleep(milliseconds: pause + Int64.random(in: 0...pause / 5))
                pause = min(pause * 2, Self.breakerCapMilliseconds)
            }
        }
        inHand -= remaining.count
        return settlements
    }

    /// Runs a suspect by itself: if it brings the process down, it takes no good job with it, and its start is on
    /// record.
    private func alone(_ job: FetchedJob) async {
        guard let starts = await source.startAlone(job) else {
            // Redis is away; the job stays pending and is taken in hand again.
            inHand -= 1
            return
        }
        if starts > Self.mostStartsAlone {
            count(job, "poison")
            log.error("a job ended its worker again and again", ["kind": job.header.kind.rawValue])
            await settle([
                Settlement(
                    job, .dead(reason: "poison", text: "started alone \(starts - 1) times without an end"))
            ])
            return
        }
        let settlements = await work([job])
        guard !settlements.isEmpty else { return await source.forgetStart(job) }
        await settle(settlements)
    }

    private func settle(_ settlements: [Settlement]) async {
        guard !settlements.isEmpty else { return }
        for settlement in settlements {
            guard let answer = settlement.answer, !settlement.job.header.replyTo.isEmpty else { continue }
            let expires = settlement.job.header.expiresMilliseconds
            if expires > 0 && loop.time.wallMilliseconds > expires {
                count(settlement.job, "expired")
            } else {
                await source.answer(settlement.job, answer)
            }
        }
        await source.settle(settlements)
        inHand -= settlements.count
        let now = loop.time.wallMicroseconds
        for settlement in settlements { metrics.stageLatency.observe(now - settlement.job.header.stamp) }
    }

    private func settlement(_ job: FetchedJob, _ outcome: JobOutcome) -> Settlement {
        switch outcome {
        case .done:
            count(job, "done")
            return Settlement(job, .done)
        case .answered(let payload):
            count(job, "done")
            return Settlement(job, .done, answer: payload)
        case .forward(let lane, let payload):
            count(job, "forward")
            return Settlement(job, .forward(to: lane, payload: payload))
        case .permanent(let reason, let text):
            count(job, "dead")
            log.limited(.warn, "a job was buried", ["kind": job.header.kind.rawValue, "reason": reason])
            return Settlement(job, .dead(reason: reason, text: text))
        case .transient(let text):
            let attempts = job.header.attempts + 1
            guard let delay = configuration.ladder.delay(afterAttempts: attempts, unit: .random(in: 0..<1)) else {
                count(job, "dead")
                return Settlement(job, .dead(reason: "attempts_exhausted", text: text))
            }
            count(job, "retry")
            return Settlement(job, .retry(afterMilliseconds: delay, attempts: attempts))
        case .later(let milliseconds):
            count(job, "later")
            return Settlement(job, .retry(afterMilliseconds: milliseconds, attempts: job.header.attempts))
        case .unsupported:
            let age = loop.time.wallMilliseconds - job.header.enqueuedMilliseconds
            if age > RetryLadder.unsupportedLimitMilliseconds {
                count(job, "dead")
                return Settlement(
                    job, .dead(reason: "unsupported", text: "no worker knows this kind and version of job"))
            }
            count(job, "unsupported")
            return Settlement(
                job,
                .retry(
                    afterMilliseconds: RetryLadder.unsupportedDelayMilliseconds, attempts: job.header.attempts))
        }
    }

    private func count(_ job: FetchedJob, _ outcome: String) {
        metrics.count(job.lane, outcome)
    }

    private func openBreaker(_ down: DependencyDown) {
        if !breakerOpen { metrics.breakerOpened.add() }
        breakerOpen = true
        metrics.breakerOpen.set(1)
        log.limited(
            .warn, "a dependency is away; fetching stopped", ["dependency": down.dependency, "text": down.text])
    }

    private func closeBreaker() {
        guard breakerOpen else { return }
        breakerOpen = false
        metrics.breakerOpen.set(0)
        log.info("the dependency is back", [:])
    }
}
