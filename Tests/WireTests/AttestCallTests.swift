import Bytes
import JSON
import Testing
import Wire

@Suite struct AttestCallTests {
    private static let key = (0..<32).map { UInt8(0xE8 ^ $0) }
    private static let object = Array(repeating: UInt8(0xFB), count: 100)

    private func body(
        key: String? = nil, attestation: String? = nil, challenge: String = #""AAAA""#,
        bundle: String = #""com.example.app""#
    ) -> String {
        let key = key ?? Fixture.quoted(Base64.encode(Self.key, .standard))
        let attestation = attestation ?? Fixture.quoted(Base64.encode(Self.object, .standard))
        return #"{"keyId":\#(key),"attestation":\#(attestation),"challenge":\#(challenge),"bundleId":\#(bundle)}"#
    }

    private func read(_ body: String) throws(WireError) -> AttestCall {
        try Validated<AttestCall>(body: Array(body.utf8), using: JSONParser()).write
    }

    private func fault(of body: String) -> String? {
        refusal { () throws(WireError) in _ = try read(body) }
    }

    /// verification.md 35, 36: the same bytes whatever alphabet brings them, and compared as bytes.
    @Test func eitherAlphabetIsTakenPaddedOrNot() throws {
        let plain = try read(body())
        #expect(plain.keyID == Self.key && plain.attestation == Self.object)
        #expect(Base64.encode(Self.key, .standard).contains { $0 == "+" || $0 == "/" })
        let bare = { (bytes: [UInt8]) in Fixture.quoted(Base64.encode(bytes, .standard).replacing("=", with: "")) }
        #expect(try read(body(key: bare(Self.key), attestation: bare(Self.object))) == plain)
        for padding in ["", "="] {
            let call = try read(
                body(
                    key: Fixture.quoted(Base64.encode(Self.key, .url) + padding),
                    attestation: Fixture.quoted(Base64.encode(Self.object, .url) + padding + padding)))
            #expect(call == plain)
            #expect(call.digest == plain.digest, "an equal repeat is one whatever its alphabet")
        }
    }

    @Test func theFirstFaultIsNamed() {
        #expect(fault(of: "{}") == "missing_field keyId")
        #expect(fault(of: #"{"keyId":"x"}"#) == "missing_field attestation")
        #expect(fault(of: body(challenge: "null")) == "missing_field challenge")
        #expect(fault(of: body(bundle: "null")) == "missing_field bundleId")
        for key in [
            "\"\"", "1", "\"AAAA\"", "\"\(String(repeating: "A", count: 44))\"",
            "\"\(String(repeating: "é", count: 22))\"",
        ] {
            #expect(fault(of: body(key: key)) == "invalid_field keyId", "\(key)")
        }
        for attestation in ["\"\"", "[]", "\"AAA\"", "\"A A=\"", "\"AA==AA==\"", "\"====\""] {
            let said = fault(of: body(attestation: attestation))
            #expect(said == (attestation == "\"AAA\"" ? nil : "invalid_field attestation"), "\(attestation)")
        }
        let most = SDKLimits.attestationBytes
        for (count, said) in [(most, nil), (most + 1, "invalid_field attestation")] {
            let text = Fixture.quoted(Base64.encode(Array(repeating: 0, count: count), .standard))
            #expect(fault(of: body(attestation: text)) == said)
        }
        for challenge in ["7", "\"\"", "\" \"", "\"!!\"", "\"A\""] {
            #expect(fault(of: body(challenge: challenge)) == "invalid_field challenge", "\(challenge)")
        }
        #expect(
            fault(of: body(challenge: Fixture.quoted(String(repeating: "c", count: 129))))
                == "invalid_field challenge")
        #expect(fault(of: body(bundle: "\"a b\"")) == "invalid_field bundleId")
    }
}
