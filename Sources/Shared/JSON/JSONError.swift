/// Why bytes are not the JSON that was asked for. No text of the input is kept: it goes back to strangers.
package struct JSONError: Error, Equatable, Sendable {
    /// What is wrong. Only `outOfMemory` can change when the same bytes are read again.
    package enum Code: Equatable, Sendable {
        /// Not one JSON text (RFC 8259) in UTF-8: grammar, control characters, escapes, surrogates, trailing bytes.
        case malformed
        /// More containers in each other than the reader allows.
        case tooDeep
        /// Well formed, but a string or a key holds U+0000, which Postgres can't store.
        case nulCharacter
        /// Well formed, but an object names a member twice, where that was refused.
        case duplicateMember
        case outOfMemory
        /// Well formed, but not of the shape that the reader of the document wants.
        case unexpectedShape
    }

    package let code: Code
    /// What the text is, fit to be shown to the sender after "the body is".
    package let message: String

    package init(_ message: String, code: Code = .unexpectedShape) {
        self.code = code
        self.message = message
    }

    package init(_ code: Code) {
        self.code = code
        self.message =
            switch code {
            case .malformed: "not valid JSON"
            case .tooDeep: "JSON nested too deeply"
            case .nulCharacter: "JSON with U+0000 in a string"
            case .duplicateMember: "JSON that names a member twice"
            case .outOfMemory: "out of memory while reading JSON"
            case .unexpectedShape: "JSON of another shape than expected"
            }
    }
}
