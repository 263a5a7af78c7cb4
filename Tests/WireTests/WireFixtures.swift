import JSON
import Wire

/// Bodies and ways to ask about them.
enum Fixture {
    /// 388 bytes: what an app sends at launch.
    static let identify = #"""
        {"appUserId":"$anon_6F9619FF-8B86-D011-B42D-00CF4FC964FF","bundleId":"com.example.app","platform":"ios",
        "osVersion":"26.2","deviceModel":"iPhone17,2","locale":"en_US","attributes":{"plan":"pro","age":42,
        "newsletter":true,"name":"Zoë \"Z\" Müller","score":12.50,"source":"spring \u2764 campaign","country":"DE",
        "referrer":"https://example.com/a?b=c","company":null,"cohort":"2026-04-b"}}
        """#.replacing("\n", with: "")
    static let attribute = #"""
        {"appUserId":"user_42","bundleId":"com.example.app","originalTransactionId":"2000000123456789",
        "productId":"com.example.app.pro.monthly","jws":"eyJhbGciOiJFUzI1NiJ9.eyJhIjoxfQ.c2lnbmF0dXJl"}
        """#.replacing("\n", with: "")

    /// 64 characters of the standard alphabet.
    static let adServicesToken = String(repeating: "ab+/ZY09", count: 8)
    static let adServices =
        #"{"bundleId":"com.example.app","installId":"1b7a2c00-0000-4000-8000-00000000000a","token":""#
        + adServicesToken + #"","appVersion":"2.4.0","storefront":"USA","environment":"production"}"#

    /// A minimal identify body around some attributes.
    static func identify(attributes: String) -> String {
        #"{"appUserId":"u","bundleId":"com.example.app","attributes":"# + attributes + "}"
    }

    /// Attributes that take exactly so many bytes in compact form.
    static func attributes(bytes: Int) -> String {
        #"{"k":""# + String(repeating: "x", count: bytes - #"{"k":""}"#.utf8.count) + #""}"#
    }

    static func quoted(_ text: String) -> String { JSONWriter.quoted(text) }
}

/// What a body is validated to.
func identify(_ body: String) throws(WireError) -> Validated<IdentifyWrite> {
    try Validated<IdentifyWrite>(body: Array(body.utf8), using: JSONParser())
}

func attribute(_ body: String) throws(WireError) -> Validated<AttributeWrite> {
    try Validated<AttributeWrite>(body: Array(body.utf8), using: JSONParser())
}

func adServices(_ body: String) throws(WireError) -> Validated<AdServicesCall> {
    try Validated<AdServicesCall>(body: Array(body.utf8), using: JSONParser())
}

/// Why a body is refused, as `code` or `code field`; nil when it is taken.
func refusal(_ call: () throws(WireError) -> Void) -> String? {
    do {
        try call()
        return nil
    } catch {
        return [error.code.rawValue, error.field].compactMap { $0 }.joined(separator: " ")
    }
}

func identifyRefusal(_ body: String) -> String? {
    refusal { () throws(WireError) in _ = try identify(body) }
}

func attributeRefusal(_ body: String) -> String? {
    refusal { () throws(WireError) in _ = try attribute(body) }
}

func adServicesRefusal(_ body: String) -> String? {
    refusal { () throws(WireError) in _ = try adServices(body) }
}
