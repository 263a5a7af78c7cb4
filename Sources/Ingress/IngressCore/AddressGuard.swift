package import HTTP
internal import Synchronization

/// Bounds what one network address may ask of this process: approximate by design, kept in memory, shared by the
/// process' loops. Everything exact is done by the queue.
package final class AddressGuard: Sendable {
    /// An IPv4 address, or the /64 of an IPv6 one: a home or phone gets a whole /64 and could draw new addresses
    /// from it at will.
    private struct Network: Hashable {
        let high: UInt64
        let low: UInt64
    }

    private struct State {
        /// Theoretical arrival time of each network, nanoseconds (GCRA).
        var arrivals: [Network: Int64] = [:]
    }

    private let state = Mutex(State())
    private let perMinute: Int

    /// Networks remembered at the most. Beyond, the table is cleared of those that have been quiet, and if that frees
    /// less than half of it, wholly: forgetting lets some calls through, remembering all would let strangers fill
    /// memory, and freeing little would have them make every call of theirs walk the table.
    package static let mostNetworks = 100_000
    private static let minuteNanoseconds: Int64 = 60_000_000_000

    /// - Parameter perMinute: calls a minute and at once; 0 for no limit.
    package init(perMinute: Int) { self.perMinute = perMinute }

    /// Counts one call.
    /// - Returns: nil when it may pass, else after how many whole seconds the next one may.
    package func check(_ peer: PeerAddress, nowNanoseconds now: Int64) -> Int? {
        guard perMinute > 0 else { return nil }
        let network = Self.network(peer)
        let interval = Self.minuteNanoseconds / Int64(perMinute)
        return state.withLock { state in
            if state.arrivals.count >= Self.mostNetworks {
                state.arrivals = state.arrivals.filter { $0.value > now }
                if state.arrivals.count > Self.mostNetworks / 2 { state.arrivals.removeAll(keepingCapacity: true) }
            }
            let ahead = max(state.arrivals[network] ?? now, now) + interval - now
            if ahead > Self.minuteNanoseconds {
                return Int((ahead - Self.minuteNanoseconds + 999_999_999) / 1_000_000_000)
            }
            state.arrivals[network] = now + ahead
            return nil
        }
    }

    /// Networks remembered now.
    package var networkCount: Int { state.withLock { $0.arrivals.count } }

    private static func network(_ peer: PeerAddress) -> Network {
        Network(high: peer.high, low: peer.isIPv4 ? peer.low : 0)
    }
}
