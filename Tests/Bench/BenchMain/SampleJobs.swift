import Jobs
import Store
import TestSupport
import Wire

/// Jobs as a large app makes them: users spread evenly over organizations, bodies of about 390 bytes, no two alike.
/// A user comes again only after all others have: the jobs of a batch are those of different users, as they are where
/// users are many.
struct SampleJobs: Sendable {
    let users: Int
    let organizations: Int
    /// One job in so many is an attribute call; 0 for none. Every other of those carries a signed transaction.
    let attributeEvery: Int
    /// Each job leaves something of its own behind, so that the store shows which were done: an attribute `job_<n>`, or
    /// a purchase.
    var isUnique = false

    /// Prime to every number of users that is a power of ten: the walk visits all of them.
    private static let stride = 7_919

    init(users: Int, organizations: Int, attributeEvery: Int) {
        self.users = users
        self.organizations = organizations
        self.attributeEvery = attributeEvery
    }

    func user(ofJob number: Int) -> Int { Int(Int64(number) &* Int64(Self.stride) % Int64(users)) }

    func organization(ofUser user: Int) -> String { "org_\(user % organizations)" }

    static func appUserID(_ user: Int) -> String {
        let digits = String(user)
        return "$anon:" + String(repeating: "0", count: max(0, 7 - digits.count)) + digits
            + "c0ffee8f14e45fceea167a5a36"
    }

    /// - Parameter stamp: microseconds; the queue's, or what stands for it.
    func write(_ number: Int, stamp: Int64) -> StampedWrite {
        let user = user(ofJob: number)
        if attributeEvery > 0 && number % attributeEvery == attributeEvery - 1 {
            return attribute(number, user, stamp)
        }
        var attributes: [(String, String?)] = [
            ("email", "\"user\(user).longer.name@example.com\""), ("plan", "\"premium_yearly_\(number % 7)\""),
            ("utm_source", "\"spring_campaign_newsletter_2026_variant_b_second_wave_returning_users\""),
        ]
        if isUnique { attributes.append(("job_\(number)", "true")) }
        return SampleWrite.identify(
            Self.appUserID(user), at: stamp, organization: organization(ofUser: user),
            platform: user % 2 == 1 ? "ios" : "android", osVersion: "17.4.1", deviceModel: "iPhone15,3",
            locale: "en_US", attributes: attributes, reason: "pending")
    }

    private func attribute(_ number: Int, _ user: Int, _ stamp: Int64) -> StampedWrite {
        let purchase = String(2_000_000_000_000 + (isUnique ? number : user))
        let facts = SampleWrite.facts(
            String(3_000_000_000_000 + number), of: purchase, signed: stamp / 1_000,
            product: "com.example.app.premium.yearly", purchased: stamp / 1_000,
            expires: stamp / 1_000 + 31_536_000_000,
            digest: "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef")
        return SampleWrite.attribute(
            Self.appUserID(user), purchase, at: stamp, organization: organization(ofUser: user),
            product: "com.example.app.premium.yearly", facts: number / attributeEvery % 2 == 0 ? facts : nil)
    }

    /// The kind and the payload that the queue carries for a write.
    static func job(_ write: StampedWrite) -> (kind: JobKind, payload: [UInt8]) {
        switch write.content {
        case .identify(let identify): (.identify, identify.encodePayload())
        case .attribute(let attribute): (.attribute, attribute.encodePayload())
        case .adServices(let token): (.adServices, token.encodePayload())
        }
    }
}
