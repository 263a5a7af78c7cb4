import Bytes
import Foundation
import Testing

@Suite struct CodecTests {
    /// FIPS 180-4 example "abc", and the empty message.
    @Test func digestsAreThoseOfTheStandard() {
        #expect(
            SHA256Digest(of: Array("abc".utf8)).hex
                == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        #expect(
            SHA256Digest(of: []).hex == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    }

    @Test func partsAreSeparatedByAZeroByte() {
        #expect(SHA256Digest(ofParts: ["a", "b"]) == SHA256Digest(of: [0x61, 0, 0x62]))
        #expect(SHA256Digest(ofParts: ["ab", ""]) != SHA256Digest(ofParts: ["a", "b"]))
    }

    /// RFC 4231, test case 2.
    @Test func macsAreThoseOfTheStandard() {
        let mac = Secrets.hmac(key: Array("Jefe".utf8), Array("what do ya want for nothing?".utf8))
        #expect(Hex.encode(mac) == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
    }

    @Test func comparisonSeesEveryByteAndTheLength() {
        #expect(Secrets.equal([1, 2, 3], [1, 2, 3]))
        #expect(!Secrets.equal([1, 2, 3], [1, 2, 4]))
        #expect(!Secrets.equal([0, 2, 3], [1, 2, 3]))
        #expect(!Secrets.equal([1, 2], [1, 2, 3]))
        #expect(Secrets.equal([], []))
        #expect(Secrets.random(32) != Secrets.random(32))
    }

    @Test func hexRoundTripsAndRefusesTheRest() {
        #expect(Hex.decode("00fFa5") == [0, 255, 0xa5])
        #expect(Hex.encode([0, 255, 0xa5]) == "00ffa5")
        for text in ["0", "0g", "zz", "0x", "１２"] { #expect(Hex.decode(text) == nil, "\(text)") }
    }

    /// Beside Foundation's encoder, at every remainder of three.
    @Test func base64IsWhatFoundationWritesAndOnlyThat() {
        var generator = SystemRandomNumberGenerator()
        for length in 0..<200 {
            let bytes = (0..<length).map { _ in UInt8.random(in: 0...255, using: &generator) }
            let standard = Data(bytes).base64EncodedString()
            let url = standard.replacingOccurrences(of: "+", with: "-").replacingOccurrences(of: "/", with: "_")
                .replacingOccurrences(of: "=", with: "")
            #expect(Base64.encode(bytes, .standard) == standard)
            #expect(Base64.encode(bytes, .url) == url)
            #expect(Base64.decode(standard.utf8, .standard) == bytes)
            #expect(Base64.decode(url.utf8, .url) == bytes)
        }
    }

    @Test(arguments: [
        "A", "AA", "AAA", "AAAAA", "AA=", "A===", "AAA=AAAA", "====", "AB==", "AAB=", "AA==\n", " AA==", "AA-_",
        "A\u{0}==",
        "AA==AA==",
    ])
    func standardBase64RefusesWhatNoEncoderWrites(_ text: String) {
        #expect(Base64.decode(text.utf8, .standard) == nil)
    }

    @Test(arguments: ["A", "AAAAA", "AA==", "AB", "AAB", "+/+/", "AA\n", " AA", "AA="])
    func urlBase64RefusesWhatNoEncoderWrites(_ text: String) {
        #expect(Base64.decode(text.utf8, .url) == nil)
    }

    /// Computed with another implementation: SHA-256 of `ratchet.customer`, zero, `demo`, zero, `user_42`.
    @Test func aCustomersIdIsDerivedAndOfVersionEight() throws {
        let id = UUIDv8.customer(organization: "demo", appUserID: "user_42")
        #expect(id.description == "2d6f1051-6d3d-857b-97cc-68a93e7667ba")
        #expect(UUID(uuidString: id.description) != nil)
        #expect(id.bytes[6] >> 4 == 8)
        #expect(id.bytes[8] >> 6 == 2)
        #expect(UUIDv8.customer(organization: "demo", appUserID: "user_43") != id)
        #expect(UUIDv8.customer(organization: "demo2", appUserID: "user_42") != id)
    }
}
