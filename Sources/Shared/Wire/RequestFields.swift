internal import JSON

/// The fields of one request body, read in the order of the rules: null is absent, the last of duplicates wins.
struct RequestFields {
    private let body: JSONValue
    private(set) var ignored: [OptionalField] = []

    init(_ body: JSONValue) throws(WireError) {
        guard body.kind == .object else { throw WireError(.malformedJSON, "the body must be a JSON object") }
        self.body = body
    }

    func value(_ name: StaticString) -> JSONValue? {
        guard let value = body.member(named: name), !value.isNull else { return nil }
        return value
    }

    /// The values of required fields, or the first of them that is missing.
    func required(_ name: StaticString) throws(WireError) -> JSONValue {
        guard let value = value(name) else { throw .missing(name.description) }
        return value
    }

    /// A text that `accepts` takes; nil when absent or ignored.
    mutating func optional(_ field: OptionalField, _ name: StaticString, _ accepts: (String) -> Bool) -> String? {
        guard let value = value(name) else { return nil }
        if let text = value.string, accepts(text) { return text }
        ignored.append(field)
        return nil
    }

    static func userID(_ value: JSONValue) throws(WireError) -> String {
        guard let text = value.string, TextRules.isUserID(text) else {
            throw WireError(
                .invalidField,
                "appUserId must be a string of 1 to 255 bytes that names a user, without control characters",
                field: "appUserId")
        }
        return text
    }

    static func bundleID(_ value: JSONValue) throws(WireError) -> String {
        guard let text = value.string, TextRules.isBundleID(text) else {
            throw WireError(
                .invalidField,
                "bundleId must be 1 to 255 letters, digits, dots, hyphens or underscores, a letter or digit first",
                field: "bundleId")
        }
        return text
    }

    static func installID(_ value: JSONValue) throws(WireError) -> String {
        guard let text = value.string, TextRules.isUserID(text) else {
            throw WireError(
                .invalidField,
                "installId must be a string of 1 to 255 bytes that names an install, without control characters",
                field: "installId")
        }
        return text
    }

    static func originalTransactionID(_ value: JSONValue) throws(WireError) -> String {
        guard let text = value.string, TextRules.isOriginalTransactionID(text) else {
            throw WireError(
                .invalidField,
                "originalTransactionId must be a string of 1 to 4096 bytes without white space or control characters",
                field: "originalTransactionId")
        }
        return text
    }
}
