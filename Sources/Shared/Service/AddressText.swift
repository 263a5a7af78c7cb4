/// Connection addresses that may hold a password: their shape, and how to show them.
///
/// What is shown is chosen by what is known to be harmless, not by what is known to be secret: a misspelt or quoted
/// password must not slip through.
enum AddressText {
    private static let hidden = "***"
    /// Keywords of libpq, and the one of Redis, whose values may be shown.
    private static let harmless: Set<String> = [
        "host", "hostaddr", "port", "dbname", "user", "connect_timeout", "client_encoding", "application_name",
        "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout", "sslmode",
        "sslrootcert", "target_session_attrs", "channel_binding", "gssencmode", "service", "db",
    ]

    /// The text itself when it has the shape of a Redis address.
    static func redis(_ text: String) -> String? {
        guard plain(text) else { return nil }
        if let address = rest(of: text, after: "unix://") {
            let path = address.first == "/" ? address : afterLogin(address)
            let parts = path.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
            let database = parts.count == 2 ? rest(of: String(parts[1]), after: "db=").map(String.init) : "0"
            return parts[0].utf8.count > 1 && parts[0].first == "/" && isNumber(database) ? text : nil
        }
        if let address = rest(of: text, after: "redis://") {
            let parts = afterLogin(address).split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
            return hostAndPort(parts[0]) && isDatabase(parts.dropFirst().first) ? text : nil
        }
        if let address = rest(of: text, after: "redis-sentinel://") {
            let parts = afterLogin(address).split(separator: "/", maxSplits: 2, omittingEmptySubsequences: false)
            guard parts.count > 1, !parts[1].isEmpty, isDatabase(parts.dropFirst(2).first) else { return nil }
            return hostsAndPorts(parts[0]) ? text : nil
        }
        guard let address = rest(of: text, after: "redis-cluster://") else { return nil }
        let parts = afterLogin(address).split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        return hostsAndPorts(parts[0]) && (parts.count == 1 || parts[1].isEmpty || parts[1] == "0") ? text : nil
    }

    /// What follows a slash, if there is one.
    private static func isDatabase(_ text: Substring?) -> Bool {
        text.map { $0.isEmpty || isNumber(String($0)) } ?? true
    }

    private static func hostsAndPorts(_ list: Substring) -> Bool {
        list.split(separator: ",", omittingEmptySubsequences: false).allSatisfy { hostAndPort($0) }
    }

    private static func afterLogin(_ address: Substring) -> Substring {
        address.lastIndex(of: "@").map { address[address.index(after: $0)...] } ?? address
    }

    private static func isNumber(_ text: String?) -> Bool { text.flatMap(Setting<Int>.wholeNumber) != nil }

