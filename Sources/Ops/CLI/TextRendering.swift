internal import Bytes
internal import OpsCore

/// Documents as aligned text for people. What comes from outside is escaped: it can't command the terminal.
struct TextRendering: Sendable {
    /// See `Answer.columns`.
    var columns: [String: [String]] = [:]
    /// What an empty list at the top says.
    var empty = "none"

    func text(_ document: Document) -> String {
        switch document {
        case .object(let members): lines(members).map { $0 + "\n" }.joined()
        case .list(let elements) where elements.isEmpty: empty + "\n"
        case .list(let elements): table(elements, columns[""]).map { $0 + "\n" }.joined()
        default: cell(document) + "\n"
        }
    }

    /// One line a member, the values in one column; lists and objects follow their name, indented.
    private func lines(_ members: [Document.Member]) -> [String] {
        let width = members.map { SafeText.escaped($0.name).count }.max() ?? 0
        var lines: [String] = []
        for member in members {
            let name = SafeText.escaped(member.name)
            let nested: [String]
            switch member.value {
            case .object(let inner) where !inner.isEmpty: nested = self.lines(inner)
            case .list(let elements) where elements.contains(where: Self.isObject):
                nested = table(elements, columns[member.name])
            default:
                lines.append(Self.padded(name, width) + "  " + value(member))
                continue
            }
            lines.append(name)
            lines += nested.map { "  " + $0 }
        }
        return lines
    }

    private func value(_ member: Document.Member) -> String {
        // Apple's dates are milliseconds, which nobody reads.
        if member.name.hasSuffix("Date"), case .json(let number) = member.value, let date = Int64(number) {
            return "\(number) (\(Timestamps.rfc3339(milliseconds: date)))"
        }
        return cell(member.value)
    }

    private static func isObject(_ document: Document) -> Bool {
        if case .object = document { true } else { false }
    }

    private func cell(_ document: Document) -> String {
        switch document {
        case .null: "-"
        case .bool(let value): value ? "yes" : "no"
        case .int(let value): String(value)
        case .string(let value): value.isEmpty ? "\"\"" : SafeText.escaped(value)
        case .json(let value): SafeText.escaped(value)
        case .list(let elements): elements.isEmpty ? "none" : elements.map(cell).joined(separator: ", ")
        case .object(let members):
            members.isEmpty
                ? "none"
                : members.map { "\(SafeText.escaped($0.name))=\(cell($0.value))" }.joined(separator: ", ")
        }
    }

    /// A line of headings and one line an element; numbers stand to the right.
    private func table(_ elements: [Document], _ chosen: [String]?) -> [String] {
        let names = chosen ?? Self.names(of: elements)
        let rows = elements.map { element in names.map { element[$0] ?? .null } }
        let cells = rows.map { $0.map(cell) }
        let headings = names.map(SafeText.escaped)
        let widths = names.indices.map { column in
            ([headings[column].count] + cells.map { $0[column].count }).max() ?? 0
        }
        let numeric = names.indices.map { column in
            let values = rows.map { $0[column] }.filter { $0 != .null }
            return !values.isEmpty
                && values.allSatisfy { value in
                    if case .int = value { true } else { false }
                }
        }
        return ([headings] + cells).map { row in
            let line = row.indices.map { column in
                numeric[column]
                    ? Self.padding(row[column], widths[column]) + row[column] : Self.padded(row[column], widths[column])
            }.joined(separator: "  ")
            return String(line.reversed().drop { $0 == " " }.reversed())
        }
    }

    private static func names(of elements: [Document]) -> [String] {
        guard case .object(let members)? = elements.first else { return [] }
        return members.map(\.name)
    }

    private static func padding(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count))
    }

    private static func padded(_ text: String, _ width: Int) -> String { text + padding(text, width) }
}
