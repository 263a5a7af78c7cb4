import EventLoop
import HTTP
import IngressCore
import Redis
import Synchronization
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(3))) struct StopTests {
    /// Whether the kernel still takes connections on the loop's port.
    private func isListening(_ rig: IngressRig) async -> Bool {
        do {
            _ = try await rig.connect()
            return true
        } catch { return false }
    }

    @Test func aStopAnswersWhatWasAcceptedAndRefusesNewConnections() async throws {
        try await IngressRig.runAlone { rig in
            let part = rig.parts[0]
            let (busy, idle) = (try await rig.connect(), try await rig.connect())
            expectOK(try await idle.exchange(IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody("a"))))
            rig.redis.freeze()
            // One is at work and one waits behind it.
            try await busy.send(
                IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody("b"))
                    + IngressRig.request(SDKRoute.attribute.path, IngressRig.attributeBody("c")))
            try await rig.wait("the write was never handed over") { try await rig.httpCounters().requests == 2 }
            async let stopped: Void = part.loop.run { await part.ingress.stop(graceMilliseconds: 20_000) }
            try await rig.wait("still listening") { await !isListening(rig) }
            #expect(try await idle.readToEnd().isEmpty)
            rig.redis.thaw()
            expectOK(try await busy.readResponse())
            let last = try await busy.readResponse()
            expectOK(last, okBody)
            #expect(last.first("connection") == "close")
            #expect(try await busy.readToEnd().isEmpty)
            try await stopped
            #expect(try await rig.jobCount() == 3)
        }
    }

    @Test func aStopHandsOverTheLastCounts() async throws {
        // The clock stands, so nothing but the stop hands them over.
        try await IngressRig.run({ $0.time = ManualTime() }) { rig in
            let part = rig.parts[0]
            expectOK(try await rig.identify(IngressRig.identifyBody(bundle: "com.nobody.app")), droppedBody)
            #expect(try await rig.unresolved().isEmpty)
            try await part.loop.run { await part.ingress.stop(graceMilliseconds: 0) }
            await part.client.close()
            #expect(try await rig.unresolved() == ["com.nobody.app": 1])
        }
    }

    @Test func aStopWaitsForCountsThatAreOnTheirWay() async throws {
        let time = ManualTime()
        try await IngressRig.runAlone(.init(), { $0.time = time }) { rig in
            let part = rig.parts[0]
            expectOK(try await rig.identify(IngressRig.identifyBody(bundle: "com.nobody.app")), droppedBody)
            // The directory's first look is over and, a turn later, the wait for its next one has begun.
            try await rig.wait("the look has no answer") { try await part.loop.run { part.client.inFlight == 0 } }
            await part.loop.sleep(milliseconds: 0)
            rig.redis.freeze()
            time.advance(milliseconds: 1000)
            // The counts and the look at the directory.
            try await rig.wait("the counts did not leave") { try await part.loop.run { part.client.inFlight == 2 } }
            let hasStopped = Mutex(false)
            async let stopped: Void = part.loop.run {
                await part.ingress.stop(graceMilliseconds: 0)
                hasStopped.withLock { $0 = true }
            }
            try await rig.wait("still listening") { await !isListening(rig) }
            // Some turns of the loop, in which a stop that does not wait would end.
            for _ in 0..<20 { _ = try await rig.httpCounters() }
            #expect(!hasStopped.withLock { $0 })
            rig.redis.thaw()
            try await stopped
            await part.client.close()
            #expect(try await rig.unresolved() == ["com.nobody.app": 1])
        }
    }

    @Test func aStopDoesNotWaitLongerThanItsGrace() async throws {
        try await IngressRig.runAlone { rig in
            let part = rig.parts[0]
            let client = try await rig.connect()
            rig.redis.freeze()
            try await client.send(IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody()))
            try await rig.wait("the write was never handed over") { try await rig.httpCounters().requests == 1 }
            async let stopped: Void = part.loop.run { await part.ingress.stop(graceMilliseconds: 50) }
            // Ended without an answer, while the write is still on its way.
            #expect(try await client.readToEnd().isEmpty)
            rig.redis.thaw()
            try await stopped
        }
    }
}
