extension Settings {
    /// One `NAME=value` line a setting with where it comes from, for people; secrets are hidden.
    package var listing: String {
        let width = effective.map(\.entry.name.utf8.count).max() ?? 0
        return effective.map { setting in
            let padding = String(repeating: " ", count: width - setting.entry.name.utf8.count)
            let unit = setting.entry.unit.isEmpty || setting.shownValue == nil ? "" : " \(setting.entry.unit)"
            return
                "\(setting.entry.name)\(padding)  \(setting.shownValue ?? "-")\(unit)  (\(setting.source.rawValue))\n"
        }.joined()
    }

    /// The same as a JSON array: name, value (a string or null), unit, source, secret, meaning.
    package var listingJSON: String {
        var json = JSONText()
        json.raw("[")
        for (index, setting) in effective.enumerated() {
            json.raw(index == 0 ? "\n" : ",\n")
            json.raw("  {\"name\":")
            json.string(setting.entry.name)
            json.raw(",\"value\":")
            if let value = setting.shownValue { json.string(value) } else { json.raw("null") }
            json.raw(",\"unit\":")
            json.string(setting.entry.unit)
            json.raw(",\"source\":")
            json.string(setting.source.rawValue)
            json.raw(",\"secret\":")
            json.flag(setting.entry.isSecret)
            json.raw(",\"meaning\":")
            json.string(setting.entry.meaning)
            json.raw("}")
        }
        json.raw("\n]\n")
        return json.text
    }

    /// The text of deploy/env.example: every setting with its meaning, unit, rule, default and readers; commented out
    /// but for the secret and the addresses, which differ from site to site. Fit for a shell and for systemd's
    /// EnvironmentFile.
    package static var exampleFile: String {
        var text = """
            # Settings of Ratchet: copy to /etc/ratchet/env (mode 0640, owner root, group ratchet) and fill in.
            # A line with # in front shows the default. An empty value counts as absent.
            # Generated from the table of settings in Sources/Shared/Service/SettingsTable.swift; a test holds the two equal.

            """
        for line in SettingsTable.lines {
            switch line {
            case .topic(let title): text += "\n# \(title)\n"
            case .entry(let entry): text += example(of: entry)
            }
        }
        return text
    }

    private static func example(of entry: SettingEntry) -> String {
        let readers = ServiceProcess.allCases.filter(entry.readers.contains).map(\.rawValue)
        let unit = entry.unit.isEmpty ? "" : " Unit: \(entry.unit)."
        let (value, standard) = defaultTexts(of: entry)
        return """

            # \(entry.meaning.prefix(1).uppercased())\(entry.meaning.dropFirst()).
            # Must be \(entry.rule).\(unit) Default: \(standard).
            # Read by: \(readers.joined(separator: ", ")).
            \(entry.isSecret ? "" : "#")\(entry.name)=\(value)

            """
    }

    /// What stands behind the `=`, and the words for the default.
    private static func defaultTexts(of entry: SettingEntry) -> (value: String, words: String) {
        switch entry.defaultValue {
        case .none: ("", entry.neededInProduction ? "none, needed outside development" : "none")
        case .same(let text): (quoted(text), text)
        case .measured(let words, _): ("", words)
        case .byMode(let production, let development):
            (production.map(quoted) ?? "", "\(production ?? "none"); in development \(development ?? "none")")
        }
    }

    /// In double quotes when a shell would split the value.
    private static func quoted(_ text: String) -> String {
        text.utf8.contains(UInt8(ascii: " ")) ? "\"\(text)\"" : text
    }
}
