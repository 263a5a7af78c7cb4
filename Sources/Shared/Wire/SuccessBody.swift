internal import JSON

/// The bodies of answers that say yes.
package enum SuccessBody {
    /// `{"ok":true}`: attribute, and whatever has nothing else to say.
    package static let ok = Array(#"{"ok":true}"#.utf8)
    /// `{"ok":true,"stored":false}`: a tokenless call whose bundle is nobody's or not one's alone, counted and dropped.
    package static let dropped = Array(#"{"ok":true,"stored":false}"#.utf8)

    /// `{"ok":true,"id":"…"}`.
    package static func identify(id: String) -> [UInt8] {
        var writer = JSONWriter(reservingCapacity: id.utf8.count + 24)
        writer.beginObject()
        writer.key("ok")
        writer.bool(true)
        writer.key("id")
        writer.string(id)
        writer.endObject()
        return writer.bytes
    }

    /// `{"challenge":"…"}`.
    package static func challenge(_ text: String) -> [UInt8] { object("challenge", text) }

    /// `{"deviceToken":"dt_…"}`.
    package static func deviceToken(_ text: String) -> [UInt8] { object("deviceToken", text) }

    private static func object(_ name: StaticString, _ text: String) -> [UInt8] {
        var writer = JSONWriter(reservingCapacity: text.utf8.count + 24)
        writer.beginObject()
        writer.member(name, text)
        writer.endObject()
        return writer.bytes
    }
}
