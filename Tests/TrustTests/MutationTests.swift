import Bytes
import TestSupport
import Testing

@testable import Trust

extension SeededGenerator {
    /// Flips, replaces, inserts, removes, doubles or cuts off some bytes.
    mutating func mutate(_ bytes: [UInt8]) -> [UInt8] {
        var bytes = bytes
        for _ in 0..<Int.random(in: 1...3, using: &self) {
            guard !bytes.isEmpty else { return [UInt8.random(in: 0...255, using: &self)] }
            let index = Int.random(in: 0..<bytes.count, using: &self)
            let end = min(bytes.count, index + Int.random(in: 1...40, using: &self))
            switch Int.random(in: 0..<6, using: &self) {
            case 0: bytes[index] ^= 1 << UInt8.random(in: 0..<8, using: &self)
            case 1: bytes[index] = [0, 0xff, 0x22, 0x7b, 0x5d, 0x2e, 0x30, 0x80].randomElement(using: &self)!
            case 2: bytes.insert(UInt8.random(in: 0...255, using: &self), at: index)
            case 3: bytes.removeSubrange(index..<end)
            case 4: bytes.insert(contentsOf: bytes[index..<end], at: index)
            default: bytes.removeSubrange(index...)
            }
        }
        return bytes
    }
}

@Suite struct MutationTests {
    let bench: Bench
    let jws: String
    let parts: [[UInt8]]

    init() throws {
        bench = try Bench()
        jws = bench.pki.sign(TestPKITransaction())
        parts = decodedParts(jws)
    }

    @Test func noMutationOfTheTextVerifies() {
        var generator = SeededGenerator(seed: 1)
        let original = Array(jws.utf8)
        let expectation = TransactionExpectation(bundleID: nil, environments: nil)
        for _ in 0..<4000 {
            let mutated = generator.mutate(original)
            guard mutated != original else { continue }
            let verdict = bench.verifier.verify(
                jws: mutated, expectation: expectation, nowMilliseconds: defaultNow)
            #expect(verdict.facts == nil, "\(String(decoding: mutated, as: UTF8.self))")
        }
    }

    @Test func noMutationOfADecodedPartVerifies() {
        var generator = SeededGenerator(seed: 2)
        for round in 0..<3000 {
            var mutated = parts
            mutated[round % 3] = generator.mutate(parts[round % 3])
            guard mutated != parts else { continue }
            #expect(bench.verdict(of: encodedJWS(mutated), bundleID: nil, environments: nil).facts == nil)
        }
    }

    @Test func noMutationOfACertificateVerifies() {
        var generator = SeededGenerator(seed: 3)
        let pki = bench.pki
        for round in 0..<1200 {
            var x5c = [pki.leafDER, pki.intermediateDER, pki.rootDER]
            x5c[round % 2] = generator.mutate(x5c[round % 2])
            guard x5c != [pki.leafDER, pki.intermediateDER, pki.rootDER] else { continue }
            // Signed by the genuine key, so that nothing but the certificate speaks against it.
            #expect(bench.verdict(x5c: x5c).facts == nil)
        }
    }

    @Test func noSignedPayloadTrapsTheReader() {
        var generator = SeededGenerator(seed: 4)
        var verified = 0
        for _ in 0..<3000 {
            let payload = generator.mutate(parts[1])
            let token = TestPKI.jws(header: bench.header, payload: payload, key: bench.pki.leaf.key)
            if bench.verdict(of: token, bundleID: nil, environments: nil).facts != nil { verified += 1 }
        }
        // Some mutations only change a text, and then the signer's word stands.
        #expect(verified < 1500)
    }
}
