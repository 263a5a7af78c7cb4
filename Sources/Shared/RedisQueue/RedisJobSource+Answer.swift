internal import EventLoop
package import Jobs
internal import Redis

extension RedisJobSource {
    package func answer(_ job: FetchedJob, _ payload: [UInt8]) async {
        loop.preconditionInLoop()
        var message = Array(job.header.correlationID.utf8)
        message.append(Asker.separator)
        message.append(contentsOf: payload)
        // The timeout is short: the call's deadline is a matter of seconds, and the settle comes after.
        _ = try? await client.command(
            ["PUBLISH", .text(keys.reply(job.header.replyTo)), .bytes(message)], timeoutMilliseconds: 1000)
    }
}
