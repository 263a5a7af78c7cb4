import JSON
import TestSupport
import Testing
import Wire

@Suite struct FuzzTests {
    private static let seeds = [
        Fixture.identify, Fixture.attribute, Fixture.identify(attributes: #"{"a":1,"a":-1.5e+3,"é":"\ud83d\ude00\n"}"#),
        #"[[],{},[{"a":[null,true,false,0,-0,1e400,"\u0041\"\\"]}], "x" ]"#,
    ]
    private static let tokens =
        [
            "{", "}", "[", "]", ":", ",", "\"", "\\", "\\u", "\\ud800", "\\udc00", "\\u0000", "0", "-", "e5", ".", "1",
            "null",
            "true", "fals", " ", "\n", "\u{1}", "é", "\u{feff}", "\"a\"", "/", "{\"a\":", "[[[[", "]]",
        ].map { Array($0.utf8) } + [[0xff], [0xed, 0xa0, 0x80], [0xc2], [0x80], [0]]

    @Test func noPrefixOfABodyIsABody() {
        let parser = JSONParser()
        for seed in Self.seeds {
            let bytes = Array(seed.utf8)
            for length in 0..<bytes.count {
                #expect(throws: JSONError(.malformed)) { try parser.parse(Array(bytes[..<length])) }
            }
            #expect(throws: Never.self) { try parser.parse(bytes) }
        }
    }

    @Test func mutatedBodiesAreJudgedLikeTheGrammar() {
        var random = SeededGenerator(seed: 2)
        let parser = JSONParser()
        var taken = 0
        for round in 0..<30_000 {
            let body = mutant(of: Array(Self.seeds[round % Self.seeds.count].utf8), using: &random)
            var accepted = false
            var nul = false
            do {
                _ = try parser.parse(body)
                accepted = true
            } catch {
                nul = error.code == .nulCharacter
            }
            let expected = ReferenceGrammar.accepts(body)
            #expect((accepted || nul) == expected, "\(String(decoding: body, as: UTF8.self))")
            if accepted { taken += 1 }
        }
        // Else the mutations are too wild to tell anything.
        #expect(taken > 3000 && taken < 27_000)
    }

    @Test func whatTheDoorTakesTheQueueCarries() throws {
        var random = SeededGenerator(seed: 3)
        let parser = JSONParser()
        var identified = 0
        var attributed = 0
        for round in 0..<20_000 {
            let body = mutant(of: Array(Self.seeds[round % 3].utf8), using: &random)
            if let write = try? Validated<IdentifyWrite>(body: body, using: parser).write {
                identified += 1
                let payload = write.encodePayload()
                #expect(try IdentifyWrite(payload: payload, using: parser).encodePayload() == payload)
            }
            if let write = try? Validated<AttributeWrite>(body: body, using: parser).write {
                attributed += 1
                let payload = write.encodePayload()
                #expect(try AttributeWrite(payload: payload, using: parser).encodePayload() == payload)
            }
        }
        #expect(identified > 2000 && attributed > 500)
    }

    /// A few edits: bytes changed, removed, moved, tokens put in.
    private func mutant(of seed: [UInt8], using random: inout SeededGenerator) -> [UInt8] {
        var body = seed
        for _ in 0..<Int.random(in: 1...3, using: &random) where !body.isEmpty {
            let at = Int.random(in: 0..<body.count, using: &random)
            switch Int.random(in: 0..<6, using: &random) {
            case 0: body[at] = UInt8.random(in: 0...255, using: &random)
            case 1: body[at] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            case 2: body.removeSubrange(at..<min(body.count, at + Int.random(in: 1...4, using: &random)))
            case 3, 4: body.insert(contentsOf: Self.tokens.randomElement(using: &random) ?? [], at: at)
            default:
                let end = min(body.count, at + Int.random(in: 1...20, using: &random))
                body.insert(contentsOf: Array(body[at..<end]), at: Int.random(in: 0...body.count, using: &random))
            }
        }
        return body
    }
}

/// RFC 8259 in its plainest form, with our two additions: UTF-8 only, no lone surrogates. Written from the RFC alone,
/// so that it can contradict the reader.
private struct ReferenceGrammar {
    private let text: [UInt8]
    private var at = 0

    static func accepts(_ bytes: [UInt8]) -> Bool {
        guard String(validating: bytes, as: UTF8.self) != nil else { return false }
        var grammar = ReferenceGrammar(text: bytes)
        grammar.space()
        guard grammar.value() else { return false }
        grammar.space()
        return grammar.at == bytes.count
    }

    private init(text: [UInt8]) { self.text = text }

    private var next: UInt8? { at < text.count ? text[at] : nil }

    private mutating func take(_ byte: Character) -> Bool {
        guard next == byte.asciiValue else { return false }
        at += 1
        return true
    }

    private mutating func take(word: String) -> Bool {
        for byte in word where !take(byte) { return false }
        return true
    }

    private mutating func space() {
        while take(" ") || take("\t") || take("\n") || take("\r") {}
    }

    private mutating func digits() -> Bool {
        let start = at
        while let byte = next, byte >= 0x30, byte <= 0x39 { at += 1 }
        return at > start
    }

    private mutating func value() -> Bool {
        switch next {
        case 0x7b: return list("{", "}", keyed: true)
        case 0x5b: return list("[", "]", keyed: false)
        case 0x22: return string()
        case 0x74: return take(word: "true")
        case 0x66: return take(word: "false")
        case 0x6e: return take(word: "null")
        default: return number()
        }
    }

    private mutating func list(_ open: Character, _ close: Character, keyed: Bool) -> Bool {
        _ = take(open)
        space()
        if take(close) { return true }
        while true {
            space()
            if keyed {
                guard string() else { return false }
                space()
                guard take(":") else { return false }
                space()
            }
            guard value() else { return false }
            space()
            if take(close) { return true }
            guard take(",") else { return false }
        }
    }

    private mutating func number() -> Bool {
        _ = take("-")
        if !take("0") { guard digits() else { return false } }
        if take(".") { guard digits() else { return false } }
        if take("e") || take("E") {
            if !take("+") { _ = take("-") }
            guard digits() else { return false }
        }
        return true
    }

    private mutating func unit() -> Int? {
        guard at + 4 <= text.count, let digits = String(validating: text[at..<at + 4], as: UTF8.self),
            digits.utf8.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit }), let unit = Int(digits, radix: 16)
        else { return nil }
        at += 4
        return unit
    }

    private mutating func string() -> Bool {
        guard take("\"") else { return false }
        while let byte = next {
            at += 1
            if byte == 0x22 { return true }
            if byte < 0x20 { return false }
            guard byte == 0x5c else { continue }
            guard let escape = next else { return false }
            at += 1
            if escape == 0x75 {
                guard let first = unit() else { return false }
                if first >= 0xdc00 && first <= 0xdfff { return false }
                if first >= 0xd800 && first <= 0xdbff {
                    guard take("\\"), take("u"), let second = unit(), second >= 0xdc00, second <= 0xdfff else {
                        return false
                    }
                }
            } else if !"\"\\/bfnrt".utf8.contains(escape) {
                return false
            }
        }
        return false
    }
}
