/// The store a purchase belongs to. Raw values stand in payloads and in the database.
package enum PurchaseStore: String, Sendable, CaseIterable {
    case appStore = "app_store"
    case playStore = "play_store"
}
