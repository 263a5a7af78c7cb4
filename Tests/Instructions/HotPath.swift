import Bytes
import HTTP
import JSON
import RedisQueue
import Store
import TestSupport
import Trust
import Wire

/// What every write passes, without sockets and clocks, so that its instructions can be counted.
enum HotPath: String, CaseIterable {
    /// The bytes of one POST identify: HTTP, JSON, the rules of its fields, the payload of its job.
    case identify
    /// The digests and texts that an identify needs beside: the customer's id, the partition, the limit's key, the answer.
    case door
    /// One signed transaction whose chain is known.
    case jws
    /// A batch of 256 writes of 200 users, joined before it is written.
    case fold

    /// Makes what the path needs, and returns the path. Its result is read, so that no work is left out.
    func prepared() throws -> (Int) throws -> Int {
        switch self {
        case .identify:
            let requests = (0..<64).map(Self.request)
            let parser = JSONParser()
            var http = HTTPRequestParser()
            return { round in
                let request = requests[round % requests.count]
                var offset = 0
                guard
                    case .request(_, let body) = http.parse(
                        request.span, from: &offset, bodyLimit: { _ in 65_536 })
                else { throw Failure() }
                return try Validated<IdentifyWrite>(body: body, using: parser).write.encodePayload().count
            }
        case .door:
            let users = (0..<64).map { "user_\($0 * 7919 % 10_000)" }
            let keys = QueueKeys(prefix: "ratchet:", partitions: 64)
            return { round in
                let user = users[round % users.count]
                let partition = keys.partition(organization: "demo", subject: user)
                let limit = SHA256Digest(ofParts: ["ratchet.unattested", "com.example.app", user])
                let id = UUIDv8.customer(organization: "demo", appUserID: user).description
                return keys.limit(partition, limit).count + SuccessBody.identify(id: id).count
            }
        case .jws:
            let pki = TestPKI()
            // 64 tokens in turn, so that each signature is checked.
            let verifier = try SignedTransactionVerifier(
                roots: [TrustedRoot(der: pki.rootDER)], signaturesRemembered: 1)
            let tokens = (0..<64).map { index in
                pki.sign(
                    TestPKITransaction().with {
                        $0.transactionID = String(index)
                        $0.originalTransactionID = String(index)
                    })
            }
            return { round in
                let verdict = verifier.verify(
                    jws: tokens[round % tokens.count],
                    expectation: TransactionExpectation(bundleID: "com.example.app"),
                    nowMilliseconds: 1_795_996_800_000)
                guard case .verified(let facts) = verdict else { throw Failure() }
                return facts.transactionID.utf8.count
            }
        case .fold:
            let writes = (0..<256).map { index in
                index % 4 == 0
                    ? SampleWrite.attribute(
                        "user_\(index % 200)", "T\(index)", at: Int64(index), organization: "demo",
                        facts: SampleWrite.facts("\(index)", of: "T\(index)"))
                    : SampleWrite.identify(
                        "user_\(index % 200)", at: Int64(index), organization: "demo", platform: "ios",
                        osVersion: "26.2", deviceModel: "iPhone17,2", locale: "en_US",
                        attributes: [("plan", "\"pro\""), ("session", "\(index)")])
            }
            return { _ in WriteFold(writes).customerCount }
        }
    }

    struct Failure: Error {}

    /// Varied as a benchmark's are: no two have the same user, session or length.
    private static func request(_ index: Int) -> [UInt8] {
        let body =
            #"{"appUserId":"user_\#(index * 7919 % 10_000)","bundleId":"com.example.app","platform":"ios","#
            + #""osVersion":"26.2","deviceModel":"iPhone17,2","locale":"en_US","attributes":{"plan":"pro","#
            + #""session":\#(index * index),"campaign":"spring_sale_2026","experiment":"paywall_b","country":"DE","#
            + #""onboarded":true,"level":\#(index % 97),"referrer":"https://example.com/landing?utm=\#(index)"}}"#
        return Array(
            ("POST /api/sdk/v1/identify HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Type: application/json\r\n"
                + "X-RevenueHog-Unattested: pending\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)").utf8)
    }
}
