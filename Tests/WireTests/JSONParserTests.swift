import JSON
import Testing

@Suite struct JSONParserTests {
    private func parse(_ text: String, maxDepth: Int = 1024, refusing: Bool = false) throws -> JSONValue {
        try JSONDocument(parsing: Array(text.utf8), maxDepth: maxDepth, refusingDuplicateMembers: refusing).root
    }

    private func code(_ bytes: [UInt8], maxDepth: Int = 1024, refusing: Bool = false) -> JSONError.Code? {
        do {
            _ = try JSONDocument(parsing: bytes, maxDepth: maxDepth, refusingDuplicateMembers: refusing)
            return nil
        } catch {
            return error.code
        }
    }

    private func code(_ text: String, maxDepth: Int = 1024, refusing: Bool = false) -> JSONError.Code? {
        code(Array(text.utf8), maxDepth: maxDepth, refusing: refusing)
    }

    @Test func everyKindOfValueIsReadAsWhatItIs() throws {
        let root = try parse(#" {"a":null,"b":true,"c":false,"d":-12.5e+3,"e":"x","f":[1,[],{}],"g":{}} "#)
        #expect(root.kind == .object)
        #expect(root.count == 7)
        #expect(root["a"]?.isNull == true)
        #expect(root["b"]?.bool == true)
        #expect(root["c"]?.bool == false)
        #expect(root["c"]?.isNull == false)
        #expect(root["d"]?.rawNumber == "-12.5e+3")
        #expect(root["d"]?.int64 == nil)
        #expect(root["e"]?.string == "x")
        #expect(root["e"]?.rawNumber == nil)
        #expect(root["f"]?.elements.map(\.kind) == [.number, .array, .object])
        #expect(root["f"]?.count == 3)
        #expect(root["g"]?.count == 0)
        #expect(root["h"] == nil)
        #expect(root.members.map { $0.key.string } == ["a", "b", "c", "d", "e", "f", "g"])
        #expect(root["e"]?["x"] == nil)
        #expect(root.elements.map(\.kind) == [])
    }

    @Test(arguments: [
        "1", "-0", "\"\"", "null", "true", "false", "[]", "{}", "1e400", "[[[]],{\"a\":[{}]}]", "\t[\r\n1 ] ",
    ])
    func textsOfTheGrammarAreTaken(_ text: String) {
        #expect(code(text) == nil)
    }

    @Test(
        arguments: [
            "", " ", "{", "}", "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}",
            "{\"a\" 1}", "{1:2}", "{a:1}", "{\"a\":1 \"b\":2}", "[1}", "{\"a\":1]", "1 2", "{} {}", "[] x", "nul",
            "nulll", "truefalse", "True", "NaN", "Infinity", "-Infinity", "-", "+1", "01", "-01", "1.", ".5", "1e",
            "1e+", "1.e5", "0x10", "1_0", "1a", "1\"a\"", "\"a", "\"a\"b", "\"a\"\"b\"", "\"a\\\"", "'a'", "\"\\x\"",
            "\"\\u12\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\\ud800\\ud800\"",
            "\"\\ud800x\"", "\"\\ud83d\\n\"", "\"a\nb\"", "\"a\tb\"", "\"a\u{0}b\"", "\u{0}", "[1]\u{0}",
            "\u{feff}{}", "// c\n1", "[1]//", "{\"a\":1}}", "[\"a\":1]", "\\\"a\"", ":", ",", "{\"a\"::1}",
            "\"\\", "\"\\u", "[\"\\\"]", "\u{a0}1",
        ])
    func textsOutsideTheGrammarAreMalformed(_ text: String) {
        #expect(code(text) == .malformed)
    }

    @Test func onlyUTF8IsTaken() {
        #expect(code([0x22, 0xff, 0x22]) == .malformed)
        #expect(code([0x22, 0xc0, 0x80, 0x22]) == .malformed, "overlong")
        #expect(code([0x22, 0xed, 0xa0, 0x80, 0x22]) == .malformed, "an encoded surrogate")
        #expect(code([0x22, 0xf4, 0x90, 0x80, 0x80, 0x22]) == .malformed, "beyond U+10FFFF")
        #expect(code([0x22, 0xe2, 0x82, 0x22]) == .malformed, "cut short")
        #expect(code([0x22, 0xf4, 0x8f, 0xbf, 0xbf, 0x22]) == nil)
    }

    @Test func escapesAreResolved() throws {
        let text = #"["\"\\\/\b\f\n\r\t","\u0041\u00e9\u20AC\ud83d\uDe00","😀","a\u0001","\\u0000","x\\"]"#
        let strings = try parse(text).elements.map { $0.stringBytes ?? [] }
        #expect(
            strings == [
                [0x22, 0x5c, 0x2f, 8, 0x0c, 0x0a, 0x0d, 9], Array("Aé€😀".utf8), Array("😀".utf8), [0x61, 1],
                Array("\\u0000".utf8), Array("x\\".utf8),
            ])
    }

