import Bytes
import EventLoop
import Foundation
import Postgres
import Synchronization

/// From the request to the committed row, measured from outside: identify calls at a steady rate over kept connections,
/// and a second session that looks for every one of them in Postgres, a millisecond after each look.
///
/// A call's clock starts when it was due, so that a stalled server can't hide by keeping the caller from asking; it
/// stops when another session has seen the row. Both ends are upper bounds.
///
/// `--port N` of the ingress; `--postgres CONNINFO --schema NAME`; `--organization NAME --bundle NAME`; `--rate N`
/// calls/s; `--seconds N`; `--connections N`; `--users N`. A user comes again after all others have.
enum Latency: Subcommand {
    static let name = "latency"

    static func run(_ options: Options) async throws -> [String: Double] {
        let rate = try options.number("rate", default: 2_000)
        let sender = try Sender(
            port: try options.number("port", default: 8_080),
            connections: try options.number("connections", default: 64), rate: rate,
            count: rate * (try options.number("seconds", default: 10)),
            users: try options.number("users", default: 10_000), organization: try options.text("organization"),
            bundle: try options.text("bundle"))
        let configuration = PostgresConfiguration(
            conninfo: try options.text("postgres"), schema: try options.text("schema"))
        let loop = EventLoop(name: "watcher")
        defer { loop.stop() }
        let connected = try await loop.run { try await PostgresConnection.connect(configuration, on: loop) }
        Thread.detachNewThread { sender.send() }
        let seen = try await loop.run { try await watch(sender, connected, loop) }
        let calls = sender.results()
        guard calls.refused == 0 else {
            throw Options.Problem(description: "\(calls.refused) calls were not answered 200")
        }
        var figures = ["calls": Double(seen.count)]
        // The first second warms connections, caches and statements up.
        for (name, values) in [("committed", seen), ("answered", calls.answered), ("sent", calls.sent)] {
            let sorted = values.dropFirst(rate).sorted()
            figures[name + "P50"] = Double(sorted[sorted.count / 2])
            figures[name + "P99"] = Double(sorted[sorted.count * 99 / 100])
            figures[name + "Max"] = Double(sorted[sorted.count - 1])
        }
        return figures
    }

    /// - Returns: nanoseconds from each call's due time to the look that saw its row.
    private static func watch(
        _ sender: Sender, _ connection: PostgresConnection, _ loop: EventLoop
    ) async throws -> [Int64] {
        var seen = [Int64](repeating: -1, count: sender.count)
        var open: [Int] = []
        var left = sender.count
        let end = loop.time.monotonicNanoseconds + sender.nanoseconds(of: sender.count) + 30_000_000_000
        while left > 0 {
            open += sender.takeSent()
            if !open.isEmpty {
                for number in try await visible(open, sender, connection) {
                    seen[number] = loop.time.monotonicNanoseconds - sender.due(number)
                    left -= 1
                }
                open.removeAll { seen[$0] >= 0 }
            }
            guard loop.time.monotonicNanoseconds < end else {
                throw Options.Problem(description: "\(left) calls never reached Postgres")
            }
            await loop.sleep(milliseconds: 1)
        }
        connection.close()
        return seen
    }

    private static func visible(
        _ open: [Int], _ sender: Sender, _ connection: PostgresConnection
    ) async throws -> [Int] {
        var ids = PostgresArray(of: .uuid, capacity: open.count)
        for number in open { ids.append(uuid: sender.customer(number).bytes) }
        // One look into the index for each, whatever the planner thinks of their number.
        let result = try await connection.query(
            """
            SELECT o.number FROM unnest($1::uuid[], $2::bigint[]) AS o(id, number)
            WHERE (SELECT (c.attributes -> 'n' ->> 1)::bigint FROM customers AS c WHERE c.id = o.id) >= o.number
            """, [ids.parameter, .int64s(open.map { Int64($0) })])
        return try result.rows.map { Int(try $0.int64("number")) }
    }
}

/// Sends on a thread of its own, since a paced sender must never wait behind its watcher.
private final class Sender: Sendable {
    let count: Int
    private let rate: Int
    private let users: Int
    private let organization: String
    private let bundle: String
    private let sockets: [Int32]
    private let began: Int64

    private struct State {
        var sent: [Int] = []
        var sentAfter: [Int64] = []
        var answered: [Int64] = []
        var refused = 0
    }
    private let state = Mutex(State())

