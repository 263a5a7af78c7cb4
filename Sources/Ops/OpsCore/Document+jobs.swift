internal import Bytes
internal import Jobs
internal import RedisQueue
package import Store

extension Document {
    /// A letter as lists show it.
    package init(_ letter: DeadLetterRecord) {
        self = .members([
            "id": .int(letter.id), "diedAt": .time(microseconds: letter.diedAt), "lane": .string(letter.lane),
            "kind": .text(letter.kind.isEmpty ? nil : letter.kind),
            "organization": .text(letter.organization.isEmpty ? nil : letter.organization),
            "reason": .string(letter.reason), "error": .string(letter.error),
            "payloadBytes": .int(letter.payloadBytes),
            "job": .text(letter.stamp > 0 ? "\(letter.partition)-\(letter.stamp)" : nil),
            "entry": .string(letter.entry), "state": .string(letter.state.rawValue),
            "changedAt": .time(microseconds: letter.changedAt),
        ])
    }

    /// A letter with all it holds. The payload is its text, exactly, or Base64 when it is no text.
    package init(whole letter: DeadLetterRecord) {
        let payload = String(validating: letter.payload, as: UTF8.self)
        self = Document(letter).adding([
            "header": .string(String(decoding: letter.header, as: UTF8.self)),
            payload == nil ? "payloadBase64" : "payload": .string(payload ?? Base64.encode(letter.payload, .standard)),
        ])
    }

    package init(_ result: Administration.BulkResult) {
        self = .members([
            "matched": .int(result.total), "done": .int(Int64(result.done)), "before": .int(Int64(result.before)),
            "refused": .list(result.refused.map { .int($0) }),
        ])
    }

    package init(_ job: Administration.JobFinding) {
        let place = job.place
        self = .members([
            "job": .string("\(job.partition)-\(job.stamp)"), "state": .string(job.state.rawValue),
            "lane": .text(place?.lane.name ?? job.letters.first?.lane),
            "kind": .text(place?.header?.kind.rawValue ?? job.letters.first?.kind),
            "organization": .text(place?.header?.organization ?? job.letters.first?.organization),
            "attempts": place?.header.map { .int(Int64($0.attempts)) } ?? .null,
            "acceptedAt": .time(microseconds: job.stamp),
            "dueAt": .time(milliseconds: place?.dueMilliseconds), "worker": .text(place?.consumer),
            "heldMs": place?.heldMilliseconds.map { .int($0) } ?? .null,
            "deliveries": place?.deliveries.map { .int($0) } ?? .null,
            "searchedEntries": job.searched.map { .int(Int64($0)) } ?? .null,
            "letters": .list(job.letters.map { Document($0) }),
        ])
    }

    package init(_ entry: AuditEntry) {
        self = .members([
            "at": .time(microseconds: entry.at), "actor": .string(entry.actor), "action": .string(entry.action),
            "organization": .text(entry.organization), "subject": .string(entry.subject),
            "detail": .json(entry.detail),
        ])
    }
}
