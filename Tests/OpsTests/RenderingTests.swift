import OpsCore
import Testing

@testable import CLI

@Suite struct RenderingTests {
    private let document = Document.members([
        "id": .string("x"), "count": .int(3), "missing": .null, "good": .bool(true), "none": .list([]),
        "words": .list([.string("a"), .string("b")]), "nothing": .object([]),
        "inner": .members(["key": .json("1e400"), "longerKey": .string("")]),
        "rows": .list([
            .members(["name": .string("first"), "n": .int(1)]), .members(["name": .string("2nd"), "n": .int(100)]),
        ]),
    ])

    @Test func objectsAreAlignedAndTablesIndented() {
        let text = """
            id       x
            count    3
            missing  -
            good     yes
            none     none
            words    a, b
            nothing  none
            inner
              key        1e400
              longerKey  ""
            rows
              name     n
              first    1
              2nd    100

            """
        #expect(TextRendering().text(document) == text)
    }

    @Test func tablesShowTheColumnsThatWereChosen() {
        let rows = document["rows"] ?? .null
        #expect(TextRendering(columns: ["": ["n"]]).text(rows) == "  n\n  1\n100\n")
        #expect(TextRendering(empty: "no rows").text(.list([])) == "no rows\n")
    }

    @Test func jsonIsIndentedAndKeepsNumbersAsTheyWere() {
        let text = """
            {
              "id": "x",
              "count": 3,
              "missing": null,
              "good": true,
              "none": [],
              "words": [
                "a",
                "b"
              ],
              "nothing": {},
              "inner": {
                "key": 1e400,
                "longerKey": ""
              },
              "rows": [
                {
                  "name": "first",
                  "n": 1
                },
                {
                  "name": "2nd",
                  "n": 100
                }
              ]
            }

            """
        #expect(document.jsonText == text)
    }

    @Test func nothingStoredReachesATerminalAsACommand() throws {
        let nasty = "a\u{1b}[2J\u{9b}31m\u{7f}\r\n\t\u{0}\u{202e}\u{2066}\u{2028}é"
        let documents: [Document] = [
            .string(nasty), .members(["k": .string(nasty)]), .object([.init(nasty, .string("v"))]),
            .list([.members(["k": .string(nasty)])]), .list([.object([.init(nasty, .int(1))])]),
            .members(["raw": .json("\"a\u{9b}b\u{7f}\"")]),
            .members(["list": .list([.string(nasty)]), "o": .members([nasty: .string(nasty)])]),
        ]
        for document in documents {
            for text in [TextRendering().text(document), document.jsonText] {
                let lines = text.split(separator: "\n", omittingEmptySubsequences: false).joined()
                #expect(
                    !lines.unicodeScalars.contains {
                        $0.value < 0x20 || (0x7f...0x9f).contains($0.value) || $0.value == 0x202e || $0.value == 0x2066
                            || $0.value == 0x2028
                    }, "\(text.debugDescription)")
            }
        }
        #expect(TextRendering().text(.string(nasty)).hasPrefix("a\\u{1b}[2J\\u{9b}31m\\u{7f}\\u{d}\\u{a}\\u{9}\\u{0}"))
        // A reader of JSON gets exactly what is stored.
        let read = try Parsed(Document.members(["k": .string("a\u{1b}[2J\u{9b}\u{7f}\u{202e}é")]).jsonText)
        #expect(read["k"] == .string("a\u{1b}[2J\u{9b}\u{7f}\u{202e}é"))
    }

    @Test func timesBefore1970AreCutDownwards() {
        #expect(Document.time(microseconds: -1) == .string("1969-12-31T23:59:59.999Z"))
        #expect(Document.time(microseconds: 1_999) == .string("1970-01-01T00:00:00.001Z"))
    }
}
