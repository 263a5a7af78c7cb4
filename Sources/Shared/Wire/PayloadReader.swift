internal import Bytes
internal import JSON

/// Reads one object of a queue payload, strictly: no member twice, none unknown, none of another type. Payloads are
/// ours, but operators edit them, and what the door would refuse must not come in behind it.
struct PayloadReader {
    private let object: JSONValue
    /// What stands before a member's name in errors: empty, or `verified.`.
    private let path: String

    init(_ object: JSONValue, path: String = "", members: [StaticString]) throws(WireError) {
        self.object = object
        self.path = path
        let place = path.isEmpty ? nil : String(path.dropLast())
        guard object.kind == .object else {
            throw WireError(place == nil ? .malformedJSON : .invalidField, "must be a JSON object", field: place)
        }
        guard !object.hasDuplicateMembers else {
            throw WireError(.invalidField, "the payload names a member twice", field: place)
        }
        var known = 0
        for name in members where object.member(named: name) != nil { known += 1 }
        // The names are unique on both sides, so equal counts mean that none is left over. The left-over one is not
        // named: errors echo nothing.
        guard known == object.count else {
            throw WireError(.invalidField, "the payload has an unknown member", field: place)
        }
    }

    static func root(of payload: [UInt8], using parser: JSONParser) throws(WireError) -> JSONValue {
        guard payload.count <= SDKLimits.payloadBytes else {
            throw WireError(.bodyTooLarge, "the payload is larger than \(SDKLimits.payloadBytes) bytes")
        }
        do {
            return try parser.parse(payload)
        } catch {
            throw WireError(error)
        }
    }

    func value(_ name: StaticString) -> JSONValue? { object.member(named: name) }

    func string(_ name: StaticString, _ accepts: (String) -> Bool) throws(WireError) -> String {
        guard let text = try optionalString(name, accepts) else { throw .missing(path + name.description) }
        return text
    }

    func optionalString(_ name: StaticString, _ accepts: (String) -> Bool) throws(WireError) -> String? {
        guard let value = value(name) else { return nil }
        guard let text = value.string, accepts(text) else { throw invalid(name) }
        return text
    }

    /// Standard base64.
    func base64(_ name: StaticString) throws(WireError) -> [UInt8] {
        guard let value = value(name) else { throw .missing(path + name.description) }
        guard let bytes = value.withStringBytes({ Base64.decode($0, .standard) }) ?? nil else { throw invalid(name) }
        return bytes
    }

    /// 32 bytes in hex.
    func digest(_ name: StaticString) throws(WireError) -> [UInt8] {
        let text = try string(name) { TextRules.isLowerHex($0, count: 64) }
        guard let bytes = Hex.decode(text) else { throw invalid(name) }
        return bytes
    }

    func integer(_ name: StaticString, in range: ClosedRange<Int64>) throws(WireError) -> Int64 {
        guard let number = try optionalInteger(name, in: range) else { throw .missing(path + name.description) }
        return number
    }

    func optionalInteger(
        _ name: StaticString, in range: ClosedRange<Int64> = .min ... .max
    ) throws(WireError) -> Int64? {
        guard let value = value(name) else { return nil }
        guard let number = value.int64, range.contains(number) else { throw invalid(name) }
        return number
    }

    func optionalBool(_ name: StaticString) throws(WireError) -> Bool? {
        guard let value = value(name) else { return nil }
        guard let bool = value.bool else { throw invalid(name) }
        return bool
    }

    func invalid(_ name: StaticString) -> WireError {
        WireError(.invalidField, "\(path)\(name) is not valid", field: path + name.description)
    }
}

extension JSONWriter {
    /// A member, left out when nil.
    mutating func member(_ name: StaticString, _ value: String?) {
        guard let value else { return }
        key(name)
        string(value)
    }

    mutating func member(_ name: StaticString, _ value: Int64?) {
        guard let value else { return }
        key(name)
        int(value)
    }

    mutating func member(_ name: StaticString, _ value: Bool?) {
        guard let value else { return }
        key(name)
        bool(value)
    }
}
