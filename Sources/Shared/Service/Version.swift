/// What this build is.
package enum Version {
    /// Semantic version (semver.org 2.0.0) of every binary of this source tree; the one place where it stands.
    package static let text = "0.1.0"
}
