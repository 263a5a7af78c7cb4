internal import Bytes
internal import JSON
internal import Jobs
internal import Wire

extension FuzzTarget {
    /// Each input is tried as every body of the SDK API, every payload and header of a job, and what else is published or
    /// sent as text. What the door takes a worker reads, and what a worker reads is the same when it is written again.
    static let wire = FuzzTarget(name: "wire", maximumBytes: 2048) { bytes throws(BrokenProperty) in
        let parser = JSONParser()
        try checkBodies(bytes, parser)
        try checkPayloads(bytes, parser)
        try checkHeaders(bytes)
    }

    private static func checkBodies(_ bytes: [UInt8], _ parser: JSONParser) throws(BrokenProperty) {
        if let write = try taken({ () throws(WireError) in try Validated<IdentifyWrite>(body: bytes, using: parser) }) {
            try write.write.checkCarried(using: parser)
        }
        if let write = try taken({ () throws(WireError) in try Validated<AttributeWrite>(body: bytes, using: parser) })
        {
            try write.write.checkCarried(using: parser)
        }
        if let call = try taken({ () throws(WireError) in try Validated<AttestCall>(body: bytes, using: parser) }) {
            let write = call.write
            let enrolment = Enrolment(
                keyID: write.keyID, bundleID: write.bundleID, callDigest: write.digest.bytes,
                tokenHash: write.digest.bytes,
                evidence: .unverified(
                    attestation: write.attestation, clientDataHash: write.digest.bytes,
                    candidates: [
                        .init(organization: "acme", appID: "app_1", teamID: FuzzFacts.teamID, allowsDevelopment: false)
                    ]))
            try enrolment.checkCarried(using: parser)
        }
        if let call = try taken({ () throws(WireError) in try Validated<AdServicesCall>(body: bytes, using: parser) }) {
            let sealer = AdServicesToken.sealer(secret: Array(repeating: 1, count: 32))
            let write = call.write.sealed(by: sealer, organization: "acme", proof: WriteProof())
            try write.checkCarried(using: parser)
            let context = AdServicesToken.context(
                organization: "acme", bundleID: write.bundleID, subject: write.subject)
            try require(
                sealer.open(write.sealedToken, context: context) == Array(call.write.token.utf8),
                "a sealed token does not open")
        }
    }

    /// What a body says; nil when it is refused, and then the refusal must be an answer that can be sent.
    private static func taken<Write>(
        _ read: () throws(WireError) -> Validated<Write>
    ) throws(BrokenProperty) -> Validated<Write>? {
        do throws(WireError) {
            return try read()
        } catch {
            let answer = try? JSONDocument(parsing: error.errorBody)
            try require(answer?.root["ok"]?.bool == false, "the answer to a refused body is not JSON")
            try require((400..<500).contains(error.status), "\(error.status) for a body")
            return nil
        }
    }

    private static func checkPayloads(_ bytes: [UInt8], _ parser: JSONParser) throws(BrokenProperty) {
        if let write = try? IdentifyWrite(payload: bytes, using: parser) { try write.checkCarried(using: parser) }
        if let write = try? AttributeWrite(payload: bytes, using: parser) { try write.checkCarried(using: parser) }
        if let write = try? AdServicesWrite(payload: bytes, using: parser) { try write.checkCarried(using: parser) }
        if let enrolment = try? Enrolment(payload: bytes, using: parser) { try enrolment.checkCarried(using: parser) }
        if let answer = EnrolmentAnswer(payload: bytes, using: parser) {
            let again = EnrolmentAnswer(payload: answer.encodePayload(), using: parser)
            try require(again == answer, "an answer to an enrolment changes")
        }
        if let question = try? DeviceQuestion(payload: bytes) {
            try require(question.tokenHash.count == 32, "a token's digest of another length")
            let again = try? DeviceQuestion(payload: question.encodePayload())
            try require(again == question, "a question for a device changes")
        }
        if let facts = DeviceFacts.decode(bytes) {
            try require(DeviceFacts.encode(facts) == bytes, "facts of a device change")
        }
        if let directory = try? AppDirectory(version: 1, published: bytes) {
            _ = directory.resolve(FuzzFacts.bundleID)
            _ = directory.attestable(FuzzFacts.bundleID)
        }
    }

    private static func checkHeaders(_ bytes: [UInt8]) throws(BrokenProperty) {
        if let header = JobHeader(encoded: bytes) {
            try require(JobHeader(encoded: Array(header.encoded.utf8)) == header, "a job's header changes")
        }
        let text = String(decoding: bytes, as: UTF8.self)
        if case .deviceToken(let token) = SDKAuthorization(header: text) {
            try require(token.utf8.count == 3 + SDKLimits.deviceTokenCharacters, "a token of another length")
        }
        _ = UnattestedReason(header: Array(text.utf8)[...])
        if let id = OrganizationID(text) {
            try require(JobHeader.isPlain(id.text), "an organization's id that no header can hold")
        }
    }
}

/// What jobs carry.
private protocol JobPayload: Equatable {
    func encodePayload() -> [UInt8]
    init(payload: [UInt8], using parser: JSONParser) throws(WireError)
}

extension JobPayload {
    /// Throws unless it is the same when it was written and read. Also by its bytes: texts that Unicode calls equal are
    /// other ids.
    fileprivate func checkCarried(using parser: JSONParser) throws(BrokenProperty) {
        let payload = encodePayload()
        let read: Self
        do {
            read = try Self(payload: payload, using: parser)
        } catch {
            throw BrokenProperty("a payload of \(Self.self) is not read: \(error)")
        }
        try require(read == self && read.encodePayload() == payload, "a payload of \(Self.self) changes")
    }
}

extension IdentifyWrite: JobPayload {}
extension AttributeWrite: JobPayload {}
extension AdServicesWrite: JobPayload {}
extension Enrolment: JobPayload {}
