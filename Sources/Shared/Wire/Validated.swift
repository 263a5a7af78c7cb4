internal import JSON

/// A write that passed the rules of the SDK API, and what the door has to count about it.
package struct Validated<Write: Sendable>: Sendable {
    package var write: Write
    /// Optional fields that were there but unusable, so that they count as absent. Each at most once, in the order of
    /// `OptionalField`.
    package var ignoredFields: [OptionalField] = []
    package var oddities: [Oddity] = []
}

/// The optional fields whose faults are ignored; raw values are their names in the request and in metrics.
package enum OptionalField: String, CaseIterable, Sendable {
    case platform, osVersion, deviceModel, locale, productId, jws, installId, appVersion, storefront, environment
}

/// What is taken although it looks like a mistake of the integration; raw values stand in metrics.
package enum Oddity: String, CaseIterable, Sendable {
    /// `0`, `guest`, `unknown` and the like as the user id.
    case oddUserID = "odd_user_id"
    /// The same as an install id: all installs that send it are one.
    case oddInstallID = "odd_install_id"
}

extension Validated {
    /// Reads a body from the network: its size, then its JSON, then its fields. A body that is JSON but no object is
    /// `malformed_json`: there is no field to name.
    init(
        body: [UInt8], using parser: JSONParser, _ read: (JSONNode) throws(WireError) -> Self
    ) throws(WireError) {
        guard body.count <= SDKLimits.bodyBytes else { throw .bodyTooLarge }
        let root: JSONValue
        do {
            root = try parser.parse(body)
        } catch {
            throw WireError(error)
        }
        self = try root.withNode(read)
    }
}
