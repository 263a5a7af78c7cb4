import Bytes
import Testing

@Suite struct TimestampsTests {
    private static let known: [(String, Int64)] = [
        ("1970-01-01T00:00:00.000Z", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2026-11-30T02:00:00.123Z", 1_796_004_000_123),
        ("2000-02-29T12:00:00.000Z", 951_825_600_000),
        ("2000-03-01T00:00:00.000Z", 951_868_800_000),
        ("1900-02-28T23:59:59.000Z", -2_203_891_201_000),
        ("1900-03-01T00:00:00.000Z", -2_203_891_200_000),
        ("2024-12-31T23:59:59.999Z", 1_735_689_599_999),
        ("0000-01-01T00:00:00.000Z", -62_167_219_200_000),
        ("0000-02-29T00:00:00.000Z", -62_162_121_600_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ]

    @Test(arguments: known)
    func knownTimesAreWrittenAndRead(text: String, milliseconds: Int64) {
        #expect(Timestamps.rfc3339(milliseconds: milliseconds) == text)
        #expect(Timestamps.milliseconds(rfc3339: text) == milliseconds)
    }

    @Test func everyDayOfFourCenturiesComesBack() {
        let day: Int64 = 86_400_000
        var previous = ""
        for number in Int64(0)..<146_097 {
            let time = -11_676_096_000_000 + number * day + number % day
            let text = Timestamps.rfc3339(milliseconds: time)
            guard text > previous, Timestamps.milliseconds(rfc3339: text) == time else {
                Issue.record("\(text) is not \(time)")
                return
            }
            previous = text
        }
    }

    @Test func microsecondsKeepSixDecimals() {
        #expect(Timestamps.rfc3339(microseconds: 1_796_004_000_123_456) == "2026-11-30T02:00:00.123456Z")
        #expect(Timestamps.rfc3339(microseconds: -1) == "1969-12-31T23:59:59.999999Z")
    }

    @Test func timesNoYearCanNameAreClampedNotTrapped() {
        #expect(Timestamps.rfc3339(milliseconds: .max) == "9999-12-31T23:59:59.999Z")
        #expect(Timestamps.rfc3339(milliseconds: .min) == "0000-01-01T00:00:00.000Z")
        #expect(Timestamps.rfc3339(microseconds: .min).hasPrefix("0000-01-01T00:00:00.000"))
    }

    @Test(arguments: [
        ("2026-11-30T02:00:00Z", 1_796_004_000_000 as Int64), ("2026-11-30T02:00:00.1Z", 1_796_004_000_100),
        ("2026-11-30T02:00:00.123456789Z", 1_796_004_000_123), ("2026-11-30T03:30:00+01:30", 1_796_004_000_000),
        ("2026-11-29T22:00:00-04:00", 1_796_004_000_000), ("2026-11-30T02:00:00-00:00", 1_796_004_000_000),
    ])
    func offsetsAndDecimalsAreRead(text: String, milliseconds: Int64) {
        #expect(Timestamps.milliseconds(rfc3339: text) == milliseconds)
    }

    @Test(arguments: [
        "", "Z", "2026-11-30", "2026-11-30T02:00:00", "2026-11-30 02:00:00Z", "2026-11-30t02:00:00Z",
        "2026-11-30T02:00:00z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z",
        "2026-04-31T00:00:00Z", "2026-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-01-32T00:00:00Z",
        "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-06-30T23:59:60Z", "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00.1234567890Z", "2026-01-01T00:00:00+0100", "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+01:60", "2026-01-01T00:00:00Zx", " 2026-01-01T00:00:00Z", "+026-01-01T00:00:00Z",
        "02026-01-01T00:00:00Z", "2026-1-1T0:0:0Z", "٢٠٢٦-01-01T00:00:00Z", "2026-01-01T00:00:00−01:00",
        "2026-01-01T00:00:00.1.2Z", "2026-01-01T00:00:00Z\u{0}", "2026-01-01T00:00:0",
    ])
    func badTextsAreRefused(text: String) {
        #expect(Timestamps.milliseconds(rfc3339: text) == nil)
    }
}
