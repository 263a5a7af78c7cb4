import JSON
import Testing
import Wire

@Suite struct TimingTests {
    /// Prints, asserts nothing about time: machines differ. Worth reading in release builds only.
    @Test func identifyIsReadCheckedAndEncodedWithinMicroseconds() throws {
        let body = Array(Fixture.identify.utf8)
        let parser = JSONParser()
        #if DEBUG
            let rounds = 500
        #else
            let rounds = 100_000
        #endif
        let clock = ContinuousClock()
        var bytes = 0
        let parsing = try clock.measure {
            for _ in 0..<rounds { bytes += try parser.parse(body).count }
        }
        let validating = try clock.measure {
            for _ in 0..<rounds {
                bytes += try Validated<IdentifyWrite>(body: body, using: parser).write.attributes.count
            }
        }
        let encoding = try clock.measure {
            for _ in 0..<rounds {
                bytes += try Validated<IdentifyWrite>(body: body, using: parser).write.encodePayload().count
            }
        }
        let payload = try Validated<IdentifyWrite>(body: body, using: parser).write.encodePayload()
        let decoding = try clock.measure {
            for _ in 0..<rounds { bytes += try IdentifyWrite(payload: payload, using: parser).attributes.count }
        }
        let each = { (total: Duration) in "\(Int(total / Duration.nanoseconds(rounds))) ns" }
        print(
            "identify of \(body.count) bytes: parse \(each(parsing)), parse and validate \(each(validating)),",
            "and encode \(each(encoding)); decode \(each(decoding))")
        #expect(bytes > 0)
    }
}
