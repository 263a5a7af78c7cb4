package import Bytes

/// How an AdServices token is kept between the door and Apple: whoever has its text can ask Apple about the install, so
/// no queue, table or log holds it in clear.
package enum AdServicesToken {
    /// Seals at the door and opens at the sweep.
    /// - Parameter secret: the same for all of them (RATCHET_SECRET).
    package static func sealer(secret: [UInt8]) -> TextSealer { TextSealer(secret: secret, purpose: "adservices") }

    /// What a token is sealed for: it opens for the same subject of the same app alone.
    /// - Parameter subject: as stored: an install id, folded, or a customer's id.
    package static func context(organization: String, bundleID: String, subject: String) -> [UInt8] {
        // None of the first two can hold a zero byte.
        Array(organization.utf8) + [0] + Array(bundleID.utf8) + [0] + Array(subject.utf8)
    }
}
