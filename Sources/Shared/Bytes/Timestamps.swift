/// RFC 3339 times, always UTC when written, without Foundation: exact in integers and never a trap.
package enum Timestamps {
    /// Days from 0000-01-01 to 1970-01-01 of the proleptic Gregorian calendar.
    private static let epochDay: Int64 = 719_528
    private static let millisecondsPerDay: Int64 = 86_400_000
    /// The first and last millisecond that four digits of year can name.
    private static let writable: ClosedRange<Int64> = -62_167_219_200_000...253_402_300_799_999
    private static let monthStarts = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365]

    /// `2026-11-30T02:00:00.123Z`: always three decimals and `Z`. A time outside the years 0000 to 9999 is written as
    /// the nearest one inside.
    package static func rfc3339(milliseconds: Int64) -> String {
        var text: [UInt8] = []
        append(milliseconds: milliseconds, to: &text)
        return String(decoding: text, as: UTF8.self)
    }

    /// `2026-11-30T02:00:00.123456Z`: always six decimals and `Z`, clamped like the milliseconds.
    package static func rfc3339(microseconds: Int64) -> String {
        var text: [UInt8] = []
        let (milliseconds, rest) = floorDivide(microseconds, by: 1000)
        append(milliseconds: milliseconds, to: &text)
        text.removeLast()
        append(rest, digits: 3, to: &text)
        text.append(UInt8(ascii: "Z"))
        return String(decoding: text, as: UTF8.self)
    }

    /// Appends what `rfc3339(milliseconds:)` answers.
    package static func append(milliseconds: Int64, to text: inout [UInt8]) {
        let clamped = min(max(milliseconds, writable.lowerBound), writable.upperBound)
        let (dayOfEpoch, time) = floorDivide(clamped, by: millisecondsPerDay)
        let day = dayOfEpoch + epochDay
        // The mean year is a hair shorter than 366 days and longer than 365, so the guess is off by one at most.
        var year = day * 400 / 146_097
        while days(before: year + 1) <= day { year += 1 }
        while days(before: year) > day { year -= 1 }
        let dayOfYear = Int(day - days(before: year))
        var month = 1
        while dayOfYear >= start(ofMonth: month + 1, year: year) { month += 1 }
        append(year, digits: 4, to: &text)
        text.append(UInt8(ascii: "-"))
        append(Int64(month), digits: 2, to: &text)
        text.append(UInt8(ascii: "-"))
        append(Int64(dayOfYear - start(ofMonth: month, year: year) + 1), digits: 2, to: &text)
        text.append(UInt8(ascii: "T"))
        append(time / 3_600_000, digits: 2, to: &text)
        text.append(UInt8(ascii: ":"))
        append(time / 60_000 % 60, digits: 2, to: &text)
        text.append(UInt8(ascii: ":"))
        append(time / 1000 % 60, digits: 2, to: &text)
        text.append(UInt8(ascii: "."))
        append(time % 1000, digits: 3, to: &text)
        text.append(UInt8(ascii: "Z"))
    }

    /// Milliseconds since 1970 UTC of an RFC 3339 text (section 5.6), or nil when it is not one.
    ///
    /// Strict: capital `T` and `Z`, four digits of year, one to nine decimals (cut to milliseconds), an offset of at
    /// most 23:59. A leap second (`:60`) is refused: a count of milliseconds since 1970 has no place for it.
    package static func milliseconds(rfc3339 text: String) -> Int64? {
        var reader = DigitReader(bytes: Array(text.utf8))
        guard let year = reader.number(digits: 4, in: 0...9999), reader.take("-"),
            let month = reader.number(digits: 2, in: 1...12), reader.take("-"),
            let day = reader.number(digits: 2, in: 1...31), reader.take("T"),
            let hour = reader.number(digits: 2, in: 0...23), reader.take(":"),
            let minute = reader.number(digits: 2, in: 0...59), reader.take(":"),
            let second = reader.number(digits: 2, in: 0...59)
        else { return nil }
        let monthStart = start(ofMonth: month, year: Int64(year))
        guard day <= start(ofMonth: month + 1, year: Int64(year)) - monthStart else { return nil }
        var fraction = 0
        if reader.take(".") {
            guard let read = reader.fraction() else { return nil }
            fraction = read
        }
        guard let offsetMinutes = reader.offset(), reader.atEnd else { return nil }
        let days = days(before: Int64(year)) + Int64(monthStart + day - 1) - epochDay
        let minutes = Int64(hour * 60 + minute - offsetMinutes)
        return days * millisecondsPerDay + minutes * 60_000 + Int64(second * 1000 + fraction)
    }

    /// Days from 0000-01-01 to the first day of a year; year 0 is a leap year.
    private static func days(before year: Int64) -> Int64 {
        365 * year + (year + 3) / 4 - (year + 99) / 100 + (year + 399) / 400
    }

    /// The day of the year, from 0, on which a month (1 to 13) starts.
    private static func start(ofMonth month: Int, year: Int64) -> Int {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
        return monthStarts[month - 1] + (leap && month > 2 ? 1 : 0)
    }

    /// Quotient rounded down and the remainder, which is never negative.
    private static func floorDivide(_ value: Int64, by divisor: Int64) -> (quotient: Int64, remainder: Int64) {
        let (quotient, remainder) = value.quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }

    private static func append(_ number: Int64, digits: Int, to text: inout [UInt8]) {
        var divisor: Int64 = 1
        for _ in 1..<digits { divisor *= 10 }
        while divisor > 0 {
            text.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: number / divisor % 10))
            divisor /= 10
        }
    }
}

/// Reads fixed runs of ASCII digits; every step checks what is left.
private struct DigitReader {
    let bytes: [UInt8]
    private var position = 0

    init(bytes: [UInt8]) { self.bytes = bytes }

    var atEnd: Bool { position == bytes.count }

    mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard position < bytes.count, bytes[position] == UInt8(ascii: character) else { return false }
        position += 1
        return true
    }

    private mutating func digit() -> Int? {
        guard position < bytes.count, (0x30...0x39).contains(bytes[position]) else { return nil }
        position += 1
        return Int(bytes[position - 1] - 0x30)
    }

    mutating func number(digits: Int, in range: ClosedRange<Int>) -> Int? {
        var value = 0
        for _ in 0..<digits {
            guard let next = digit() else { return nil }
            value = value * 10 + next
        }
        return range.contains(value) ? value : nil
    }

    /// Milliseconds of one to nine decimals.
    mutating func fraction() -> Int? {
        var value = 0
        var count = 0
        while let next = digit() {
            count += 1
            guard count <= 9 else { return nil }
            if count <= 3 { value = value * 10 + next }
        }
        guard count > 0 else { return nil }
        for _ in min(count, 3)..<3 { value *= 10 }
        return value
    }

    /// Minutes east of UTC of `Z` or `±hh:mm`.
    mutating func offset() -> Int? {
        if take("Z") { return 0 }
        let sign: Int
        if take("+") {
            sign = 1
        } else if take("-") {
            sign = -1
        } else {
            return nil
        }
        guard let hours = number(digits: 2, in: 0...23), take(":"), let minutes = number(digits: 2, in: 0...59) else {
            return nil
        }
        return sign * (hours * 60 + minutes)
    }
}
