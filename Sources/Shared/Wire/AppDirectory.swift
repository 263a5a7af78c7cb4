package import JSON

/// Which organization's apps a bundle id belongs to: what the writer publishes and every ingress decides by.
package struct AppDirectory: Sendable, Equatable {
    /// One connected app.
    package struct App: Sendable, Equatable {
        package var organization: String
        /// `app_` + 24 hex.
        package var id: String
        package var bundleID: String
        package var store: PurchaseStore
        /// Apple's team id; empty for a Play app.
        package var team: String
        /// Whether keys of App Attest's development environment may enrol.
        package var allowsDevelopment: Bool
        /// Attested writes a minute of its organization; nil takes the setting.
        package var attestedPerMinute: Int?

        package init(
            organization: String, id: String, bundleID: String, store: PurchaseStore, team: String,
            allowsDevelopment: Bool = false, attestedPerMinute: Int? = nil
        ) {
            self.organization = organization
            self.id = id
            self.bundleID = bundleID
            self.store = store
            self.team = team
            self.allowsDevelopment = allowsDevelopment
            self.attestedPerMinute = attestedPerMinute
        }
    }

    /// What a bundle id resolves to.
    package enum Resolution: Sendable, Equatable {
        /// Exactly one organization, whose App Store app and Play app may share the identifier.
        case organization(String)
        /// Nobody connected it.
        case none
        /// Several organizations did: without a device token there is no telling whose write it is.
        case several
    }

    /// Grows with every change; a snapshot never replaces a newer one.
    package let version: Int64
    private let organizations: [BundleKey: Resolution]
    private let byBundle: [BundleKey: [App]]
    private let byID: [String: App]

    /// Ids are compared as bytes: Swift's String equality is canonical equivalence.
    private struct BundleKey: Hashable {
        let bytes: [UInt8]
        init(_ text: String) { bytes = Array(text.utf8) }
    }

    /// The directory of some apps.
    package init(version: Int64, apps: [App]) {
        self.version = version
        var organizations: [BundleKey: Resolution] = [:]
        var byBundle: [BundleKey: [App]] = [:]
        var byID: [String: App] = [:]
        for app in apps {
            let key = BundleKey(app.bundleID)
            byBundle[key, default: []].append(app)
            byID[app.id] = app
            switch organizations[key] {
            case nil, .some(.none): organizations[key] = .organization(app.organization)
            case .organization(let other) where other == app.organization: break
            case .organization, .several: organizations[key] = .several
            }
        }
        self.organizations = organizations
        self.byBundle = byBundle
        self.byID = byID
    }

    /// The apps of Apple's store with a bundle id: one for each team of each organization that connected it.
    package func attestable(_ bundleID: String) -> [App] {
        (byBundle[BundleKey(bundleID)] ?? []).filter { $0.store == .appStore && !$0.team.isEmpty }
    }

    /// The app with an id; nil once it is disconnected.
    package func app(id: String) -> App? { byID[id] }

    /// What a bundle id resolves to.
    package func resolve(_ bundleID: String) -> Resolution { organizations[BundleKey(bundleID)] ?? .none }

    /// The text that is published.
    package static func encode(_ apps: [App]) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginArray()
        for app in apps {
            writer.beginObject()
            writer.key("organization")
            writer.string(app.organization)
            writer.key("id")
            writer.string(app.id)
            writer.key("bundleId")
            writer.string(app.bundleID)
            writer.key("store")
            writer.string(app.store.rawValue)
            writer.key("team")
            writer.string(app.team)
            if app.allowsDevelopment { writer.member("development", true) }
            writer.member("attestedPerMinute", app.attestedPerMinute.map { Int64($0) })
            writer.endObject()
        }
        writer.endArray()
        return writer.bytes
    }

    /// Reads published text.
    /// - Throws: `JSONError` when it is not what `encode` writes; no retry helps until it is published anew.
    package init(version: Int64, published body: [UInt8]) throws(JSONError) {
        let document = try JSONDocument(parsing: body)
        guard document.root.kind == .array else { throw JSONError("the app directory is not an array") }
        var apps: [App] = []
        for element in document.root.elements {
            guard let organization = element["organization"]?.string, let id = element["id"]?.string,
                let bundleID = element["bundleId"]?.string, let team = element["team"]?.string,
                let store = element["store"]?.string.flatMap(PurchaseStore.init(rawValue:))
            else { throw JSONError("an app of the directory lacks a field") }
            apps.append(
                App(
                    organization: organization, id: id, bundleID: bundleID, store: store, team: team,
                    allowsDevelopment: element["development"]?.bool ?? false,
                    attestedPerMinute: element["attestedPerMinute"]?.int64.flatMap { Int(exactly: $0) }))
        }
        self.init(version: version, apps: apps)
    }
}
