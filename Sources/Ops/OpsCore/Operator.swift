internal import Glibc

/// Who sits at the terminal.
package enum Operator {
    /// The name the shell's user logged in with; behind sudo the one before it, else the name or number of the
    /// process's user.
    package static func loginName(environment: [String: String]) -> String {
        var buffer = [CChar](repeating: 0, count: 256)
        if getlogin_r(&buffer, buffer.count) == 0, let name = text(buffer) { return name }
        // sudo sets it itself; whoever could forge it can reach the database as well.
        if let name = environment["SUDO_USER"], !name.isEmpty { return name }
        let user = getuid()
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        var strings = [CChar](repeating: 0, count: 16_384)
        if getpwuid_r(user, &entry, &strings, strings.count, &found) == 0, found != nil, let name = entry.pw_name {
            return String(cString: name)
        }
        return "uid:\(user)"
    }

    private static func text(_ buffer: [CChar]) -> String? {
        let bytes = buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }
}
