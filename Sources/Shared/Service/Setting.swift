internal import Glibc

/// One entry of the table of settings: where a value comes from, what it may be, and what it is for.
///
/// Only `SettingsTable` makes them.
package struct Setting<Value: Sendable>: Sendable {
    let entry: SettingEntry
    /// The value of a text, or of no text at all; nil when it breaks the rule.
    let read: @Sendable (String?) -> Value?
}

/// What every setting has, whatever its type.
package struct SettingEntry: Sendable {
    /// The environment variable.
    package let name: String
    /// What a number counts; empty when the value isn't a number.
    package let unit: String
    /// The value when the variable is absent or empty.
    package let defaultValue: SettingDefault
    /// Who looks at it.
    package let readers: Set<ServiceProcess>
    /// What it is for, one line.
    package let meaning: String
    /// What a value must be, to follow "must be".
    package let rule: String
    /// A value that keeps the rule.
    package let example: String
    /// What of the value must not be shown.
    let secrecy: SettingSecrecy
    /// Outside development the processes that read it refuse to start without a value.
    package let neededInProduction: Bool

    package var isSecret: Bool { secrecy != .open }
}

/// What part of a value is kept out of listings, logs and error messages.
enum SettingSecrecy: Sendable {
    case open
    /// The value is a secret as a whole.
    case hidden
    /// The value is an address that may hold a password.
    case address
}

/// The value that holds when a variable is absent or empty.
package enum SettingDefault: Sendable {
    case none
    case same(String)
    /// `$RATCHET_DATA` at any place stands for that setting's value.
    case byMode(production: String?, development: String?)
    /// Found out on the machine; the text tells a reader how.
    case measured(String, @Sendable () -> String)

    func text(mode: Mode) -> String? {
        switch self {
        case .none: nil
        case .same(let text): text
        case .byMode(let production, let development): mode == .production ? production : development
        case .measured(_, let measure): measure()
        }
    }
}

extension SettingDefault: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
    package init(stringLiteral value: String) { self = .same(value) }
    package init(integerLiteral value: Int) { self = .same(String(value)) }
}

/// A heading of the table.
struct SettingTopic: Sendable {
    let title: String
    init(_ title: String) { self.title = title }
}

/// The table's view of a setting whose type it doesn't know.
protocol AnySetting: Sendable {
    var entry: SettingEntry { get }
    /// The value of a text or of none; nil when it breaks the rule.
    func value(of text: String?) -> (any Sendable)?
}

extension Setting: AnySetting {
    func value(of text: String?) -> (any Sendable)? {
        guard let value = read(text) else { return nil }
        return value
    }
}

// MARK: - Kinds of values

extension Setting {
    /// Any kind: `parse` answers nil for a text that breaks the rule; a missing text breaks it too.
    static func parsed(
        _ name: String, unit: String = "", _ rule: String, example: String, default defaultValue: SettingDefault,
        readBy readers: Set<ServiceProcess>, secrecy: SettingSecrecy = .open, _ meaning: String,
        parse: @escaping @Sendable (String) -> Value?
    ) -> Setting {
        Setting(
            entry: SettingEntry(
                name: name, unit: unit, defaultValue: defaultValue, readers: readers, meaning: meaning, rule: rule,
                example: example, secrecy: secrecy, neededInProduction: false),
            read: { $0.flatMap(parse) })
    }

    /// Like `parsed`, but without a text there simply is no value.
    static func optional<Wrapped>(
        _ name: String, _ rule: String, example: String, readBy readers: Set<ServiceProcess>,
        secrecy: SettingSecrecy = .open, neededInProduction: Bool = false, _ meaning: String,
        parse: @escaping @Sendable (String) -> Wrapped?
    ) -> Setting where Value == Wrapped? {
        Setting(
            entry: SettingEntry(
                name: name, unit: "", defaultValue: .none, readers: readers, meaning: meaning, rule: rule,
                example: example, secrecy: secrecy, neededInProduction: neededInProduction),
            read: { text in
                guard let text else { return .some(nil) }
                guard let value = parse(text) else { return nil }
                return .some(value)
            })
    }
}

extension Setting where Value == Int {
    /// A whole number in decimal digits without sign or leading zeros.
    static func integer(
        _ name: String, unit: String, _ range: ClosedRange<Int>, default defaultValue: SettingDefault,
        readBy readers: Set<ServiceProcess>, _ meaning: String
    ) -> Setting {
        let example = defaultValue.text(mode: .production) ?? String(range.lowerBound)
        return .parsed(
            name, unit: unit, "a whole number from \(range.lowerBound) to \(range.upperBound)", example: example,
            default: defaultValue, readBy: readers, meaning
        ) { wholeNumber($0).flatMap { range.contains($0) ? $0 : nil } }
    }

    static func wholeNumber(_ text: String) -> Int? {
        let digits = Array(text.utf8)
        guard !digits.isEmpty, digits.count == 1 || digits[0] != 0x30, digits.allSatisfy({ (0x30...0x39).contains($0) })
        else {
            return nil
        }
        return Int(text)
    }
}

extension Setting where Value: RawRepresentable & CaseIterable, Value.RawValue == String {
    /// One of the type's names, written exactly so.
    static func choice(
        _ name: String, default defaultValue: SettingDefault, readBy readers: Set<ServiceProcess>, _ meaning: String
    ) -> Setting {
        let names = Value.allCases.map(\.rawValue)
        let rule = "one of " + names.joined(separator: ", ")
        return .parsed(name, rule, example: names[0], default: defaultValue, readBy: readers, meaning) { text in
            Value.allCases.first { $0.rawValue.utf8.elementsEqual(text.utf8) }
        }
    }
}

extension Setting where Value == Bool {
    /// `1` or `0`; `0` by default.
    static func flag(_ name: String, readBy readers: Set<ServiceProcess>, _ meaning: String) -> Setting {
        .parsed(name, "0 or 1", example: "1", default: "0", readBy: readers, meaning) {
            $0 == "1" ? true : $0 == "0" ? false : nil
        }
    }
}

/// Paths of settings.
enum SettingPath {
    static let rule = "a path without quotes, backslashes and control characters, at most 1024 bytes"

    /// The path, made absolute against the working directory.
    static func absolute(_ text: String) -> String? {
        guard (1...1024).contains(text.utf8.count),
            text.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F && $0 != 0x22 && $0 != 0x27 && $0 != 0x5C })
        else { return nil }
        if text.utf8.first == UInt8(ascii: "/") { return text }
        guard let working = getcwd(nil, 0) else { return nil }
        defer { free(working) }
        let folder = String(cString: working)
        return folder + (folder == "/" ? "" : "/") + text
    }
}