    /// The text itself when libpq could read it; libpq has the last word on keywords.
    static func postgres(_ text: String) -> String? {
        guard !text.isEmpty, text.utf8.count <= 4096, !text.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F }) else {
            return nil
        }
        if isURI(text) { return text }
        return pairs(text)?.isEmpty == false ? text : nil
    }

    /// The text itself when it is the address of a web page: http or https, a host, a port perhaps, a path.
    static func web(_ text: String) -> String? {
        guard plain(text), let address = rest(of: text, after: "https://") ?? rest(of: text, after: "http://") else {
            return nil
        }
        let host = address.prefix { $0 != "/" }
        let path = address.dropFirst(host.count)
        return hostAndPort(host) && !path.contains { $0 == "?" || $0 == "#" || $0 == "\\" } ? text : nil
    }

    /// An address without its password.
    static func masked(_ text: String) -> String {
        if text.utf8.starts(with: "unix://".utf8) && !text.utf8.contains(UInt8(ascii: "@")) { return text }
        if isURI(text) { return maskedURI(text) }
        guard let pairs = pairs(text) else { return hidden }
        return pairs.map { key, value in
            let shown = harmless.contains(key) ? value : hidden
            return "\(key)=" + (shown.isEmpty || shown.contains(" ") ? "'\(shown)'" : shown)
        }.joined(separator: " ")
    }

    private static func isURI(_ text: String) -> Bool {
        ["redis://", "redis-sentinel://", "redis-cluster://", "unix://", "postgresql://", "postgres://"].contains {
            text.utf8.starts(with: $0.utf8)
        }
    }

    /// Hides everything between the user's name and the last `@`, and every parameter that isn't known as harmless. A
    /// password with an unescaped `@` or `/` in it breaks the address, but is hidden all the same.
    private static func maskedURI(_ text: String) -> String {
        guard let scheme = text.firstRange(of: "://") else { return hidden }
        var shown = String(text[..<scheme.upperBound])
        var rest = text[scheme.upperBound...]
        if let at = rest.lastIndex(of: "@") {
            let credentials = rest[..<at]
            // Either a parameter with an @ or a password with a ?: what is what can't be told.
            guard !credentials.contains("?") else { return shown + hidden }
            let user = credentials.prefix { $0 != ":" }
            let isName = user.endIndex < credentials.endIndex || shown.utf8.starts(with: "postgres".utf8)
            shown += isName ? user : ""
            shown += isName && user.endIndex == credentials.endIndex ? "@" : ":\(hidden)@"
            rest = rest[rest.index(after: at)...]
        }
        guard let question = rest.firstIndex(of: "?") else { return shown + rest }
        let parameters = rest[rest.index(after: question)...].split(separator: "&").map { parameter in
            let key = parameter.prefix { $0 != "=" }
            return harmless.contains(String(key)) ? String(parameter) : "\(key)=\(hidden)"
        }
        return shown + rest[...question] + parameters.joined(separator: "&")
    }

    /// The pairs of a libpq `key = value` string (PostgreSQL 15 manual, 34.1.1.1): values in single quotes or up to
    /// white space, a backslash takes the next character as it is. Nil when it isn't one.
    private static func pairs(_ text: String) -> [(key: String, value: String)]? {
        var pairs: [(String, String)] = []
        var rest = text.unicodeScalars[...]
        func skipSpace() { rest = rest.drop { $0 == " " } }
        skipSpace()
        while !rest.isEmpty {
            let key = String(rest.prefix { $0 != "=" && $0 != " " })
            rest = rest.dropFirst(key.unicodeScalars.count)
            skipSpace()
            guard !key.isEmpty, rest.popFirst() == "=" else { return nil }
            skipSpace()
            var value = String.UnicodeScalarView()
            let quoted = rest.first == "'"
            if quoted { rest = rest.dropFirst() }
            var closed = !quoted
            while let next = rest.first, quoted || next != " " {
                rest = rest.dropFirst()
                if next == "'", quoted {
                    closed = true
                    break
                }
                if next == "\\" {
                    guard let escaped = rest.popFirst() else { return nil }
                    value.append(escaped)
                } else {
                    value.append(next)
                }
            }
            guard closed else { return nil }
            pairs.append((key, String(value)))
            skipSpace()
        }
        return pairs
    }

    private static func plain(_ text: String) -> Bool {
        text.utf8.count <= 4096 && text.utf8.allSatisfy { (0x21...0x7E).contains($0) }
    }

    private static func rest(of text: String, after prefix: String) -> Substring? {
        text.utf8.starts(with: prefix.utf8) ? text.dropFirst(prefix.count) : nil
    }

    /// `host`, `host:port`, `[v6]` or `[v6]:port`.
    private static func hostAndPort(_ text: Substring) -> Bool {
        let host: Substring
        let port: Substring
        if text.first == "[" {
            guard let close = text.firstIndex(of: "]") else { return false }
            host = text[text.index(after: text.startIndex)..<close]
            port = text[text.index(after: close)...]
            guard AddressRange.bytes(of: String(host)) != nil else { return false }
        } else {
            host = text.prefix { $0 != ":" }
            port = text.dropFirst(host.count)
            guard host.utf8.allSatisfy({ isHostCharacter($0) }) else { return false }
        }
        guard !host.isEmpty else { return false }
        if port.isEmpty { return true }
        guard port.first == ":", let number = Setting<Int>.wholeNumber(String(port.dropFirst())) else { return false }
        return (1...65_535).contains(number)
    }

    private static func isHostCharacter(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F: true
        default: false
        }
    }
}
