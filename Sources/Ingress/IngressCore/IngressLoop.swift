package import EventLoop
package import HTTP
internal import Jobs
package import RedisQueue

/// One loop of an ingress process with all it owns: a listening socket, a way into the queue, a copy of the app
/// directory. Loops share nothing but the address guard.
///
/// `@unchecked Sendable`: `tasks` is touched on the loop's thread alone, which both methods check; every other stored
/// property is set in `init` and is itself Sendable or confined to the loop.
package final class IngressLoop: @unchecked Sendable {
    package let loop: EventLoop
    package let handler: SDKHandler
    package let sink: RedisJobSink
    package let directory: DirectoryWatcher
    package let drops: CountForwarder
    package let enrolments: CountForwarder
    package let devices: DeviceTokens
    package let asker: Asker
    package let server: HTTPServer
    private var tasks: [Task<Void, Never>] = []

    package init(
        loop: EventLoop, sink: RedisJobSink, directory: DirectoryWatcher, drops: CountForwarder,
        enrolments: CountForwarder, devices: DeviceTokens, asker: Asker, handler: SDKHandler,
        http: HTTPServerConfiguration
    ) {
        self.loop = loop
        self.sink = sink
        self.directory = directory
        self.drops = drops
        self.enrolments = enrolments
        self.devices = devices
        self.asker = asker
        self.handler = handler
        server = HTTPServer(loop: loop, configuration: http, answering: handler.handle)
    }

    /// Begins to listen, once the directory was looked at: a process that just started must not answer 503 for want
    /// of it.
    /// - Returns: the port.
    package func start(host: String, port: Int) async throws(HTTPServerError) -> Int {
        loop.preconditionInLoop()
        await directory.look()
        let bound = try server.listen(host: host, port: port, reusePort: true)
        let (directory, drops, enrolments) = (directory, drops, enrolments)
        tasks = [
            loop.spawn { await directory.run() }, loop.spawn { await drops.run() },
            loop.spawn { await enrolments.run() }, asker.start(), devices.start(),
        ]
        return bound
    }

    /// Finishes what it has accepted, refuses new connections, and hands over its last counts.
    package func stop(graceMilliseconds: Int64) async {
        loop.preconditionInLoop()
        await server.shutdown(graceMilliseconds: graceMilliseconds)
        let ending = tasks
        tasks = []
        for task in ending { task.cancel() }
        for task in ending { await task.value }
    }
}
