internal import CLinux

/// The configuration of a process, read from the environment once, at boot, and valid as a whole.
///
/// `settings.ingressPort` and its like are the properties of `SettingsTable`; what each means stands there. Reading one
/// looks it up by name: take what a hot path needs out of it beforehand.
@dynamicMemberLookup
package struct Settings: Sendable {
    /// A variable that starts like ours and is none of ours.
    package struct UnknownName: Equatable, Sendable {
        package let name: String
        /// The known name that is closest to it, if one is close at all.
        package let nearest: String?
    }

    /// One setting as it holds in this process.
    package struct Effective: Sendable {
        package enum Source: String, Sendable {
            case environment
            case standard = "default"
        }
        package let entry: SettingEntry
        /// Nil when there is none. Secrets are replaced: by `(hidden)` as a whole, or by `***` inside an address.
        package let shownValue: String?
        package let source: Source
    }

    /// Who the settings were read for.
    package let process: ServiceProcess
    /// Worth a warning: a misspelt name leaves a default in force.
    package let unknownNames: [UnknownName]
    /// Every setting, in the order of the table, fit to be shown.
    package let effective: [Effective]
    private let values: [String: any Sendable]

    /// Variables that start with RATCHET_ and are read elsewhere than in the processes: by the tests and by the
    /// development stack.
    private static let readElsewhere: Set<String> = [
        "RATCHET_BIN_DIR", "RATCHET_SHARED", "RATCHET_SUPERVISED", "RATCHET_WRITE_EXAMPLE",
    ]
    static let prefix = "RATCHET_"

    /// Reads and checks everything, also what this process doesn't use, so that a mistake shows at the first start.
    /// - Parameters:
    ///   - environment: variables by name; an empty value counts as absent.
    ///   - process: decides which values are needed.
    /// - Throws: `.configuration` with one line for each bad value: the variable, its rule, an example.
    package init(environment: [String: String], for process: ServiceProcess) throws(ServiceError) {
        let given = environment.filter { $0.key.utf8.starts(with: Self.prefix.utf8) && !$0.value.isEmpty }
        let table = SettingsTable.shared
        var reader = Reader(given: given)
        // The defaults of the others depend on these two.
        let mode = table.mode.read(given[table.mode.entry.name] ?? Mode.production.rawValue)
        reader.mode = mode ?? .production
        reader.dataFolder =
            reader.text(table.dataFolder.entry).flatMap { table.dataFolder.read($0) } ?? ""
        for setting in SettingsTable.settings { reader.read(setting) }
        // A mode that can't be read is problem enough.
        if mode == .production { reader.findMissing(for: process) }
        self.process = process
        values = reader.values
        effective = reader.effective
        unknownNames = Self.unknownNames(in: environment)
        if reader.problems.isEmpty { reader.problems = Self.conflicts(self) }
        guard reader.problems.isEmpty else {
            throw ServiceError(.configuration, reader.problems.joined(separator: "\n"))
        }
    }

    /// The value of a setting.
    package subscript<Value>(dynamicMember path: KeyPath<SettingsTable, Setting<Value>>) -> Value {
        // The table's own entry made the value, so it has the entry's type, and every entry was read in `init`.
        values[SettingsTable.shared[keyPath: path].entry.name] as! Value
    }

    /// The environment of this process. Nothing in it calls setenv, so reading it needs no lock.
    package static func processEnvironment() -> [String: String] {
        var environment: [String: String] = [:]
        var index: Int32 = 0
        while let entry = clinux_environment(index) {
            index += 1
            let text = String(cString: entry)
            guard let equals = text.firstIndex(of: "=") else { continue }
            let name = String(text[..<equals])
            // Of two entries with one name the first holds, as for getenv.
            if environment[name] == nil { environment[name] = String(text[text.index(after: equals)...]) }
        }
        return environment
    }

    /// Rules that look at more than one value.
    private static func conflicts(_ settings: Settings) -> [String] {
        var problems: [String] = []
        if settings.extraAppleRoots != nil, settings.mode != .development {
            problems.append(
                "RATCHET_EXTRA_APPLE_ROOTS must not be set unless RATCHET_MODE=development: it makes forged purchases"
                    + " count as Apple's")
        }
        if settings.durability == .replicated, settings.replicas == 0 {
            problems.append(
                "RATCHET_REPLICAS must be 1 or more when RATCHET_DURABILITY=replicated, for example RATCHET_REPLICAS=2")
        }
        if settings.mode != .development {
            if settings.adServicesTimeScale != 1 {
                problems.append(
                    "RATCHET_ADSERVICES_TIME_SCALE must be 1 unless RATCHET_MODE=development: tokens would expire early"
                )
            }
            if !settings.adServicesURL.utf8.starts(with: "https://".utf8) {
                problems.append(
                    "RATCHET_ADSERVICES_URL must be https:// unless RATCHET_MODE=development, for example"
                        + " RATCHET_ADSERVICES_URL=https://api-adservices.apple.com/api/v1/")
            }
        }
        return problems
    }

    private static func unknownNames(in environment: [String: String]) -> [UnknownName] {
        let known = SettingsTable.settings.map(\.entry.name)
        let unknown = environment.keys.filter {
            $0.utf8.starts(with: prefix.utf8) && !known.contains($0) && !readElsewhere.contains($0)
        }
        return unknown.sorted().map { UnknownName(name: $0, nearest: nearest(to: $0, among: known)) }
    }

    /// The closest name by edits, if no more than a third of what follows the prefix would have to change; otherwise one
    /// that goes on where this one ends (a forgotten unit).
    static func nearest(to name: String, among known: [String]) -> String? {
        // Long names can't be close, and comparing them would cost the product of the lengths.
        guard name.utf8.count <= 100 else { return nil }
        let tail = Array(name.utf8.dropFirst(prefix.utf8.count))
        let measured = known.map {
            (name: $0, edits: EditDistance.between(tail, Array($0.utf8.dropFirst(prefix.utf8.count))))
        }
        guard let best = measured.min(by: { $0.edits < $1.edits }), best.edits <= max(2, tail.count / 3) else {
            return tail.isEmpty ? nil : known.first { $0.utf8.starts(with: name.utf8) }
        }
        return best.name
    }
}

