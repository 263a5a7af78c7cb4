import Bytes
import TestSupport
import Testing

@testable import Trust

/// The order n of P-256, big-endian.
private let order = Hex.decode("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551")!

@Suite struct SignatureTests {
    let bench: Bench
    let parts: [[UInt8]]

    init() throws {
        bench = try Bench()
        parts = decodedParts(bench.pki.sign(TestPKITransaction()))
    }

    private func reason(signature: [UInt8]) -> Refusal.Reason? {
        bench.verdict(of: encodedJWS([parts[0], parts[1], signature])).reason
    }

    @Test func onlySixtyFourBytesAreASignature() {
        #expect(reason(signature: parts[2]) == nil)
        #expect(reason(signature: Array(parts[2].dropLast())) == .badSignature)
        #expect(reason(signature: Array(parts[2].dropFirst())) == .badSignature)
        #expect(reason(signature: parts[2] + [0]) == .badSignature)
        #expect(reason(signature: [0] + parts[2]) == .badSignature)
        #expect(reason(signature: [0]) == .badSignature)
    }

    @Test func aDERSignatureIsRefused() {
        func integer(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
            let number = (bytes.first ?? 0) >= 0x80 ? [0] + bytes : Array(bytes)
            return [0x02, UInt8(number.count)] + number
        }
        let body = integer(parts[2][..<32]) + integer(parts[2][32...])
        #expect(reason(signature: [0x30, UInt8(body.count)] + body) == .badSignature)
    }

    @Test func numbersOutsideTheGroupAreRefused() {
        let zero = [UInt8](repeating: 0, count: 32)
        let r = Array(parts[2][..<32])
        let s = Array(parts[2][32...])
        for signature in [zero + zero, zero + s, r + zero, order + s, r + order, order + order] {
            #expect(reason(signature: signature) == .badSignature)
        }
        let most = [UInt8](repeating: 0xff, count: 32)
        #expect(reason(signature: most + s) == .badSignature)
        #expect(reason(signature: r + most) == .badSignature)
        // 1 and n-1 are in range, and still no signature.
        let one = zero.dropLast() + [UInt8(1)]
        #expect(reason(signature: Array(one + one)) == .badSignature)
        #expect(reason(signature: s + r) == .badSignature)
    }

    @Test func theOtherRootOfTheSignatureVerifiesToo() {
        // (r, n - s): one transaction has more than one text, so nothing may tell transactions apart by it.
        var mirrored = [UInt8](repeating: 0, count: 32)
        var borrow = 0
        for index in (0..<32).reversed() {
            let difference = Int(order[index]) - Int(parts[2][32 + index]) - borrow
            borrow = difference < 0 ? 1 : 0
            mirrored[index] = UInt8(truncatingIfNeeded: difference)
        }
        #expect(reason(signature: parts[2][..<32] + mirrored) == nil)
    }

    @Test func numbersWithLeadingZerosVerify() {
        var found = 0
        for number in 0..<4000 where found < 4 {
            let input = "\(Base64.encode(parts[0], .url)).\(Base64.encode(Array("{\"n\":\(number)}".utf8), .url))"
            let signature = bench.pki.leaf.key.sign(Array(input.utf8))
            guard signature[0] == 0 || signature[32] == 0 else { continue }
            found += 1
            // Signed well, and no claims: what is refused is the payload.
            #expect(bench.verdict(of: "\(input).\(Base64.encode(signature, .url))").reason == .badClaim)
        }
        #expect(found > 0)
    }

    @Test func everyBitOfTheSignatureCounts() {
        for bit in 0..<512 {
            var signature = parts[2]
            signature[bit / 8] ^= 1 << (bit % 8)
            #expect(reason(signature: signature) == .badSignature)
        }
    }

    @Test func theSignatureCoversHeaderAndPayload() throws {
        let other = TestPKITransaction().with { $0.productID = "com.example.app.other" }
        #expect(
            bench.verdict(of: encodedJWS([parts[0], Array(other.json.utf8), parts[2]])).reason == .badSignature)
        let header = Array(
            String(decoding: parts[0], as: UTF8.self).replacing("{\"alg\"", with: "{\"kid\":\"1\",\"alg\"").utf8)
        #expect(bench.verdict(of: encodedJWS([header, parts[1], parts[2]])).reason == .badSignature)
        #expect(bench.verdict(underHeader: bench.header, key: TestPKIKey(.p256)).reason == .badSignature)
    }
}
