internal import Bytes
package import JSON

/// An answer as a tree, from which each face makes its own form: the command line aligned text or JSON, the console
/// pages. Names are camelCase; members keep their order.
package indirect enum Document: Equatable, Sendable {
    case null
    case bool(Bool)
    case int(Int64)
    case string(String)
    /// The text of one JSON value, kept as it is: numbers of any size stay exact.
    case json(String)
    case list([Document])
    case object([Member])

    package struct Member: Equatable, Sendable {
        package let name: String
        package let value: Document

        package init(_ name: String, _ value: Document) {
            self.name = name
            self.value = value
        }
    }

    /// An object with these members, in this order.
    package static func members(_ pairs: KeyValuePairs<String, Document>) -> Document {
        .object(pairs.map { Member($0.key, $0.value) })
    }

    /// A text, or null.
    package static func text(_ value: String?) -> Document { value.map { .string($0) } ?? .null }

    /// RFC 3339 with milliseconds, or null.
    package static func time(milliseconds: Int64?) -> Document {
        milliseconds.map { .string(Timestamps.rfc3339(milliseconds: $0)) } ?? .null
    }

    /// RFC 3339 with milliseconds, cut, or null.
    package static func time(microseconds: Int64?) -> Document {
        time(milliseconds: microseconds.map { $0 >= 0 ? $0 / 1000 : ($0 - 999) / 1000 })
    }

    /// A copy of a value that a parser holds, numbers as they stood.
    package init(_ value: JSONValue) {
        switch value.kind {
        case .null: self = .null
        case .bool: self = .bool(value.bool ?? false)
        case .number: self = .json(value.rawNumber ?? "0")
        case .string: self = .string(value.string ?? "")
        case .array: self = .list(value.elements.map { Document($0) })
        case .object: self = .object(value.members.map { Member($0.key.string ?? "", Document($0.value)) })
        }
    }

    /// The value of a member; nil when this is no object or has none of that name.
    package subscript(_ name: String) -> Document? {
        guard case .object(let members) = self else { return nil }
        return members.first { $0.name.utf8.elementsEqual(name.utf8) }?.value
    }

    /// The text of a string; nil for anything else.
    package var string: String? {
        if case .string(let value) = self { value } else { nil }
    }

    /// The elements of a list; none for anything else.
    package var elements: [Document] {
        if case .list(let elements) = self { elements } else { [] }
    }

    /// The objects with more members at their end; anything else is returned as it is.
    package func adding(_ pairs: KeyValuePairs<String, Document>) -> Document {
        guard case .object(let members) = self else { return self }
        return .object(members + pairs.map { Member($0.key, $0.value) })
    }
}
