import IngressCore
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(3))) struct LimitTests {
    @Test func theThirtyFirstWriteAtOnceOfADeviceIsA429() async throws {
        try await IngressRig.run({ $0.unattestedPerMinute = 30 }) { rig in
            // The limit gives back one write in two seconds: a burst that took longer says nothing, so it is repeated.
            for attempt in 1... {
                try #require(attempt < 20, "no 31 writes within two seconds")
                let began = ContinuousClock().now
                let responses = try await burst(rig, "user_\(attempt)", count: 31)
                for response in responses.dropLast() { expectOK(response) }
                if ContinuousClock().now - began >= .seconds(2) { continue }
                try expectLimited(responses[30], seconds: 1...60)
                #expect(try await rig.jobCount() >= 30)
                // Another user of the app is not concerned.
                expectOK(try await rig.identify(IngressRig.identifyBody("another")))
                #expect(try await rig.counters().limited >= 1)
                return
            }
        }
    }

    /// Writes of one user in one piece on one connection, which keeps their order; both calls count together.
    private func burst(_ rig: IngressRig, _ user: String, count: Int) async throws -> [RawHTTPClient.Response] {
        let client = try await rig.connect()
        try await client.send(
            (0..<count).map { number in
                number % 2 == 0
                    ? IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody(user))
                    : IngressRig.request(SDKRoute.attribute.path, IngressRig.attributeBody(user))
            }.joined())
        var responses: [RawHTTPClient.Response] = []
        for _ in 0..<count { responses.append(try await client.readResponse()) }
        return responses
    }

    @Test func theSameUserOfAnotherAppIsAnotherDevice() async throws {
        try await IngressRig.run({
            $0.unattestedPerMinute = 1
            $0.apps = [IngressRig.demo, IngressRig.app("demo", "com.demo.second")]
        }) { rig in
            expectOK(try await rig.identify(IngressRig.identifyBody()))
            expectOK(try await rig.identify(IngressRig.identifyBody(bundle: "com.demo.second")))
            try expectLimited(try await rig.identify(IngressRig.identifyBody()), seconds: 1...60)
        }
    }

    /// Two processes of one loop each, then one process of two loops on one port.
    @Test(arguments: [false, true])
    func anyNumberOfLoopsAndProcessesShareOneLimit(sharesPort: Bool) async throws {
        try await IngressRig.run({
            $0.unattestedPerMinute = 30
            $0.loops = 2
            $0.sharesPort = sharesPort
        }) { rig in
            var clients: [RawHTTPClient] = []
            for number in 0..<62 { clients.append(try await rig.connect(number % 2)) }
            let began = ContinuousClock().now
            let responses = try await withThrowingTaskGroup(of: RawHTTPClient.Response.self) { group in
                for client in clients {
                    group.addTask {
                        try await client.exchange(
                            IngressRig.request(SDKRoute.attribute.path, IngressRig.attributeBody()))
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            // Each two seconds give back one write: on a machine at rest this is 30 exactly.
            let given = Int((ContinuousClock().now - began) / .seconds(2))
            let taken = responses.count { $0.status == 200 }
            #expect((30...(30 + given)).contains(taken))
            #expect(try await rig.jobCount() == taken)
            for response in responses where response.status != 200 {
                try expectLimited(response, seconds: 1...60)
            }
            #expect(try await rig.identify(IngressRig.identifyBody("user_43"), part: 1).status == 200)
        }
    }

    @Test func noLimitIsAsked() async throws {
        try await IngressRig.run { rig in
            let client = try await rig.connect()
            try await client.send(
                String(
                    repeating: IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody()), count: 100))
            for _ in 0..<100 { #expect(try await client.readResponse().status == 200) }
        }
    }
}
