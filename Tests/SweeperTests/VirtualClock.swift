import SweeperCore
import Synchronization

/// A clock that leaps to whatever the sweep waits for, up to where a test wants it to stop.
final class VirtualClock: SweepClock {
    private struct State {
        var now: Int64
        var limit: Int64
        var sleeper: UnsafeContinuation<Void, Never>?
        var isAtLimit = false
        var waiter: CheckedContinuation<Void, Never>?
    }
    private let state: Mutex<State>

    init(_ start: Int64) { state = Mutex(State(now: start, limit: start)) }

    var microseconds: Int64 { state.withLock { $0.now } }

    func correct(databaseTime: Int64, took: Int64) {}

    func sleep(until end: Int64, idle: Bool) async {
        while !Task.isCancelled {
            let (leapt, waiter) = state.withLock { state -> (Bool, CheckedContinuation<Void, Never>?) in
                // While something is under way no time passes: what it brings would come too late.
                guard idle else { return (false, nil) }
                state.now = max(state.now, min(end, state.limit))
                if state.now >= end { return (true, nil) }
                state.isAtLimit = true
                defer { state.waiter = nil }
                return (false, state.waiter)
            }
            waiter?.resume()
            if leapt { return }
            await withTaskCancellationHandler {
                await withUnsafeContinuation { continuation in
                    let goOn = state.withLock { state in
                        if Task.isCancelled || (idle && !state.isAtLimit) { return true }
                        state.sleeper = continuation
                        return false
                    }
                    if goOn { continuation.resume() }
                }
            } onCancel: {
                state.withLock { state in
                    defer { state.sleeper = nil }
                    return state.sleeper
                }?.resume()
            }
        }
    }

    /// Moves the clock forward while the sweep is at work.
    func leap(seconds: Int64) { state.withLock { $0.now += seconds * 1_000_000 } }

    /// Lets time pass up to a moment; returns once the sweep has nothing left to do before it.
    func run(until end: Int64) async {
        await withCheckedContinuation { continuation in
            let sleeper = state.withLock { state in
                state.limit = end
                state.isAtLimit = false
                state.waiter = continuation
                defer { state.sleeper = nil }
                return state.sleeper
            }
            sleeper?.resume()
        }
    }
}
