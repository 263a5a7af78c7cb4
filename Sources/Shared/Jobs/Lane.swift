/// A queue of one kind of work. Each worker serves the two lanes of its stage, the live one first.
package enum Lane: Int, CaseIterable, Sendable {
    /// Signature work that somebody waits for.
    case verifyLive
    /// Signature work.
    case verify
    /// Database work that somebody waits for.
    case writeLive
    /// Database work.
    case write

    /// The lane's name in keys, commands and metrics.
    package var name: String {
        switch self {
        case .verifyLive: "verify.live"
        case .verify: "verify"
        case .writeLive: "write.live"
        case .write: "write"
        }
    }

    /// The lane with a name, if there is one.
    package init?(name: some StringProtocol) {
        guard let lane = Lane.allCases.first(where: { $0.name == name }) else { return nil }
        self = lane
    }
}

/// What kind of worker serves a lane.
package enum Stage: Sendable {
    /// CPU work on signatures (ratchet-verifier).
    case verify
    /// Database work (ratchet-writer).
    case write

    /// The stage's lanes in the order in which they are emptied.
    package var lanes: [Lane] {
        switch self {
        case .verify: [.verifyLive, .verify]
        case .write: [.writeLive, .write]
        }
    }
}
