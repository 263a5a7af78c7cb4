/// A validated `POST /api/sdk/v1/identify`: what the queue carries and the writer folds.
package struct IdentifyWrite: Equatable, Sendable {
    package var appUserID: String
    package var bundleID: String
    /// `ios` or `android`; anything else was ignored.
    package var platform: String?
    package var osVersion: String?
    package var deviceModel: String?
    package var locale: String?
    /// As they travel; `attributes` makes texts of them.
    package var encodedAttributes: EncodedAttributes
    package var proof: WriteProof

    /// In the order of the body, each key once (the last of duplicates). A value is its compact JSON text
    /// (`"pro"` with its quotes, `1e5` as sent, `true`) or nil, which deletes the key. Made anew by each call.
    package var attributes: [Attribute] {
        get {
            encodedAttributes.map { Attribute(key: String(decoding: $0.key, as: UTF8.self), value: $0.value) }
        }
        set { encodedAttributes = EncodedAttributes(newValue) }
    }

    package struct Attribute: Equatable, Sendable {
        package var key: String
        package var value: String?
        package init(key: String, value: String?) {
            self.key = key
            self.value = value
        }
    }

    package init(
        appUserID: String, bundleID: String, platform: String? = nil, osVersion: String? = nil,
        deviceModel: String? = nil, locale: String? = nil, attributes: [Attribute] = [], proof: WriteProof = .init()
    ) {
        self.init(
            appUserID: appUserID, bundleID: bundleID, platform: platform, osVersion: osVersion,
            deviceModel: deviceModel, locale: locale, encodedAttributes: EncodedAttributes(attributes), proof: proof)
    }

    init(
        appUserID: String, bundleID: String, platform: String?, osVersion: String?, deviceModel: String?,
        locale: String?, encodedAttributes: EncodedAttributes, proof: WriteProof = .init()
    ) {
        self.appUserID = appUserID
        self.bundleID = bundleID
        self.platform = platform
        self.osVersion = osVersion
        self.deviceModel = deviceModel
        self.locale = locale
        self.encodedAttributes = encodedAttributes
        self.proof = proof
    }
}
