import Store
import TestSupport
import Wire

/// Sets of jobs over few users, keys, purchases and stamps, so that everything collides with everything.
enum JobGenerator {
    static func jobs(set: Int, _ random: inout SeededGenerator) -> [StampedWrite] {
        let organizations = ["p\(set)a", "p\(set)b"]
        let stamps: Int64 = random.chance(50) ? 8 : 60
        let manyKeys = random.chance(4)
        return (0..<Int.random(in: 6...36, using: &random)).map { _ in
            StampedWrite(
                organization: random.chance(80) ? organizations[0] : organizations[1],
                stamp: Int64.random(in: 0..<stamps, using: &random),
                content: random.chance(50)
                    ? .identify(identify(manyKeys: manyKeys, &random)) : .attribute(attribute(&random)))
        }
    }

    private static func proof(_ random: inout SeededGenerator) -> WriteProof {
        let attested = random.chance(20)
        return WriteProof(
            attested: attested,
            unattestedReason: attested ? nil : random.pick([nil, "", "pending", "simulator", "other"]),
            deviceID: attested ? random.pick(["dev_a", "dev_b"]) : nil,
            addressHash: random.pick([nil, "00ff", "a0b1"]))
    }

    private static func identify(manyKeys: Bool, _ random: inout SeededGenerator) -> IdentifyWrite {
        var attributes: [String: String?] = [:]
        let count = manyKeys ? Int.random(in: 60...200, using: &random) : Int.random(in: 0...3, using: &random)
        for _ in 0..<count {
            let key = manyKeys ? "key\(Int.random(in: 0..<900, using: &random))" : random.pick(["a", "b", "B", "ab"])
            let values: [String?] = [nil, "1", "\"x\"", "\"\\\"\"", "true", "1E400", "10", "2"]
            attributes[key] = .some(random.pick(values))
        }
        return IdentifyWrite(
            appUserID: manyKeys ? "u1" : random.pick(["u1", "u2", "$anon_3"]), bundleID: "com.example.app",
            platform: random.pick([nil, nil, "ios", "android"]), osVersion: random.pick([nil, "26.2", "9.0"]),
            deviceModel: random.pick([nil, "iPhone17,2"]), locale: random.pick([nil, "en_US", "de", ""]),
            attributes: attributes.map { .init(key: $0.key, value: $0.value) }, proof: proof(&random))
    }

    private static func attribute(_ random: inout SeededGenerator) -> AttributeWrite {
        let purchase = random.pick(["T1", "T2"])
        var evidence = AttributeWrite.Evidence.none
        if random.chance(40) {
            evidence = .verified(facts(random.chance(80) ? purchase : "T9", &random))
        } else if random.chance(20) {
            evidence = random.pick([.refused(reason: "bad_signature"), .unverified(jws: "a.b.c")])
        }
        return AttributeWrite(
            appUserID: random.pick(["u1", "u2", "$anon_3"]),
            bundleID: random.pick(["com.example.app", "com.example.other"]),
            store: random.chance(85) ? .appStore : .playStore, originalTransactionID: purchase,
            productID: random.pick([nil, "pro", "max"]), evidence: evidence, proof: proof(&random))
    }

    /// Everything follows from the transaction, the signing time and the digest, as with real receipts: equal digests
    /// are equal payloads.
    private static func facts(_ purchase: String, _ random: inout SeededGenerator) -> TransactionFacts {
        let number = Int.random(in: 0..<2, using: &random)
        let signed = Int64.random(in: 1_000..<1_003, using: &random)
        let digest = random.pick(["0a", "a0", "ff"])
        var own = SeededGenerator(seed: UInt64(signed) * 1_000 + UInt64(number) * 10 + UInt64(digest.utf8.first!))
        return TransactionFacts(
            transactionID: "\(purchase)-\(number)", originalTransactionID: purchase, bundleID: "com.example.app",
            productID: own.pick(["signed.pro", "signed.max"]), environment: own.pick(["Production", "Sandbox"]),
            purchaseDate: own.pick([100, 200]), originalPurchaseDate: own.pick([nil, 100]),
            expiresDate: own.pick([nil, 900]), signedDate: signed, type: own.pick([nil, "Consumable"]),
            ownership: own.pick([nil, "PURCHASED", "FAMILY_SHARED"]), revocationDate: own.pick([nil, 800]),
            revocationReason: own.pick([nil, 0, 1]), isUpgraded: own.pick([nil, true, false]),
            price: own.pick([nil, 990]), currency: own.pick([nil, "USD"]), storefront: own.pick([nil, "USA"]),
            appAccountToken: own.pick([nil, "7c9e6679-7425-40de-944b-e07fc1f90ae7"]), quantity: own.pick([nil, 1]),
            payloadDigest: digest)
    }
}
