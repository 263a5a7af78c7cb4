internal import JSON

extension Document {
    /// JSON text, indented by two spaces a level, with a line feed at the end. What a terminal could take for a command
    /// is escaped, which changes nothing for a reader of JSON.
    package var jsonText: String {
        var text = ""
        append(to: &text, indentation: 0)
        return text + "\n"
    }

    private func append(to text: inout String, indentation: Int) {
        switch self {
        case .null: text += "null"
        case .bool(let value): text += value ? "true" : "false"
        case .int(let value): text += String(value)
        case .string(let value): text += Self.escaped(JSONWriter.quoted(value))
        case .json(let value): text += Self.escaped(value)
        case .list(let elements):
            Self.append(elements, between: ("[", "]"), to: &text, indentation) { element, text in
                element.append(to: &text, indentation: indentation + 1)
            }
        case .object(let members):
            Self.append(members, between: ("{", "}"), to: &text, indentation) { member, text in
                text += Self.escaped(JSONWriter.quoted(member.name)) + ": "
                member.value.append(to: &text, indentation: indentation + 1)
            }
        }
    }

    private static func append<Element>(
        _ elements: [Element], between brackets: (String, String), to text: inout String, _ indentation: Int,
        each: (Element, inout String) -> Void
    ) {
        text += brackets.0
        for (index, element) in elements.enumerated() {
            text += (index == 0 ? "\n" : ",\n") + String(repeating: "  ", count: indentation + 1)
            each(element, &text)
        }
        if !elements.isEmpty { text += "\n" + String(repeating: "  ", count: indentation) }
        text += brackets.1
    }

    /// In valid JSON these characters stand only inside strings, where `\u` is allowed.
    private static func escaped(_ json: String) -> String {
        guard json.unicodeScalars.contains(where: SafeText.isUnsafe) else { return json }
        var text = ""
        for scalar in json.unicodeScalars {
            if SafeText.isUnsafe(scalar) {
                let digits = String(scalar.value, radix: 16)
                text += "\\u" + String(repeating: "0", count: max(0, 4 - digits.count)) + digits
            } else {
                text.unicodeScalars.append(scalar)
            }
        }
        return text
    }
}
