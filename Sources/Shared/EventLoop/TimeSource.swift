internal import CLinux
internal import Synchronization

/// Where a component reads the time. Injected everywhere, so that a test decides what time it is.
package protocol TimeSource: Sendable {
    /// Nanoseconds of a clock that never goes back; its zero is arbitrary. For delays and deadlines.
    var monotonicNanoseconds: Int64 { get }
    /// Microseconds since 1970 UTC. For facts that people and other machines read.
    var wallMicroseconds: Int64 { get }
    /// Calls `wake` whenever time was moved by hand, so that sleeping timers look again. The system's clock moves by
    /// itself and never calls it.
    func onJump(_ wake: @escaping @Sendable () -> Void)
}

extension TimeSource {
    /// Milliseconds since 1970 UTC.
    package var wallMilliseconds: Int64 { wallMicroseconds / 1000 }
}

/// The machine's clocks.
package struct SystemTime: TimeSource {
    package init() {}
    package var monotonicNanoseconds: Int64 { clinux_monotonic_ns() }
    package var wallMicroseconds: Int64 { clinux_wall_us() }
    package func onJump(_ wake: @escaping @Sendable () -> Void) {}
}

/// A clock that stands still until a test moves it.
package final class ManualTime: TimeSource {
    private struct State {
        var monotonic: Int64 = 0
        var wall: Int64
        var listeners: [@Sendable () -> Void] = []
    }
    private let state: Mutex<State>

    /// - Parameter wallMicroseconds: where the wall clock stands at first; 2026-11-30T00:00:00Z by default.
    package init(wallMicroseconds: Int64 = 1_795_996_800_000_000) {
        state = Mutex(State(wall: wallMicroseconds))
    }

    package var monotonicNanoseconds: Int64 { state.withLock { $0.monotonic } }
    package var wallMicroseconds: Int64 { state.withLock { $0.wall } }

    package func onJump(_ wake: @escaping @Sendable () -> Void) {
        state.withLock { $0.listeners.append(wake) }
    }

    /// Moves both clocks forward and wakes every loop that sleeps on them.
    package func advance(milliseconds: Int64) {
        let listeners = state.withLock { state in
            state.monotonic += milliseconds * 1_000_000
            state.wall += milliseconds * 1000
            return state.listeners
        }
        for listener in listeners { listener() }
    }
}
