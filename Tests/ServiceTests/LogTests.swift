import EventLoop
import Foundation
import Glibc
import Service
import Testing

@Suite struct LogTests {
    private let time = ManualTime()
    private let sink = MemoryLogSink()

    private func log(_ level: LogLevel = .info) -> Log {
        Log(process: "ratchet-writer", level: level, time: time, sink: sink)
    }

    @Test func aLineHoldsExactlyItsFiveParts() {
        let port = 8080
        log().info("listening", ["host": "127.0.0.1", "port": port, "ready": true, "load": 0.5, "lanes": ["a", "b"]])
        #expect(
            sink.lines == [
                #"{"time":"2026-11-30T00:00:00.000Z","level":"info","process":"ratchet-writer","message":"listening","#
                    + #""fields":{"host":"127.0.0.1","port":8080,"ready":true,"load":0.5,"lanes":["a","b"]}}"#
            ])
    }

    @Test func linesBelowTheLevelAreNotEvenBuilt() {
        func explosive() -> String {
            Issue.record("a field was built")
            return ""
        }
        log(.warn).info("quiet", ["value": explosive()])
        log(.warn).warn("loud")
        #expect(sink.lines.count == 1)
    }

    @Test(arguments: [
        "quote \" backslash \\ slash /", "line\nbreak\r\ttab", "\u{0}\u{1}\u{1f}\u{7f}", "\u{9b}31m\u{1b}[31m",
        "\",\"level\":\"error\"}\n{\"time\":\"forged", "\u{2028}\u{2029}\u{202e}abc\u{2066}", "é e\u{301} 👩‍👩‍👧 \u{fffe}",
        "\u{feff}bom",
    ])
    func hostileTextStaysOneFieldOfOneLine(text: String) throws {
        log().warn("odd", ["value": text])
        let line = try #require(sink.lines.first)
        let parsed = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
        let fields = try #require(parsed["fields"] as? [String: String])
        #expect(try #require(fields["value"]).unicodeScalars.elementsEqual(text.unicodeScalars))
        #expect(parsed["level"] as? String == "warn")
        for scalar in line.unicodeScalars {
            let control = scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
            let direction = (0x2028...0x202E).contains(scalar.value) || (0x2066...0x2069).contains(scalar.value)
            #expect(!control && !direction)
        }
    }

    @Test func infinityIsNotJSONAndBecomesNull() {
        log().info("odd", ["value": Double.infinity])
        #expect(sink.lines[0].hasSuffix(#""fields":{"value":null}}"#))
    }

    @Test(arguments: ["x", "\u{1}", "é", "👩‍👩‍👧"])
    func aLineNeverOutgrowsAPipe(unit: String) throws {
        let long = String(repeating: unit, count: 100_000)
        log().info("long", ["a": long, "b": long, "c": long, "d": long, "e": long, "z": 1])
        let line = try #require(sink.lines.first)
        #expect(line.utf8.count < 4096)
        let parsed = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
        #expect(parsed["truncated"] as? Bool == true)
        #expect((parsed["fields"] as? [String: Any])?["z"] as? Int == 1)
    }

    @Test func aFloodOfOneMessageIsOneLineASecondWithACount() {
        let log = log()
        for _ in 0..<843 { log.limited(.warn, "queue is full", ["lane": "write"]) }
        log.limited(.warn, "another")
        #expect(sink.lines.count == 2)
        time.advance(milliseconds: 999)
        log.limited(.warn, "queue is full")
        #expect(sink.lines.count == 2)
        time.advance(milliseconds: 1)
        log.limited(.warn, "queue is full", ["lane": "write"])
        #expect(sink.lines.count == 3)
        #expect(sink.lines[2].hasSuffix(#""fields":{"suppressed":843,"lane":"write"}}"#))
        time.advance(milliseconds: 5000)
        log.limited(.warn, "queue is full")
        #expect(sink.lines[3].hasSuffix(#""fields":{}}"#))
    }

    @Test func droppedLinesAreCountedAndToldOnceLinesGoThrough() {
        let log = log()
        sink.refuse(true)
        for _ in 0..<3 { log.error("lost") }
        #expect(sink.lines.isEmpty)
        #expect(log.droppedLines == 3)
        sink.refuse(false)
        log.info("back")
        log.info("again")
        #expect(sink.lines.count == 3)
        #expect(sink.lines[0].contains(#""message":"log lines were dropped","fields":{"count":3}"#))
        #expect(log.droppedLines == 3)
    }

    @Test(arguments: [false, true])
    func aStuckReaderCostsLinesNotTime(socket: Bool) throws {
        var ends: [Int32] = [-1, -1]
        let type = Int32(SOCK_STREAM.rawValue)
        try #require(socket ? socketpair(AF_UNIX, type, 0, &ends) == 0 : pipe(&ends) == 0)
        let (reading, writing) = socket ? (ends[0], ends[1]) : (ends[0], ends[1])
        defer {
            close(reading)
            close(writing)
        }
        let sink = DescriptorLogSink(descriptor: writing)
        let line = Array((String(repeating: "x", count: 999) + "\n").utf8)
        var taken = 0
        // Nobody reads: a sink that waits would hang here for ever.
        while taken < 100_000, sink.write(line) { taken += 1 }
        #expect((16..<100_000).contains(taken))
        var buffer = [UInt8](repeating: 0, count: 8192)
        #expect(read(reading, &buffer, buffer.count) > 0)
        var received = Data(buffer)
        while !sink.write(line) { received.append(contentsOf: buffer[..<read(reading, &buffer, buffer.count)]) }
    }

    @Test func aSinkWritesWholeLinesInOrder() throws {
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        defer { close(ends[0]) }
        let sink = DescriptorLogSink(descriptor: ends[1])
        let log = Log(process: "p", level: .debug, time: time, sink: sink)
        log.debug("first")
        log.error("second")
        close(ends[1])
        var buffer = [UInt8](repeating: 0, count: 8192)
        let count = read(ends[0], &buffer, buffer.count)
        let lines = String(decoding: buffer[..<max(0, count)], as: UTF8.self).split(separator: "\n")
        #expect(lines.count == 2 && lines[0].contains("first") && lines[1].contains("second"))
        #expect(!sink.write([10]))
    }
}
