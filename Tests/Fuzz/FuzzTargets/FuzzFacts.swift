/// What the files of Fixtures were made for.
package enum FuzzFacts {
    package static let bundleID = "com.example.app"
    package static let teamID = "ABCDE12345"
    package static let challenge = "challenge"
    /// 2026-01-01: inside the days of every certificate.
    package static let nowSeconds: Int64 = 1_767_225_600
}
