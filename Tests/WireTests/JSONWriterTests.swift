import JSON
import Testing

@Suite struct JSONWriterTests {
    @Test func containersCommasAndColonsFallIntoPlace() throws {
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("a")
        writer.int(-1)
        writer.key("b")
        writer.beginArray()
        writer.bool(true)
        writer.null()
        writer.beginObject()
        writer.endObject()
        writer.beginArray()
        writer.endArray()
        writer.string("x")
        writer.endArray()
        writer.key("c\"" as String)
        writer.raw("1e400")
        writer.endObject()
        #expect(String(decoding: writer.bytes, as: UTF8.self) == #"{"a":-1,"b":[true,null,{},[],"x"],"c\"":1e400}"#)
    }

    @Test func onlyWhatMustBeIsEscaped() {
        #expect(JSONWriter.quoted("a/é😀\u{7f}\u{2028}") == "\"a/é😀\u{7f}\u{2028}\"")
        #expect(JSONWriter.quoted("\"\\\n\r\t\u{8}\u{c}\u{0}\u{1f}") == #""\"\\\n\r\t\b\f\u0000\u001f""#)
        #expect(JSONWriter.quoted("") == "\"\"")
    }

    @Test func everyCharacterComesBack() throws {
        var scalars = (1...0x2ff).compactMap { Unicode.Scalar(UInt32($0)) }
        scalars += [0xfffd, 0xffff, 0x10000, 0x1f600, 0x10ffff].compactMap { Unicode.Scalar(UInt32($0)) }
        let text = String(String.UnicodeScalarView(scalars))
        let root = try JSONDocument(parsing: Array(JSONWriter.quoted(text).utf8)).root
        #expect(root.stringBytes == Array(text.utf8))
        #expect(JSONWriter.quotedCount(text) == JSONWriter.quoted(text).utf8.count)
    }
}
