import TestSupport

/// What an app sends, and what must be in the store afterwards: a plain model of the rules, written beside the
/// product and not from it.
///
/// Every script is one person's: anonymous purchase, login, re-post. The writes of a script are sent one after the
/// other, so their stamps follow its order; scripts run side by side.
struct Workload {
    struct Call: Sendable {
        let path: String
        let body: String
        /// The bundle is nobody's: answered `stored: false` and dropped.
        var isDropped = false
        /// The purchase that it links, for an attribute call.
        var lineage: String?
    }

    struct Customer: Equatable, Sendable {
        /// Key → JSON text of the value.
        var attributes: [String: String] = [:]
        var verified = false
    }

    struct Purchase: Equatable, Sendable {
        var owner: String
        var jwsVerified = false
        var productID: String?
        var environment: String?
        /// Links, in order: each change of owner is a move.
        var links: [String] = []

        /// Owners in order, repetitions folded.
        var moves: [String] { links.reduce(into: []) { if $0.last != $1 { $0.append($1) } } }
    }

    private(set) var scripts: [[Call]] = []
    private(set) var customers: [String: Customer] = [:]
    private(set) var purchases: [String: Purchase] = [:]
    /// One row of proof for each accepted attribute call.
    private(set) var ownerWrites = 0
    private(set) var dropped = 0

    static let bundle = "com.example.app"

    /// - Parameters:
    ///   - count: people; each sends eight writes.
    ///   - first: number of the first of them; no two of a test may have the same.
    ///   - pki: signs what Apple would sign.
    ///   - stranger: signs what nobody should believe.
    init(people count: Int, from first: Int = 0, pki: TestPKI, stranger: TestPKI) {
        for index in first..<(first + count) { add(index, pki, stranger) }
    }

    private mutating func add(_ index: Int, _ pki: TestPKI, _ stranger: TestPKI) {
        let anonymous = "$anon_\(index)"
        let user = "user_\(index)"
        let first = "20000\(100_000 + index)"
        let second = "30000\(100_000 + index)"
        var script: [Call] = []

        script.append(identify(anonymous, #"{"installed":"\#(index)"}"#))
        customers[anonymous, default: .init()].attributes = ["installed": "\"\(index)\""]

        script.append(attribute(anonymous, first, product: "raw.product"))
        link(first, anonymous, product: "raw.product")

        let genuine = pki.sign(
            TestPKITransaction().with {
                $0.transactionID = first
                $0.originalTransactionID = first
                $0.productID = "signed.product"
                $0.environment = index % 2 == 0 ? "Production" : "Sandbox"
            })
        // Every tenth body names a lineage that its signed transaction does not: only the signed one is linked.
        let named = index % 10 == 0 ? "99999\(index)" : first
        script.append(attribute(anonymous, named, jws: genuine, linking: first))
        link(first, anonymous)
        purchases[first]?.jwsVerified = true
        purchases[first]?.productID = "signed.product"
        purchases[first]?.environment = index % 2 == 0 ? "Production" : "Sandbox"

        script.append(identify(user, #"{"plan":"pro","level":1e2,"beta":true}"#))
        customers[user, default: .init()].attributes = ["plan": "\"pro\"", "level": "1e2", "beta": "true"]

        script.append(attribute(user, first, product: "raw.product"))
        link(first, user)

        let forged = stranger.sign(
            TestPKITransaction().with {
                $0.transactionID = second
                $0.originalTransactionID = second
            })
        script.append(attribute(user, second, product: "other.product", jws: forged))
        link(second, user, product: "other.product")

        script.append(
            Call(
                path: "identify", body: #"{"appUserId":"\#(user)","bundleId":"com.nobody.\#(index % 3)"}"#,
                isDropped: true))
        dropped += 1

        script.append(identify(user, #"{"plan":null,"level":101}"#))
        customers[user]?.attributes = ["level": "101", "beta": "true"]
        scripts.append(script)
    }

    private func identify(_ user: String, _ attributes: String) -> Call {
        Call(
            path: "identify",
            body: #"{"appUserId":"\#(user)","bundleId":"\#(Self.bundle)","platform":"ios","attributes":\#(attributes)}"#
        )
    }

    private func attribute(
        _ user: String, _ id: String, product: String? = nil, jws: String? = nil, linking lineage: String? = nil
    ) -> Call {
        var body = #"{"appUserId":"\#(user)","bundleId":"\#(Self.bundle)","originalTransactionId":"\#(id)""#
        if let product { body += #","productId":"\#(product)""# }
        if let jws { body += #","jws":"\#(jws)""# }
        return Call(path: "attribute", body: body + "}", lineage: lineage ?? id)
    }

    private mutating func link(_ id: String, _ owner: String, product: String? = nil) {
        ownerWrites += 1
        var purchase = purchases[id] ?? Purchase(owner: owner)
        if purchase.productID == nil { purchase.productID = product }
        purchase.owner = owner
        purchase.links.append(owner)
        purchases[id] = purchase
        customers[owner, default: .init()].verified = false
    }

    /// Whether a customer reads VERIFIED: some write of its own, for a purchase it now owns, carried proof. Here only
    /// the anonymous ids ever prove something, and each loses its purchase at login.
    func isVerified(_ customer: String) -> Bool { false }
}