    @Test func aNulIsToldFromBrokenText() {
        #expect(code(#"{"a":"x\u0000"}"#) == .nulCharacter)
        #expect(code(#"{"a\u0000":1}"#) == .nulCharacter)
        #expect(code(#"["\u0000"}"#) == .malformed, "the grammar is judged first")
    }

    @Test func numbersKeepTheirText() throws {
        let texts = ["123456789012345678901234567890", "1e400", "-0", "1E5", "1.50", "0.1e-7", "-1"]
        let root = try parse("[" + texts.joined(separator: ", ") + "]")
        #expect(root.elements.map { $0.rawNumber ?? "" } == texts)
    }

    @Test func integersAreExactOrNothing() throws {
        let texts = [
            "0", "-0", "42", "-42", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
            "-9223372036854775809", "1.0", "1e2", "99999999999999999999999",
        ]
        let values = try parse("[" + texts.joined(separator: ",") + "]").elements.map(\.int64)
        #expect(values == [0, 0, 42, -42, .max, .min, nil, nil, nil, nil, nil])
    }

    @Test func theLastOfDuplicatesWinsUnlessTheyAreRefused() throws {
        let text = #"{"a":1,"b":2,"\u0061":3}"#
        #expect(try parse(text)["a"]?.int64 == 3)
        #expect(try parse(text).hasDuplicateMembers)
        #expect(try !parse(#"{"a":{"b":1},"b":2}"#).hasDuplicateMembers)
        #expect(code(text, refusing: true) == .duplicateMember)
        #expect(code(#"[{"x":{"a":1,"a":1}}]"#, refusing: true) == .duplicateMember)
        #expect(code(#"{"a":{"a":1},"b":[{"a":2}]}"#, refusing: true) == nil)
    }

    @Test func duplicatesAmongManyMembersAreFound() {
        let members = (0..<1000).map { "\"key\($0)\":[\($0)]" }
        #expect(code("{" + members.joined(separator: ",") + "}", refusing: true) == nil)
        #expect(
            code("{" + (members + ["\"key500\":0"]).joined(separator: ",") + "}", refusing: true) == .duplicateMember)
    }

    @Test func keysDifferWhenTheirBytesDo() throws {
        // Composed and decomposed é are equal Swift strings.
        let root = try parse("{\"e\u{301}\":1,\"\u{e9}\":2}")
        #expect(root.member(named: Array("e\u{301}".utf8))?.int64 == 1)
        #expect(root.member(named: Array("\u{e9}".utf8))?.int64 == 2)
        #expect(!root.hasDuplicateMembers)
    }

    @Test func nestingIsHeldToItsLimit() {
        let text = { (depth: Int) in String(repeating: "[", count: depth) + String(repeating: "]", count: depth) }
        #expect(code(text(3), maxDepth: 3) == nil)
        #expect(code(text(4), maxDepth: 3) == .tooDeep)
        #expect(code(text(1024)) == nil)
        #expect(code(text(5000)) == .tooDeep)
        #expect(code(text(5000), maxDepth: 5000) == nil)
        #expect(code(String(repeating: "{\"a\":", count: 5000)) == .tooDeep)
    }

    @Test func aParserReadsManyDocuments() throws {
        let parser = JSONParser()
        for size in [10, 5000, 100, 300_000, 20] {
            let text = String(repeating: "é", count: size)
            let root = try parser.parse(Array("[\"\(text)\",1,2]".utf8))
            #expect(root.elements.map { $0.string ?? "" } == [text, "", ""])
            #expect(throws: JSONError(.malformed)) { try parser.parse(Array("[1,".utf8)) }
        }
    }

    @Test func aDocumentOutlivesItsVariable() throws {
        let value = try #require(
            try JSONDocument(parsing: Array(#"{"a":["b"]}"#.utf8)).root["a"]?.elements.map { $0 }[0])
        #expect(value.string == "b")
    }
}
