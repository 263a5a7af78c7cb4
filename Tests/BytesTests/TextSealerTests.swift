import Bytes
import Testing

@Suite struct TextSealerTests {
    private let secret = Array("one secret of at least thirty-two bytes".utf8)
    private let context = Array("demo\u{0}com.example.app".utf8)

    @Test(arguments: [0, 1, 15, 16, 17, 560, 4096]) func whatIsSealedOpensInItsContextAlone(length: Int) {
        let sealer = TextSealer(secret: secret, purpose: "test")
        let text = (0..<length).map { UInt8(truncatingIfNeeded: $0) }
        let sealed = sealer.seal(text, context: context)
        #expect(sealed.count == length + TextSealer.overheadBytes)
        #expect(sealer.open(sealed, context: context) == text)
        #expect(sealer.open(sealed, context: context + [0]) == nil)
        #expect(sealer.open(sealed, context: []) == nil)
        #expect(TextSealer(secret: secret, purpose: "other").open(sealed, context: context) == nil)
        #expect(TextSealer(secret: secret.reversed(), purpose: "test").open(sealed, context: context) == nil)
    }

    @Test func noTwoAreAlikeAndNoBitCanBeChanged() {
        let sealer = TextSealer(secret: secret, purpose: "test")
        let text = Array("a token".utf8)
        let sealed = sealer.seal(text, context: context)
        #expect(sealer.seal(text, context: context) != sealed)
        for index in sealed.indices {
            for bit in 0..<8 {
                var bent = sealed
                bent[index] ^= 1 << UInt8(bit)
                #expect(sealer.open(bent, context: context) == nil, "bit \(bit) of byte \(index)")
            }
        }
        for length in 0..<sealed.count { #expect(sealer.open(Array(sealed.prefix(length)), context: context) == nil) }
        #expect(sealer.open(sealed + [0], context: context) == nil)
    }
}
