internal import JSON

/// The fields of one request body, read in the order of the rules: null is absent, the last of duplicates wins. Lent for
/// the length of a call, as its nodes are.
struct RequestFields {
    /// Every field of any call; the names are those of the requests.
    enum Field: Int, CaseIterable {
        case appUserId, bundleId, attributes, platform, osVersion, deviceModel, locale, installId
        case originalTransactionId, productId, jws
        case token, appVersion, storefront, environment
        case keyId, attestation, challenge

        var name: String { String(describing: self) }
    }

    private static let names = JSONNames(Field.allCases.map(\.name))

    private let fields: JSONFields
    private(set) var ignored: [OptionalField] = []

    init(_ body: JSONNode) throws(WireError) {
        guard body.isObject else { throw WireError(.malformedJSON, "the body must be a JSON object") }
        fields = JSONFields(body, Self.names)
    }

    func value(_ field: Field) -> JSONNode? {
        guard let value = fields[field.rawValue], !value.isNull else { return nil }
        return value
    }

    /// The values of required fields, or the first of them that is missing.
    func required(_ field: Field) throws(WireError) -> JSONNode {
        guard let value = value(field) else { throw .missing(field.name) }
        return value
    }

    /// A text that `accepts` takes; nil when absent or ignored.
    mutating func optional(_ field: OptionalField, _ accepts: (UnsafeBufferPointer<UInt8>) -> Bool) -> String? {
        guard let value = value(field.place) else { return nil }
        if value.isString, accepts(value.bytes) { return value.string }
        ignored.append(field)
        return nil
    }

    /// The same for a field whose text is of no use.
    mutating func check(_ field: OptionalField, _ accepts: (UnsafeBufferPointer<UInt8>) -> Bool) {
        guard let value = value(field.place) else { return }
        if !value.isString || !accepts(value.bytes) { ignored.append(field) }
    }

    static func userID(_ value: JSONNode) throws(WireError) -> String {
        guard value.isString, TextRules.isUserID(value.bytes), let text = value.string else {
            throw WireError(
                .invalidField,
                "appUserId must be a string of 1 to 255 bytes that names a user, without control characters",
                field: "appUserId")
        }
        return text
    }

    static func bundleID(_ value: JSONNode) throws(WireError) -> String {
        guard value.isString, TextRules.isBundleID(value.bytes), let text = value.string else {
            throw WireError(
                .invalidField,
                "bundleId must be 1 to 255 letters, digits, dots, hyphens or underscores, a letter or digit first",
                field: "bundleId")
        }
        return text
    }

    static func installID(_ value: JSONNode) throws(WireError) -> String {
        guard value.isString, TextRules.isUserID(value.bytes), let text = value.string else {
            throw WireError(
                .invalidField,
                "installId must be a string of 1 to 255 bytes that names an install, without control characters",
                field: "installId")
        }
        return text
    }

    static func originalTransactionID(_ value: JSONNode) throws(WireError) -> String {
        guard value.isString, TextRules.isOriginalTransactionID(value.bytes), let text = value.string else {
            throw WireError(
                .invalidField,
                "originalTransactionId must be a string of 1 to 4096 bytes without white space or control characters",
                field: "originalTransactionId")
        }
        return text
    }
}

extension OptionalField {
    fileprivate var place: RequestFields.Field {
        switch self {
        case .platform: .platform
        case .osVersion: .osVersion
        case .deviceModel: .deviceModel
        case .locale: .locale
        case .productId: .productId
        case .jws: .jws
        case .installId: .installId
        case .appVersion: .appVersion
        case .storefront: .storefront
        case .environment: .environment
        }
    }
}
