package import EventLoop
internal import Synchronization

/// How much a log line matters; a log writes its own level and above.
package enum LogLevel: String, CaseIterable, Comparable, Sendable {
    /// Of use only while looking for a fault.
    case debug
    /// What an operator wants to find afterwards.
    case info
    /// Somebody should look, but service goes on.
    case warn
    /// A promise could not be kept.
    case error

    package static func < (a: LogLevel, b: LogLevel) -> Bool { a.rank < b.rank }

    private var rank: Int {
        switch self {
        case .debug: 0
        case .info: 1
        case .warn: 2
        case .error: 3
        }
    }
}

/// What may stand as a field's value: texts, whole numbers, decimals, truth values and lists of texts.
package protocol LogValue {
    /// The value in one of the shapes that a line can hold.
    var logged: LoggedValue { get }
}

/// The shapes of a field's value.
package enum LoggedValue: Sendable {
    case text(String)
    case integer(Int64)
    /// Written as null when it isn't finite.
    case decimal(Double)
    case flag(Bool)
    case list([String])
}

extension String: LogValue {
    package var logged: LoggedValue { .text(self) }
}
extension Int: LogValue {
    package var logged: LoggedValue { .integer(Int64(self)) }
}
extension Int32: LogValue {
    package var logged: LoggedValue { .integer(Int64(self)) }
}
extension Int64: LogValue {
    package var logged: LoggedValue { .integer(self) }
}
extension Double: LogValue {
    package var logged: LoggedValue { .decimal(self) }
}
extension Bool: LogValue {
    package var logged: LoggedValue { .flag(self) }
}
extension [String]: LogValue {
    package var logged: LoggedValue { .list(self) }
}

/// Writes one JSON object a line: `time`, `level`, `process`, `message`, `fields`.
///
/// The message is constant text, so that lines can be counted and searched by it; what varies goes into fields. Values
/// are escaped, a text is cut at 1,024 written bytes, and fields that would make a line longer than a pipe takes in one piece
/// are left out (`"truncated":true`). Safe from any thread; never waits for whoever reads the lines: what the sink
/// can't take is dropped, counted, and told once lines go through again.
package final class Log: Sendable {
    /// Field names and values, in the order they are written. Names are constants.
    package typealias Fields = KeyValuePairs<StaticString, any LogValue>

    /// Linux `PIPE_BUF` is 4,096: lines up to it reach a shared pipe unbroken. The rest is kept for the closing parts.
    private static let lineBytes = 4_000
    private static let fieldBytes = 1_024
    /// How often one message may repeat in `limited`.
    private static let repeatNanoseconds: Int64 = 1_000_000_000

    private struct Repeat {
        var lastWritten: Int64
        var suppressed = 0
    }

    /// Lines below this level are not written.
    package let level: LogLevel
    private let process: String
    private let time: any TimeSource
    private let sink: any LogSink
    private let dropped = Atomic<Int>(0)
    private let allDropped = Atomic<Int>(0)
    /// One entry for each message that `limited` has seen: bounded by the number of such calls in the source.
    private let repeats = Mutex<[String: Repeat]>([:])

    /// - Parameter process: the name that every line carries, such as `ratchet-writer`.
    package init(process: String, level: LogLevel, time: any TimeSource, sink: any LogSink = DescriptorLogSink()) {
        self.process = process
        self.level = level
        self.time = time
        self.sink = sink
    }

    /// Lines that the sink could not take since the start.
    package var droppedLines: Int { allDropped.load(ordering: .relaxed) }

    package func debug(_ message: StaticString, _ fields: @autoclosure () -> Fields = [:]) {
        write(.debug, message, fields)
    }

    package func info(_ message: StaticString, _ fields: @autoclosure () -> Fields = [:]) {
        write(.info, message, fields)
    }

    package func warn(_ message: StaticString, _ fields: @autoclosure () -> Fields = [:]) {
        write(.warn, message, fields)
    }

    package func error(_ message: StaticString, _ fields: @autoclosure () -> Fields = [:]) {
        write(.error, message, fields)
    }

    /// Writes a message that may come in floods at most once a second; the next line that is written tells in
    /// `suppressed` how many were not. Lines of one message share the count, whatever their fields.
    package func limited(_ level: LogLevel, _ message: StaticString, _ fields: @autoclosure () -> Fields = [:]) {
        guard level >= self.level else { return }
        let now = time.monotonicNanoseconds
        let suppressed: Int? = repeats.withLock { repeats in
            let key = message.description
            if var known = repeats[key], now - known.lastWritten < Self.repeatNanoseconds {
                known.suppressed += 1
                repeats[key] = known
                return nil
            }
            let waiting = repeats[key]?.suppressed ?? 0
            repeats[key] = Repeat(lastWritten: now)
            return waiting
        }
        guard let suppressed else { return }
        emit(line(level, message, fields(), suppressed: suppressed))
    }

    private func write(_ level: LogLevel, _ message: StaticString, _ fields: () -> Fields) {
        guard level >= self.level else { return }
        emit(line(level, message, fields(), suppressed: 0))
    }

    private func emit(_ line: [UInt8]) {
        let waiting = dropped.exchange(0, ordering: .relaxed)
        if waiting > 0 {
            let notice = self.line(.warn, "log lines were dropped", ["count": waiting], suppressed: 0)
            if !sink.write(notice) { dropped.add(waiting, ordering: .relaxed) }
        }
        if !sink.write(line) {
            dropped.add(1, ordering: .relaxed)
            allDropped.add(1, ordering: .relaxed)
        }
    }

    private func line(_ level: LogLevel, _ message: StaticString, _ fields: Fields, suppressed: Int) -> [UInt8] {
        var json = JSONText()
        json.raw("{\"time\":")
        json.time(milliseconds: time.wallMilliseconds)
        json.raw(",\"level\":")
        json.string(level.rawValue)
        json.raw(",\"process\":")
        json.string(process)
        json.raw(",\"message\":")
        json.string(message.description, limit: Self.fieldBytes)
        json.raw(",\"fields\":{")
        var separator: StaticString = ""
        var truncated = false
        if suppressed > 0 {
            json.raw("\"suppressed\":")
            json.integer(suppressed)
            separator = ","
        }
        for (name, value) in fields {
            var field = JSONText()
            field.raw(separator)
            field.string(name.description)
            field.raw(":")
            Self.append(value.logged, to: &field)
            guard json.bytes.count + field.bytes.count <= Self.lineBytes else {
                truncated = true
                continue
            }
            json.append(field)
            separator = ","
        }
        json.raw("}")
        if truncated { json.raw(",\"truncated\":true") }
        json.raw("}")
        json.newline()
        return json.bytes
    }

    private static func append(_ value: LoggedValue, to json: inout JSONText) {
        switch value {
        case .text(let text): json.string(text, limit: fieldBytes)
        case .integer(let number): json.integer(number)
        case .decimal(let number): json.decimal(number)
        case .flag(let flag): json.flag(flag)
        case .list(let texts):
            json.raw("[")
            for (index, text) in texts.enumerated() {
                if index > 0 { json.raw(",") }
                json.string(text, limit: fieldBytes)
            }
            json.raw("]")
        }
    }
}
