import Bytes
import TestSupport
import Testing
import Wire

@testable import Trust

/// The outer forms: three parts, base64, the header's JSON.
@Suite struct EncodingTests {
    let bench: Bench
    let jws: String

    init() throws {
        bench = try Bench()
        jws = bench.pki.sign(TestPKITransaction())
    }

    @Test func anythingButThreePartsIsRefused() {
        let parts = jws.split(separator: ".").map(String.init)
        for text in [
            "", ".", "..", "...", "a.b.c", "a.b.c.d", parts[0], parts[0] + "." + parts[1], jws + ".", "." + jws,
            jws + ".e30", parts[0] + ".." + parts[2], "." + parts[1] + "." + parts[2],
            parts[0] + "." + parts[1] + ".",
        ] {
            #expect(bench.verdict(of: text).reason == .malformedJWS, "\(text.prefix(20))")
        }
    }

    @Test func whiteSpacePaddingAndForeignCharactersAreRefused() {
        let parts = jws.split(separator: ".").map(String.init)
        for character in ["=", "==", " ", "\n", "\r\n", "\t", "\u{0}", "+", "/", "%", "é", "\u{feff}"] {
            #expect(bench.verdict(of: character + jws).reason == .malformedJWS)
            #expect(bench.verdict(of: jws + character).reason == .malformedJWS)
            for index in 0..<3 {
                var changed = parts
                changed[index] += character
                #expect(bench.verdict(of: changed.joined(separator: ".")).reason == .malformedJWS)
                changed[index] = parts[index].prefix(9) + character + parts[index].dropFirst(9)
                #expect(bench.verdict(of: changed.joined(separator: ".")).reason == .malformedJWS)
            }
        }
    }

