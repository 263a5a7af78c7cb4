internal import AppleAds
internal import EventLoop
internal import HTTPClient
internal import Postgres
internal import Service
internal import Store
internal import SweeperCore
internal import Wire

/// ratchet-sweeper: exchanges AdServices tokens with Apple for the campaign that brought the install.
@main
struct SweeperMain {
    static func main() async {
        await ServiceMain.run(.sweeper) { context in
            let settings = context.settings
            let loop = EventLoop(name: "sweeper", time: context.time)
            let configuration = PostgresConfiguration(
                conninfo: settings.postgresConnection, schema: settings.postgresSchema,
                applicationName: "ratchet-sweeper",
                queryDeadlineMilliseconds: Int64(settings.postgresTimeoutMilliseconds))
            let claims = PostgresClient(configuration, on: loop)
            let results = PostgresClient(configuration, on: loop)
            let health = PostgresClient(configuration, on: loop)
            context.operations.addReadiness("postgres") {
                await Migrator.problem(health).map { .bad($0) } ?? .good
            }
            context.operations.addLiveness(of: loop, "loop")
            var calls = HTTPCaller.Configuration()
            calls.mostConnections = settings.adServicesConcurrency
            calls.proxyFromEnvironment = true
            calls.userAgent = "ratchet/\(Version.text)"
            let caller = HTTPCaller(calls)
            let lifecycle = context.lifecycle
            context.operations.addLiveness("calls") {
                caller.isOpen || lifecycle.isStopping ? .good : .bad("libcurl is broken beyond use")
            }
            let sweep = Sweep(
                loop: loop, configuration: sweepConfiguration(settings),
                parts: Sweep.Parts(
                    clock: DatabaseClock(loop: loop),
                    endpoint: AppleEndpoint(caller: caller, url: settings.adServicesURL),
                    // Outside development there is always one.
                    sealer: AdServicesToken.sealer(secret: settings.secret ?? []), claims: claims, results: results,
                    log: context.log, metrics: SweepMetrics(context.metrics)))
            context.operations.addReadiness("sweep") {
                await (try? loop.run { sweep.health() }) ?? .bad("the event loop does not answer")
            }
            try await loop.run {
                let measuring = loop.spawn { await sweep.measureUntilCancelled() }
                let working = loop.spawn { await sweep.run() }
                await context.stopping()
                sweep.stop()
                await working.value
                measuring.cancel()
                caller.close()
                for client in [claims, results, health] { client.close() }
            }
        }
    }

    private static func sweepConfiguration(_ settings: Settings) -> Sweep.Configuration {
        var configuration = Sweep.Configuration()
        configuration.concurrency = settings.adServicesConcurrency
        configuration.ladder = AdServicesLadder(timeScale: settings.adServicesTimeScale)
        // Where a day lasts minutes, a second is long; but no shorter than what a look costs.
        let scale = Int64(settings.adServicesTimeScale)
        configuration.pollMicroseconds = max(20_000, configuration.pollMicroseconds / scale)
        // An ask takes as long as ever, so a lease can't be much shorter.
        configuration.leaseMicroseconds = max(20_000_000, configuration.leaseMicroseconds / scale)
        return configuration
    }
}
