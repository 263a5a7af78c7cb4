package import Service

extension Document {
    /// The settings in force: name, value (a string or null), unit (or null), source, secret, meaning. Secrets are hidden.
    package init(_ settings: Settings) {
        self = .list(
            settings.effective.map { setting in
                .members([
                    "name": .string(setting.entry.name), "value": .text(setting.shownValue),
                    "unit": .text(setting.entry.unit.isEmpty ? nil : setting.entry.unit),
                    "source": .string(setting.source.rawValue),
                    "secret": .bool(setting.entry.isSecret), "meaning": .string(setting.entry.meaning),
                ])
            })
    }
}
