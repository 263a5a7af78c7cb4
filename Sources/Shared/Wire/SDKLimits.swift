/// Every limit of the SDK API's fields, each with its reason. Lengths are bytes of UTF-8 unless the name says more.
package enum SDKLimits {
    /// A whole request body. Attributes may take 8 KiB and a signed transaction 16 KiB, both escaped: that fits.
    package static let bodyBytes = 65_536
    /// A payload in the queue: what a body of the greatest size can grow to, escaped, with room for verified facts.
    package static let payloadBytes = 262_144
    /// User ids: what an index of the database takes in its stride, and room for any scheme (e-mail, UUID, $anon_).
    package static let appUserIDBytes = 255
    /// Bundle ids and package names; Apple allows 155 characters, Play 150 or so.
    package static let bundleIDBytes = 255
    /// osVersion, deviceModel and locale, in Unicode scalars (what Postgres counts as characters, and what a sender can
    /// count without a table of graphemes). Real ones with all ICU keywords stay below.
    package static let deviceFieldScalars = 64
    /// The compact form of all attributes of one call. Source: seed 000, "at most 8 KB".
    package static let attributesBytes = 8_192
    package static let attributeKeyBytes = 128
    /// Decimal digits anywhere in a number's text: more than a double can tell apart, little enough to store as text.
    package static let attributeNumberDigits = 30
    /// Apple's ids have some 16 digits; Play purchase tokens are opaque and have grown to several hundred bytes.
    package static let originalTransactionIDBytes = 4_096
    package static let productIDBytes = 255
    /// A signed transaction; real ones have 5 to 6 KB.
    package static let jwsBytes = 16_384
    /// An AdServices token without its white space. Apple's sample has 560 characters; what is shorter than the least
    /// can't carry what such a token does.
    package static let adServicesTokenBytes = 32...4_096
    /// An organization's id, which stands between `|` in job headers and in keys.
    package static let organizationIDBytes = 63
    /// Base64url characters of a device token after `dt_`: 32 bytes without padding.
    package static let deviceTokenCharacters = 43
    /// A key identifier of App Attest is a SHA-256.
    package static let keyIDBytes = 32
    /// An attestation object; real ones have 5.2 to 5.7 KB.
    package static let attestationBytes = 32_768
    /// What Apple says beside an attested key, such as the version of its app.
    package static let attestedTextBytes = 255
    /// Challenges have 55 characters; longer text is none of ours.
    package static let challengeBytes = 128
    /// Apps that share a bundle id, one for each team and organization: more than anybody has. Beyond it would be a guess
    /// which of them a device may be of.
    package static let candidates = 256
    /// The word that says why a signed transaction was refused.
    package static let refusalReasonBytes = 64
    package static let deviceIDBytes = 128
    /// Hexadecimal characters of the hash of a sender's address.
    package static let addressHashCharacters = 16
    /// Milliseconds since 1970 of 9999-12-31T23:59:59.999Z: the last moment that every date type on the way can hold.
    package static let latestTimeMilliseconds: Int64 = 253_402_300_799_999

    /// Refused as a user id, each exactly and as the whole value: what client code makes of a missing id when it prints
    /// it. Everybody without an id would end as one customer.
    package static let refusedUserIDs = [
        "null", "(null)", "<null>", "nil", "undefined", "NaN", "[object Object]", "None",
    ]

    /// Taken but counted, in any case of ASCII letters: more likely a default than somebody's id.
    package static let oddUserIDs = [
        "0", "-1", "guest", "unknown", "anonymous", "default", "user", "test", "true", "false", "n/a", "none", "null",
        "(null)", "nil", "undefined", "nan", "{}", "[]", "00000000-0000-0000-0000-000000000000",
    ]
}