    @Test func bytesThatAreNoTextAreRefused() {
        let expectation = TransactionExpectation(bundleID: nil)
        for bytes: [UInt8] in [[], [0xff], [0xff, 0x2e, 0xfe, 0x2e, 0xfd], [UInt8](repeating: 0x2e, count: 70_000)] {
            #expect(
                bench.verifier.verify(jws: bytes, expectation: expectation, nowMilliseconds: defaultNow).reason
                    == .malformedJWS)
        }
        #expect(
            bench.verifier.verify(jws: Array(jws.utf8), expectation: expectation, nowMilliseconds: defaultNow).facts
                != nil)
    }

    @Test func theLongestTokenIsSixtyFourKiB() {
        func padded(_ count: Int) -> String {
            bench.pki.sign(
                TestPKITransaction().with {
                    $0.extra = [("padding", "\"" + String(repeating: "x", count: count) + "\"")]
                })
        }
        let room = (SignedTransactionVerifier.maximumBytes - jws.utf8.count) * 3 / 4 - 20
        let long = padded(room)
        #expect(long.utf8.count <= SignedTransactionVerifier.maximumBytes)
        #expect(bench.verdict(of: long).facts != nil)
        #expect(bench.verdict(of: padded(room + 100)).reason == .malformedJWS)
    }

    @Test func payloadsOfEveryLengthDecode() {
        for count in 0..<9 {
            let transaction = TestPKITransaction().with {
                $0.extra = [("pad", "\"" + String(repeating: "p", count: count) + "\"")]
            }
            let verdict = bench.verdict(of: bench.pki.sign(transaction))
            #expect(verdict.facts?.payloadDigest == SHA256Digest(of: Array(transaction.json.utf8)).hex)
        }
    }

    @Test func trailingBitsThatNobodyReadsMustBeZero() {
        // The signature's 64 bytes leave four unused bits in its last character.
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
        var text = Array(jws.utf8)
        let value = alphabet.firstIndex(of: text[text.count - 1])!
        for bits in 1..<16 {
            text[text.count - 1] = alphabet[value | bits]
            #expect(bench.verdict(of: String(decoding: text, as: UTF8.self)).reason == .malformedJWS)
        }
    }

    @Test func theAlgorithmIsES256AndNothingElse() {
        for algorithm in ["none", "None", "HS256", "es256", "ES384", "ES512", "RS256", "", "ES256 ", "ES256\\u0020"] {
            let header = TestPKI.header(
                x5c: [bench.pki.leafDER, bench.pki.intermediateDER, bench.pki.rootDER], algorithm: algorithm)
            #expect(bench.verdict(underHeader: header).reason == .badAlgorithm)
        }
        for value in ["null", "256", "[\"ES256\"]", "{\"ES256\":1}", "true"] {
            #expect(
                bench.verdict(underHeader: bench.header.replacing("\"ES256\"", with: value)).reason == .badAlgorithm)
        }
        #expect(
            bench.verdict(underHeader: bench.header.replacing("\"alg\"", with: "\"Alg\"")).reason == .badAlgorithm)
    }

    @Test func headersThatDemandMoreAreRefusedAndHintsIgnored() {
        for critical in ["[\"exp\"]", "[]", "null", "\"b64\""] {
            let header = bench.header.replacing("{\"alg\"", with: "{\"crit\":\(critical),\"alg\"")
            #expect(bench.verdict(underHeader: header).reason == .criticalHeader)
        }
        let hints =
            "{\"kid\":\"k\",\"typ\":\"JWT\",\"jku\":\"http://h/\",\"x5u\":\"http://h/\",\"jwk\":{\"kty\":\"EC\"},\"alg\""
        #expect(bench.verdict(underHeader: bench.header.replacing("{\"alg\"", with: hints)).facts != nil)
        #expect(bench.verdict(underHeader: "{\"alg\":\"ES256\",\"jwk\":{\"kty\":\"EC\"}}").reason == .badX5CLength)
    }

    @Test func theHeaderIsOneStrictObject() {
        let deep = String(repeating: "[", count: 5000) + String(repeating: "]", count: 5000)
        for header in [
            "", "[]", "null", "\"ES256\"", "{", bench.header + "x", bench.header + bench.header, "{\"alg\":\"ES256\"",
            bench.header.replacing("{\"alg\"", with: "{\"alg\":\"none\",\"alg\""),
            bench.header.replacing("{\"alg\"", with: "{\"x5c\":[],\"alg\""),
            bench.header.replacing("{\"alg\"", with: "{\"k\":\(deep),\"alg\""),
            bench.header.replacing("{\"alg\"", with: "{\"k\":\"\\ud800\",\"alg\""),
        ] where !header.isEmpty {
            #expect(bench.verdict(underHeader: header).reason == .malformedJSON, "\(header.prefix(40))")
        }
        let parts = decodedParts(jws)
        #expect(bench.verdict(of: encodedJWS([[0x7b, 0xff, 0x7d], parts[1], parts[2]])).reason == .malformedJSON)
    }

    @Test func x5cIsThreeStringsOfStandardBase64() {
        let pki = bench.pki
        let all = [pki.leafDER, pki.intermediateDER, pki.rootDER]
        for x5c in [[], [all[0]], Array(all[..<2]), all + [all[2]]] {
            #expect(bench.verdict(x5c: x5c).reason == .badX5CLength)
        }
        for value in ["null", "\"x\"", "{}", "3", "{\"0\":1,\"1\":1,\"2\":1}"] {
            #expect(
                bench.verdict(underHeader: "{\"alg\":\"ES256\",\"x5c\":\(value)}").reason == .badX5CLength)
        }
        #expect(bench.verdict(underHeader: "{\"alg\":\"ES256\",\"x5c\":[1,2,3]}").reason == .malformedX5C)
        #expect(bench.verdict(underHeader: "{\"alg\":\"ES256\",\"x5c\":[null,null,null]}").reason == .malformedX5C)
        let texts = all.map { Base64.encode($0, .standard) }
        for index in 0..<3 {
            for change: (String) -> String in [
                { $0.replacing("+", with: "-").replacing("/", with: "_") + "-" }, { $0 + "\\n" },
                { $0.prefix(64) + "\\n" + $0.dropFirst(64) }, { $0 + "=" }, { " " + $0 },
                { "-----BEGIN CERTIFICATE-----" + $0 },
            ] {
                var changed = texts
                changed[index] = change(texts[index])
                let entries = changed.map { "\"\($0)\"" }.joined(separator: ",")
                #expect(
                    bench.verdict(underHeader: "{\"alg\":\"ES256\",\"x5c\":[\(entries)]}").reason == .malformedX5C)
            }
        }
    }

    @Test func everyEntryIsExactlyOneCertificate() {
        let pki = bench.pki
        let all = [pki.leafDER, pki.intermediateDER, pki.rootDER]
        // Once with nothing remembered and once with the genuine chain in the cache: the answer is the same.
        for warm in [false, true] {
            if warm { #expect(bench.verdict(of: jws).facts != nil) }
            for index in 0..<3 {
                var indefinite = all[index]
                indefinite.replaceSubrange(0..<4, with: [0x30, 0x80])
                for der in [
                    [], [0x30], all[index] + [0], all[index] + all[index], Array(all[index].dropLast()),
                    [0x30, 0x04, 0x02, 0x02, 0x01, 0x01], indefinite + [0, 0], Array("<html>".utf8),
                ] {
                    var x5c = all
                    x5c[index] = der
                    #expect(bench.verdict(x5c: x5c).reason == .malformedCertificate, "entry \(index), \(der.prefix(6))")
                }
            }
        }
    }
}