    init(
        port: Int, connections: Int, rate: Int, count: Int, users: Int, organization: String, bundle: String
    ) throws {
        self.rate = rate
        self.count = count
        self.users = users
        self.organization = organization
        self.bundle = bundle
        sockets = try (0..<connections).map { _ in try Self.connect(port) }
        // What is prepared until then is no call's delay.
        began = SystemTime().monotonicNanoseconds + 200_000_000
    }

    func nanoseconds(of calls: Int) -> Int64 { Int64(calls) * 1_000_000_000 / Int64(rate) }
    func due(_ number: Int) -> Int64 { began + nanoseconds(of: number) }

    private func user(_ number: Int) -> String { SampleJobs.appUserID(number * 7_919 % users) }

    func customer(_ number: Int) -> UUIDv8 { .customer(organization: organization, appUserID: user(number)) }

    /// Calls that were sent since the last look.
    func takeSent() -> [Int] {
        state.withLock { state in
            defer { state.sent = [] }
            return state.sent
        }
    }

    /// Nanoseconds from each call's due time until it was sent, and until it was answered.
    func results() -> (sent: [Int64], answered: [Int64], refused: Int) {
        state.withLock { ($0.sentAfter, $0.answered, $0.refused) }
    }

    private func request(_ number: Int) -> [UInt8] {
        let body =
            #"{"appUserId":"\#(user(number))","bundleId":"\#(bundle)","platform":"ios","osVersion":"17.4.1","#
            + #""deviceModel":"iPhone15,3","locale":"en_US","attributes":{"email":"user\#(number).longer.name@example.com","#
            + #""n":\#(number),"plan":"premium_yearly_\#(number % 7)","utm_source":"#
            + #""spring_campaign_newsletter_2026_variant_b_second_wave"}}"#
        return Array(
            ("POST /api/sdk/v1/identify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                + "X-RevenueHog-Unattested: pending\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)").utf8)
    }

    func send() {
        let time = SystemTime()
        var idle = Array(sockets.indices)
        var busy: [Int: Int] = [:]
        var received = [[UInt8]](repeating: [], count: sockets.count)
        var next = 0
        while next < count || !busy.isEmpty {
            var now = time.monotonicNanoseconds
            while next < count, due(next) <= now, let free = idle.popLast() {
                let bytes = request(next)
                guard Glibc.send(sockets[free], bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count else {
                    return state.withLock { $0.refused += count - next }
                }
                busy[free] = next
                let (number, after) = (next, time.monotonicNanoseconds - due(next))
                state.withLock { state in
                    state.sent.append(number)
                    state.sentAfter.append(after)
                }
                next += 1
                now = time.monotonicNanoseconds
            }
            let wait = next < count && !idle.isEmpty ? max(0, due(next) - now) : 1_000_000_000
            for index in readable(Array(busy.keys), nanoseconds: wait) {
                guard let status = receive(sockets[index], &received[index]) else { continue }
                let after = busy.removeValue(forKey: index).map { time.monotonicNanoseconds - due($0) } ?? 0
                idle.append(index)
                state.withLock { state in
                    state.answered.append(after)
                    if status != 200 { state.refused += 1 }
                }
            }
        }
        for socket in sockets { close(socket) }
    }

    private func readable(_ indices: [Int], nanoseconds: Int64) -> [Int] {
        var polled = indices.map { pollfd(fd: sockets[$0], events: Int16(POLLIN), revents: 0) }
        // poll counts in milliseconds; the next call is due sooner.
        if nanoseconds < 1_000_000 { usleep(UInt32(nanoseconds / 1_000)) }
        guard poll(&polled, nfds_t(polled.count), Int32(nanoseconds / 1_000_000)) > 0 else { return [] }
        return zip(indices, polled).filter { $0.1.revents != 0 }.map(\.0)
    }

    /// - Returns: the status of a whole answer (its body is one object), nil while more is to come; 0 at the end.
    private func receive(_ socket: Int32, _ received: inout [UInt8]) -> Int? {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let size = recv(socket, &buffer, buffer.count, 0)
        guard size > 0 else { return 0 }
        received += buffer[..<size]
        guard received.last == UInt8(ascii: "}") else { return nil }
        let status = Int(String(decoding: received.dropFirst(9).prefix(3), as: UTF8.self)) ?? 0
        received = []
        return status
    }

    private static func connect(_ port: Int) throws -> Int32 {
        let made = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = UInt16(port).bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(made, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard result == 0 else { throw Options.Problem(description: "nobody listens on port \(port)") }
        var on: Int32 = 1
        setsockopt(made, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
        return made
    }
}
