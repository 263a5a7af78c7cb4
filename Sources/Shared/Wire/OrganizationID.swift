/// The short name of an organization: `[a-z0-9][a-z0-9_-]{0,62}`. It stands between `|` in job headers, in Redis keys
/// and in command lines, so nothing that means something there is taken.
package struct OrganizationID: Hashable, Sendable, CustomStringConvertible {
    package let text: String

    /// Nil when the text is outside the rule.
    package init?(_ text: String) {
        let bytes = text.utf8
        guard let first = bytes.first, TextRules.isLowerAlphanumeric(first),
            bytes.count <= SDKLimits.organizationIDBytes,
            bytes.allSatisfy({
                TextRules.isLowerAlphanumeric($0) || $0 == UInt8(ascii: "_") || $0 == UInt8(ascii: "-")
            })
        else { return nil }
        self.text = text
    }

    package var description: String { text }
}