/// Gathers values and problems, setting by setting.
private struct Reader {
    let given: [String: String]
    var mode = Mode.production
    var dataFolder = ""
    var values: [String: any Sendable] = [:]
    var effective: [Settings.Effective] = []
    var problems: [String] = []

    init(given: [String: String]) { self.given = given }

    func text(_ entry: SettingEntry) -> String? {
        given[entry.name]
            ?? entry.defaultValue.text(mode: mode)?.replacing("$RATCHET_DATA", with: dataFolder)
    }

    mutating func read(_ setting: any AnySetting) {
        let entry = setting.entry
        let text = text(entry)
        guard let value = setting.value(of: text) else {
            problems.append("\(entry.name) must be \(entry.rule), for example \(entry.example)\(quoted(text, entry))")
            return
        }
        values[entry.name] = value
        let shown: String? = text.map { text in
            switch entry.secrecy {
            case .open: text
            case .hidden: "(hidden)"
            case .address: AddressText.masked(text)
            }
        }
        effective.append(
            Settings.Effective(
                entry: entry, shownValue: shown, source: given[entry.name] == nil ? .standard : .environment))
    }

    mutating func findMissing(for process: ServiceProcess) {
        for entry in SettingsTable.settings.map(\.entry)
        where entry.neededInProduction && entry.readers.contains(process) && given[entry.name] == nil {
            problems.append(
                "\(entry.name) is needed outside development and must be \(entry.rule), for example \(entry.example)")
        }
    }

    /// What was given, so that a stray blank or quote is seen; never of a value that may hold a secret.
    private func quoted(_ text: String?, _ entry: SettingEntry) -> String {
        guard let text, !entry.isSecret else { return "" }
        var json = JSONText()
        json.string(text, limit: 100)
        return "; it is \(json.text)"
    }
}
