/// A host and a port of TCP.
package struct RedisHost: Sendable, Hashable, CustomStringConvertible {
    package let name: String
    package let port: UInt16

    package init(name: String, port: UInt16) {
        self.name = name
        self.port = port
    }

    /// `host:port`, with an IPv6 address in brackets.
    package var description: String {
        name.utf8.contains(UInt8(ascii: ":")) ? "[\(name)]:\(port)" : "\(name):\(port)"
    }
}

/// Where a Redis is and how to log in.
///
/// Forms: `unix:///path`, `redis://host:port/db`, `redis-sentinel://host:port,host:port/name/db` and
/// `redis-cluster://host:port,host:port`, each with `user:password@` or `:password@` before the path or the first host.
/// The port defaults to 6379, that of a sentinel to 26379, the database to 0; a unix path takes its database as `?db=3`.
/// User and password are percent-decoded; an IPv6 host stands in brackets.
package struct RedisAddress: Sendable, Equatable, CustomStringConvertible {
    package enum Endpoint: Sendable, Equatable {
        /// Absolute path of a socket.
        case unix(path: String)
        case tcp(host: String, port: UInt16)
        /// The primary that the sentinels know under a name. Several addresses, so that one of them may be away.
        case sentinel(name: String, sentinels: [RedisHost])
        /// The cluster that any of these nodes belongs to. The login holds for every node.
        case cluster(nodes: [RedisHost])
    }

    package var endpoint: Endpoint
    /// ACL user; nil is the default user.
    package var user: String?
    package var password: String?
    package var database: Int

    package init(endpoint: Endpoint, user: String? = nil, password: String? = nil, database: Int = 0) {
        self.endpoint = endpoint
        self.user = user
        self.password = password
        self.database = database
    }

    /// The kernel's `sun_path` holds 108 bytes with the closing zero.
    private static let maxPathBytes = 107

    /// - Throws: `.invalidAddress`, with a message that says what to write and never repeats the password.
    package init(_ text: String) throws(RedisError) {
        if let rest = Self.dropping("unix://", from: text) {
            try self.init(unix: rest)
        } else if let rest = Self.dropping("redis://", from: text) {
            try self.init(tcp: rest)
        } else if let rest = Self.dropping("redis-sentinel://", from: text) {
            try self.init(sentinel: rest)
        } else if let rest = Self.dropping("redis-cluster://", from: text) {
            try self.init(cluster: rest)
        } else if Self.dropping("rediss://", from: text) != nil {
            throw Self.invalid("TLS is not supported; use redis:// over a private link or a tunnel such as stunnel")
        } else {
            throw Self.invalid(
                "expected unix:///path, redis://host:port/db, redis-sentinel://host:port,host:port/name or"
                    + " redis-cluster://host:port,host:port")
        }
    }

    private init(unix rest: String) throws(RedisError) {
        // A path may hold an @ of its own: only what comes before its first / can be a login.
        let (login, location) = rest.hasPrefix("/") ? (nil, rest) : Self.splitLogin(rest)
        let parts = location.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        let path = String(parts[0])
        guard path.utf8.first == UInt8(ascii: "/"), path.utf8.count > 1 else {
            throw Self.invalid("a unix address needs an absolute path: unix:///run/redis.sock")
        }
        guard path.utf8.count <= Self.maxPathBytes, !path.utf8.contains(0) else {
            throw Self.invalid("the socket path is longer than \(Self.maxPathBytes) bytes")
        }
        var database = 0
        if parts.count == 2 {
            guard let number = Self.dropping("db=", from: String(parts[1])) else {
                throw Self.invalid("the only option of a unix address is ?db=N")
            }
            database = try Self.database(number)
        }
        let (user, password) = try Self.credentials(login)
        self.init(endpoint: .unix(path: path), user: user, password: password, database: database)
    }

    private init(tcp rest: String) throws(RedisError) {
        let (login, location) = Self.splitLogin(rest)
        let parts = location.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        let host = try Self.host(String(parts[0]), port: 6379)
        let database = parts.count == 2 && !parts[1].isEmpty ? try Self.database(String(parts[1])) : 0
        let (user, password) = try Self.credentials(login)
        self.init(endpoint: .tcp(host: host.name, port: host.port), user: user, password: password, database: database)
    }

    private init(sentinel rest: String) throws(RedisError) {
        let (login, location) = Self.splitLogin(rest)
        let parts = location.split(separator: "/", maxSplits: 2, omittingEmptySubsequences: false)
        let sentinels = try Self.hosts(parts[0], port: 26379)
        guard parts.count > 1, !parts[1].isEmpty, !parts[1].utf8.contains(0) else {
            throw Self.invalid(
                "after the sentinels comes the primary's name: redis-sentinel://host:port,host:port/name")
        }
        let database = parts.count == 3 && !parts[2].isEmpty ? try Self.database(String(parts[2])) : 0
        let (user, password) = try Self.credentials(login)
        self.init(
            endpoint: .sentinel(name: String(parts[1]), sentinels: sentinels), user: user, password: password,
            database: database)
    }

    private init(cluster rest: String) throws(RedisError) {
        let (login, location) = Self.splitLogin(rest)
        let parts = location.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 1 || parts[1].isEmpty || parts[1] == "0" else {
            throw Self.invalid("a cluster has no other database than 0")
        }
        let (user, password) = try Self.credentials(login)
        self.init(
            endpoint: .cluster(nodes: try Self.hosts(parts[0], port: 6379)), user: user, password: password)
    }

    /// Without the password.
    package var description: String {
        let login = password == nil ? "" : "\(user ?? ""):***@"
        switch endpoint {
        case .unix(let path):
            return "unix://\(login)\(path)" + (database == 0 ? "" : "?db=\(database)")
        case .tcp(let host, let port):
            return "redis://\(login)\(RedisHost(name: host, port: port))/\(database)"
        case .sentinel(let name, let sentinels):
            let hosts = sentinels.map(\.description).joined(separator: ",")
            return "redis-sentinel://\(login)\(hosts)/\(name)" + (database == 0 ? "" : "/\(database)")
        case .cluster(let nodes):
            return "redis-cluster://\(login)" + nodes.map(\.description).joined(separator: ",")
        }
    }

    // MARK: - Parts

    private static func invalid(_ message: String) -> RedisError {
        RedisError(code: .invalidAddress, message: message)
    }

    private static func dropping(_ prefix: String, from text: String) -> String? {
        guard text.utf8.starts(with: prefix.utf8) else { return nil }
        return String(text.utf8.dropFirst(prefix.utf8.count)) ?? nil
    }

    /// A password may hold `@` and `/` as they are, so the last `@` ends the login.
    private static func splitLogin(_ text: String) -> (login: String?, location: String) {
        guard let at = text.lastIndex(of: "@") else { return (nil, text) }
        return (String(text[..<at]), String(text[text.index(after: at)...]))
    }

    private static func credentials(_ login: String?) throws(RedisError) -> (user: String?, password: String?) {
        guard let login else { return (nil, nil) }
        guard let colon = login.firstIndex(of: ":") else {
            throw invalid("a login is written :password@ or user:password@")
        }
        let user = try percentDecoded(login[..<colon])
        let password = try percentDecoded(login[login.index(after: colon)...])
        guard !password.isEmpty else { throw invalid("the password is empty") }
        return (user.isEmpty ? nil : user, password)
    }

    private static func hosts(_ list: Substring, port: UInt16) throws(RedisError) -> [RedisHost] {
        var hosts: [RedisHost] = []
        for text in list.split(separator: ",", omittingEmptySubsequences: false) {
            let host = try host(String(text), port: port)
            if !hosts.contains(host) { hosts.append(host) }
        }
        return hosts
    }

    private static func host(_ text: String, port usual: UInt16) throws(RedisError) -> RedisHost {
        var host = text[...]
        var port = String(usual)[...]
        if text.hasPrefix("[") {
            guard let end = text.firstIndex(of: "]") else { throw invalid("the IPv6 address lacks its closing ]") }
            host = text[text.index(after: text.startIndex)..<end]
            let rest = text[text.index(after: end)...]
            if !rest.isEmpty {
                guard rest.hasPrefix(":") else { throw invalid("after ] comes :port") }
                port = rest.dropFirst()
            }
        } else if let colon = text.firstIndex(of: ":") {
            host = text[..<colon]
            port = text[text.index(after: colon)...]
        }
        guard !host.isEmpty, !host.utf8.contains(0) else { throw invalid("the host is missing") }
        guard let number = UInt16(port), number > 0, !port.hasPrefix("+") else {
            throw invalid("the port must be a number from 1 to 65535")
        }
        return RedisHost(name: String(host), port: number)
    }

    private static func database(_ text: String) throws(RedisError) -> Int {
        guard let number = Int(text), number >= 0, number < 1 << 31, !text.hasPrefix("+") else {
            throw invalid("the database must be a number from 0")
        }
        return number
    }

    private static func percentDecoded(_ text: Substring) throws(RedisError) -> String {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard rest.count >= 2, let digits = String(validating: rest.prefix(2), as: UTF8.self),
                digits.utf8.allSatisfy({ Character(UnicodeScalar($0)).isHexDigit }),
                let value = UInt8(digits, radix: 16)
            else { throw invalid("a % in the login must be followed by two hexadecimal digits") }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        guard let decoded = String(validating: bytes, as: UTF8.self) else { throw invalid("the login is not UTF-8") }
        return decoded
    }
}
