import Bytes
import FuzzTargets
import JSON
import TestSupport
import Testing
import Wire

@Suite struct FuzzTests {
    private static let seeds = [
        Fixture.identify, Fixture.attribute, Fixture.identify(attributes: #"{"a":1,"a":-1.5e+3,"é":"\ud83d\ude00\n"}"#),
        #"[[],{},[{"a":[null,true,false,0,-0,1e400,"\u0041\"\\"]}], "x" ]"#,
    ]
    private static let tokens =
        [
            "{", "}", "[", "]", ":", ",", "\"", "\\", "\\u", "\\ud800", "\\udc00", "\\u0000", "0", "-", "e5", ".", "1",
            "null",
            "true", "fals", " ", "\n", "\u{1}", "é", "\u{feff}", "\"a\"", "/", "{\"a\":", "[[[[", "]]",
        ].map { Array($0.utf8) } + [[0xff], [0xed, 0xa0, 0x80], [0xc2], [0x80], [0]]

    @Test func noPrefixOfABodyIsABody() {
        let parser = JSONParser()
        for seed in Self.seeds {
            let bytes = Array(seed.utf8)
            for length in 0..<bytes.count {
                #expect(throws: JSONError(.malformed)) { try parser.parse(Array(bytes[..<length])) }
            }
            #expect(throws: Never.self) { try parser.parse(bytes) }
        }
    }

    @Test func mutatedBodiesAreJudgedLikeTheGrammar() {
        var random = SeededGenerator(seed: 2)
        let parser = JSONParser()
        var taken = 0
        for round in 0..<30_000 {
            let body = mutant(of: Array(Self.seeds[round % Self.seeds.count].utf8), using: &random)
            var accepted = false
            var nul = false
            do {
                _ = try parser.parse(body)
                accepted = true
            } catch {
                nul = error.code == .nulCharacter
            }
            let expected = JSONGrammar.accepts(body, maximumDepth: JSONParser.defaultMaxDepth)
            #expect((accepted || nul) == expected, "\(String(decoding: body, as: UTF8.self))")
            if accepted { taken += 1 }
        }
        // Else the mutations are too wild to tell anything.
        #expect(taken > 3000 && taken < 27_000)
    }

    @Test func whatTheDoorTakesTheQueueCarries() throws {
        var random = SeededGenerator(seed: 3)
        let parser = JSONParser()
        var identified = 0
        var attributed = 0
        for round in 0..<20_000 {
            let body = mutant(of: Array(Self.seeds[round % 3].utf8), using: &random)
            if let write = try? Validated<IdentifyWrite>(body: body, using: parser).write {
                identified += 1
                let payload = write.encodePayload()
                #expect(try IdentifyWrite(payload: payload, using: parser).encodePayload() == payload)
            }
            if let write = try? Validated<AttributeWrite>(body: body, using: parser).write {
                attributed += 1
                let payload = write.encodePayload()
                #expect(try AttributeWrite(payload: payload, using: parser).encodePayload() == payload)
            }
        }
        #expect(identified > 2000 && attributed > 500)
    }

    @Test func anAdServicesCallThatIsTakenGoesOnWithoutItsTokensText() throws {
        var random = SeededGenerator(seed: 4)
        let parser = JSONParser()
        let sealer = AdServicesToken.sealer(secret: Array(repeating: 7, count: 32))
        var taken = 0
        for _ in 0..<10_000 {
            let body = mutant(of: Array(Fixture.adServices.utf8), using: &random)
            guard let call = try? Validated<AdServicesCall>(body: body, using: parser).write else { continue }
            taken += 1
            let payload = call.sealed(by: sealer, organization: "demo", proof: WriteProof()).encodePayload()
            let write = try AdServicesWrite(payload: payload, using: parser)
            #expect(write.encodePayload() == payload)
            let context = AdServicesToken.context(
                organization: "demo", bundleID: write.bundleID, subject: write.subject)
            #expect(sealer.open(write.sealedToken, context: context) == Array(call.token.utf8))
        }
        #expect(taken > 1000)
    }

    /// A few edits: bytes changed, removed, moved, tokens put in.
    private func mutant(of seed: [UInt8], using random: inout SeededGenerator) -> [UInt8] {
        var body = seed
        for _ in 0..<Int.random(in: 1...3, using: &random) where !body.isEmpty {
            let at = Int.random(in: 0..<body.count, using: &random)
            switch Int.random(in: 0..<6, using: &random) {
            case 0: body[at] = UInt8.random(in: 0...255, using: &random)
            case 1: body[at] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            case 2: body.removeSubrange(at..<min(body.count, at + Int.random(in: 1...4, using: &random)))
            case 3, 4: body.insert(contentsOf: Self.tokens.randomElement(using: &random) ?? [], at: at)
            default:
                let end = min(body.count, at + Int.random(in: 1...20, using: &random))
                body.insert(contentsOf: Array(body[at..<end]), at: Int.random(in: 0...body.count, using: &random))
            }
        }
        return body
    }
}
