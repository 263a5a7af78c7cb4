/// A reader of bytes that strangers send, and what must hold whatever the bytes are. Fuzzed by `make fuzz`; what that
/// keeps in Tests/Fuzz/Corpus is replayed by FuzzCorpusTests in every run of the tests.
package struct FuzzTarget: Sendable, CustomStringConvertible {
    /// The name of its folder in the corpus.
    package let name: String
    /// The longest input that the fuzzer makes: enough to pass every bound that matters, as longer is slower.
    package let maximumBytes: Int
    /// Judges one input. Throws what the bytes broke; traps where the product would have trapped.
    package let check: @Sendable ([UInt8]) throws(BrokenProperty) -> Void

    package var description: String { name }

    package static let all: [FuzzTarget] = [.attestation, .base64, .cbor, .http, .json, .jws, .wire]
}

/// A claim that an input has proven wrong.
package struct BrokenProperty: Error, CustomStringConvertible {
    package let description: String
    package init(_ description: String) { self.description = description }
}

/// Throws unless the claim holds.
func require(_ holds: Bool, _ claim: @autoclosure () -> String) throws(BrokenProperty) {
    if !holds { throw BrokenProperty(claim()) }
}
