/// Why bytes are not the JSON that was asked for. No text of the input is kept: it goes back to strangers.
package struct JSONError: Error, Equatable, Sendable {
    package let message: String
    package init(_ message: String) { self.message = message }
}
