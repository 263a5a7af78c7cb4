import Jobs
import Testing

@Suite struct JobHeaderTests {
    private let header = JobHeader(
        kind: .attribute, version: 3, stamp: 1_795_996_800_000_001, attempts: 2, organization: "demo",
        enqueuedMilliseconds: 1_795_996_800_000, expiresMilliseconds: 5, traceparent: "00-ab-cd-01",
        replyTo: "host-1", correlationID: "c7")

    @Test func whatWasEncodedIsReadBack() {
        #expect(JobHeader(encoded: Array(header.encoded.utf8)) == header)
        #expect(
            header.encoded
                == "attribute|3|1795996800000001|2|demo|1795996800000|5|00-ab-cd-01|host-1|c7")
    }

    @Test(arguments: [
        "", "|", "identify|1|1|0|demo|1|0||", "identify|1|1|0|demo|1|0||||", "identify|x|1|0|demo|1|0|||",
        "identify|1|0|0|demo|1|0|||", "identify|1|9007199254740992|0|demo|1|0|||", "identify|1|-5|0|demo|1|0|||",
        "|1|1|0|demo|1|0|||", "identify|1|1|0||1|0|||", "identify|1|99999999999999999999|0|demo|1|0|||",
        "identify|-1|1|0|demo|1|0|||", "identify|1|1|-1|demo|1|0|||", "identi\u{0}fy|1|1|0|demo|1|0|||",
        "identify|1|1|0|de mo|1|0|||", "identify|1|1|0|demo|1|0||é|",
    ])
    func otherTextIsRefused(_ text: String) {
        #expect(JobHeader(encoded: Array(text.utf8)) == nil)
    }

    @Test func delaysDoubleUpToTheCapAndJitterOnlyUpward() {
        let ladder = RetryLadder(baseMilliseconds: 100, capMilliseconds: 1000, maxAttempts: 6)
        #expect((1...5).map { ladder.delay(afterAttempts: $0, unit: 0) } == [100, 200, 400, 800, 1000])
        #expect(ladder.delay(afterAttempts: 1, unit: 0.999) == 119)
        #expect(ladder.delay(afterAttempts: 6, unit: 0) == nil)
    }

    @Test func laneNamesRoundTrip() {
        for lane in Lane.allCases { #expect(Lane(name: lane.name) == lane) }
        #expect(Lane(name: "writes") == nil)
    }
}
