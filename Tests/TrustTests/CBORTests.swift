import Bytes
import TestSupport
import Testing

@testable import Trust

@Suite struct CBORTests {
    private func read(_ hex: String) throws(CBORValue.Fault) -> CBORValue {
        try CBORValue((Hex.decode(hex) ?? [])[...])
    }

    /// RFC 8949 appendix A, what of it the strict form allows.
    @Test(arguments: [
        ("00", CBORValue.unsigned(0)), ("17", .unsigned(23)), ("1818", .unsigned(24)), ("1903e8", .unsigned(1000)),
        ("1bffffffffffffffff", .unsigned(.max)), ("20", .negative(0)), ("3863", .negative(99)),
        ("3bffffffffffffffff", .negative(.max)), ("4401020304", .bytes([1, 2, 3, 4])), ("60", .text("")),
        ("62c3bc", .text("ü")), ("63e6b0b4", .text("水")), ("f4", .simple(false)), ("f6", .simple(nil)),
        ("83010203", .array([.unsigned(1), .unsigned(2), .unsigned(3)])),
        ("a201020304", .map([(.unsigned(1), .unsigned(2)), (.unsigned(3), .unsigned(4))])),
    ])
    func itemsOfTheStandardAreRead(_ hex: String, _ expected: CBORValue) throws {
        let value = try read(hex)
        #expect(value == expected)
    }

    @Test(arguments: [
        "1817", "190017", "1a0000ffff", "1b00000000ffffffff", "5800", "5f42010243030405ff", "9fff", "bf6161019fff",
        "c074323031332d30332d32315432303a30343a30305a", "f93c00", "fb3ff199999999999a", "f7", "ff", "a201020103",
        "a2616101616102",
    ])
    func whatNoDeviceWritesIsRefused(_ hex: String) {
        #expect(throws: CBORValue.Fault.nonCanonical) { try read(hex) }
    }

    @Test(arguments: [
        "", "18", "19ff", "1c", "42ff", "5bffffffffffffffff00", "5b7fffffffffffffff", "61ff", "62e6b0", "8201",
        "9bffffffffffffffff", "bbffffffffffffffff", "a101", "81818181818101", "9a00ffffff",
    ])
    func whatIsCutShortTooDeepOrTooMuchIsRefused(_ hex: String) {
        #expect(throws: CBORValue.Fault.malformed) { try read(hex) }
    }

    @Test func bytesAfterTheItemAreRefused() {
        #expect(throws: CBORValue.Fault.trailing) { try read("0000") }
    }

    /// Whatever a stranger sends is answered, not trapped on, and without memory that only its lengths claim.
    @Test func noBytesTrap() throws {
        var generator = SystemRandomNumberGenerator()
        let seeds = try [
            "a363666d746f6170706c652d61707061747465737467617474537446a26378356380", "81818101", "a20102030458ff",
        ].map { try #require(Hex.decode($0)) }
        var read = 0
        for _ in 0..<50_000 {
            var bytes = seeds.randomElement(using: &generator) ?? []
            for _ in 0..<Int.random(in: 1...6, using: &generator) {
                switch Int.random(in: 0..<3, using: &generator) {
                case 0 where !bytes.isEmpty:
                    bytes[Int.random(in: bytes.indices, using: &generator)] = .random(in: 0...255, using: &generator)
                case 1: bytes.insert(.random(in: 0...255, using: &generator), at: Int.random(in: 0...bytes.count))
                default: bytes = Array(bytes.prefix(Int.random(in: 0...bytes.count, using: &generator)))
                }
            }
            if (try? CBORValue(bytes[...])) != nil { read += 1 }
        }
        #expect(read > 0)
    }
}
