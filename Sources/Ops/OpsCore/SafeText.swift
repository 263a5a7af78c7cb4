/// Text from outside on its way to a terminal: what strangers store must not move its cursor, change its title or
/// reverse its lines.
package enum SafeText {
    /// C0, DEL, C1, and the characters that break lines or turn the direction of what follows. All are below U+FFFF.
    static func isUnsafe(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0...0x1f, 0x7f...0x9f: true
        case 0x200e, 0x200f, 0x2028...0x202e, 0x2066...0x2069, 0x061c: true
        default: false
        }
    }

    /// The text with each such character written out as `\u{1b}`.
    package static func escaped(_ text: String) -> String {
        guard text.unicodeScalars.contains(where: isUnsafe) else { return text }
        var safe = ""
        for scalar in text.unicodeScalars {
            if isUnsafe(scalar) {
                safe += "\\u{\(String(scalar.value, radix: 16))}"
            } else {
                safe.unicodeScalars.append(scalar)
            }
        }
        return safe
    }
}
