/// RFC 8259 in its plainest form, with our two additions: UTF-8 only, no lone surrogates. Written from the RFC alone,
/// so that it can contradict the reader.
package struct JSONGrammar {
    private let text: [UInt8]
    private var at = 0

    /// Whether the bytes are one JSON text with at most so many containers in each other. It recurses: the depth is the
    /// caller's to keep within the stack.
    package static func accepts(_ bytes: [UInt8], maximumDepth: Int) -> Bool {
        guard String(validating: bytes, as: UTF8.self) != nil else { return false }
        var grammar = JSONGrammar(text: bytes)
        grammar.space()
        guard grammar.value(maximumDepth) else { return false }
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

    private mutating func value(_ depth: Int) -> Bool {
        switch next {
        case 0x7b: return list("{", "}", keyed: true, depth)
        case 0x5b: return list("[", "]", keyed: false, depth)
        case 0x22: return string()
        case 0x74: return take(word: "true")
        case 0x66: return take(word: "false")
        case 0x6e: return take(word: "null")
        default: return number()
        }
    }

    private mutating func list(_ open: Character, _ close: Character, keyed: Bool, _ depth: Int) -> Bool {
        guard depth > 0 else { return false }
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
            guard value(depth - 1) else { return false }
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
