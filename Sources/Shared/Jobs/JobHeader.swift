/// The envelope of a job: field `h` of its entry, ten values in fixed order with `|` between them.
///
/// `kind|version|stamp|attempts|organization|enqueued ms|expires ms|traceparent|reply-to|correlation id`
///
/// The accept script writes stamp, attempts and enqueued time; everything else comes from the ingress. No value may
/// hold `|` or a control character, which `encoded` checks.
package struct JobHeader: Equatable, Sendable {
    package var kind: JobKind
    /// Version of the payload's form.
    package var version: Int
    /// Microseconds; orders all writes of a partition, and names the job within it. Below 2^53.
    package var stamp: Int64
    /// Runs that ended in a transient failure. Crashes, deploys and outages are not counted here.
    package var attempts: Int
    package var organization: String
    /// When the job was accepted, milliseconds since 1970 on Redis' clock.
    package var enqueuedMilliseconds: Int64
    /// After this nobody waits for the answer any more; 0 for a job without a waiter.
    package var expiresMilliseconds: Int64
    /// W3C trace context of the request that made the job; empty when it had none.
    package var traceparent: String
    /// The ingress process that waits for an answer; empty for none.
    package var replyTo: String
    /// Tells the waiter which call the answer is for; empty for none.
    package var correlationID: String

    package init(
        kind: JobKind, version: Int, stamp: Int64, attempts: Int, organization: String, enqueuedMilliseconds: Int64,
        expiresMilliseconds: Int64 = 0, traceparent: String = "", replyTo: String = "", correlationID: String = ""
    ) {
        self.kind = kind
        self.version = version
        self.stamp = stamp
        self.attempts = attempts
        self.organization = organization
        self.enqueuedMilliseconds = enqueuedMilliseconds
        self.expiresMilliseconds = expiresMilliseconds
        self.traceparent = traceparent
        self.replyTo = replyTo
        self.correlationID = correlationID
    }

    /// The header's text. Traps when a value holds a separator: values are validated where they enter.
    package var encoded: String {
        "\(JobHeader.prefix(kind: kind, version: version))|\(stamp)|\(attempts)|\(organization)"
            + "|\(enqueuedMilliseconds)|\(JobHeader.suffix(self))"
    }

    /// What stands before the stamp: `kind|version`.
    package static func prefix(kind: JobKind, version: Int) -> String {
        precondition(isPlain(kind.rawValue), "a job kind holds a separator")
        return "\(kind.rawValue)|\(version)"
    }

    private static func suffix(_ header: JobHeader) -> String {
        suffix(
            expiresMilliseconds: header.expiresMilliseconds, traceparent: header.traceparent,
            replyTo: header.replyTo, correlationID: header.correlationID)
    }

    /// What stands after the enqueued time: `expires|traceparent|reply-to|correlation id`.
    package static func suffix(
        expiresMilliseconds: Int64, traceparent: String, replyTo: String, correlationID: String
    ) -> String {
        // What most jobs have.
        if expiresMilliseconds == 0 && traceparent.isEmpty && replyTo.isEmpty && correlationID.isEmpty { return "0|||" }
        precondition(
            isPlain(traceparent) && isPlain(replyTo) && isPlain(correlationID), "a job header holds a separator")
        return "\(expiresMilliseconds)|\(traceparent)|\(replyTo)|\(correlationID)"
    }

    /// True for text that may stand in a header: printable ASCII without `|`.
    package static func isPlain(_ text: String) -> Bool {
        text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != 0x7c }
    }

    /// Reads a header's text; nil when it is not ten fields of the right form, all of them printable ASCII.
    package init?(encoded: [UInt8]) {
        let header = encoded.withUnsafeBufferPointer { Self.parse($0) }
        guard let header else { return nil }
        self = header
    }

    private static let fields = 10

    private static func parse(_ bytes: UnsafeBufferPointer<UInt8>) -> JobHeader? {
        withUnsafeTemporaryAllocation(of: Int.self, capacity: fields + 1) { starts in
            starts[0] = 0
            var found = 1
            for (index, byte) in bytes.enumerated() {
                // What is read here is written again by retries, and writing traps on anything else.
                guard byte > 0x20 && byte < 0x7f else { return nil }
                guard byte == 0x7c else { continue }
                guard found < fields else { return nil }
                starts[found] = index + 1
                found += 1
            }
            guard found == fields else { return nil }
            starts[fields] = bytes.count + 1
            func field(_ index: Int) -> UnsafeBufferPointer<UInt8> {
                UnsafeBufferPointer(rebasing: bytes[starts[index]..<(starts[index + 1] - 1)])
            }
            func text(_ index: Int) -> String { String(decoding: field(index), as: UTF8.self) }
            guard
                !field(0).isEmpty, let version = number(field(1)), let stamp = number(field(2)), stamp > 0,
                stamp < stampLimit, let attempts = number(field(3)), !field(4).isEmpty,
                let enqueued = number(field(5)), let expires = number(field(6))
            else { return nil }
            return JobHeader(
                kind: JobKind(rawValue: text(0)), version: Int(version), stamp: stamp, attempts: Int(attempts),
                organization: text(4), enqueuedMilliseconds: enqueued, expiresMilliseconds: expires,
                traceparent: text(7), replyTo: text(8), correlationID: text(9))
        }
    }

    /// Decimal digits that fit; nil for anything else.
    private static func number(_ digits: UnsafeBufferPointer<UInt8>) -> Int64? {
        guard !digits.isEmpty else { return nil }
        var value: Int64 = 0
        for byte in digits {
            guard byte >= 0x30 && byte <= 0x39 else { return nil }
            let (tens, tooLarge) = value.multipliedReportingOverflow(by: 10)
            let (sum, overflow) = tens.addingReportingOverflow(Int64(byte - 0x30))
            if tooLarge || overflow { return nil }
            value = sum
        }
        return value
    }

    /// Stamps pass through Lua's doubles, which are exact below 2^53.
    private static let stampLimit: Int64 = 1 << 53
}
