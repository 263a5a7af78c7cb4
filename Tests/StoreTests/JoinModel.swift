import Bytes
import Store
import Wire

/// What the rules of the joins say, in plain loops over a set of jobs; it knows nothing of how the store does it. Each
/// row of each table, and of the view, is one line of text.
enum JoinModel {
    static func lines(_ jobs: [StampedWrite]) -> [String] {
        (customers(jobs) + purchases(jobs) + ownerWrites(jobs) + transactions(jobs)).sorted()
    }

    // MARK: - Customers

    private static func customers(_ jobs: [StampedWrite]) -> [String] {
        var groups: [[UInt8]: [StampedWrite]] = [:]
        for job in jobs { groups[Array((job.organization + "/" + user(job)).utf8), default: []].append(job) }
        return groups.values.map { customer($0) }
    }

    private static func user(_ job: StampedWrite) -> String {
        switch job.content {
        case .identify(let write): write.appUserID
        case .attribute(let write): write.appUserID
        case .adServices: preconditionFailure("no join")
        }
    }

    private static func proof(_ job: StampedWrite) -> WriteProof {
        switch job.content {
        case .identify(let write): write.proof
        case .attribute(let write): write.proof
        case .adServices: preconditionFailure("no join")
        }
    }

    private static func customer(_ jobs: [StampedWrite]) -> String {
        var last: (stamp: Int64, attested: Int, reason: String) = (-1, 0, "")
        var fields: [String: (Int64, String)] = [:]
        var attributes: [String: (stamp: Int64, value: String?)] = [:]
        for job in jobs {
            let proof = proof(job)
            let mark = (job.stamp, proof.attested ? 1 : 0, proof.attested ? "" : proof.unattestedReason ?? "")
            if mark > last { last = mark }
            guard case .identify(let write) = job.content else { continue }
            let sent = [
                ("platform", write.platform), ("os", write.osVersion), ("model", write.deviceModel),
                ("locale", write.locale),
            ]
            for (name, value) in sent {
                guard let value else { continue }
                if (job.stamp, value) > fields[name] ?? (-1, "") { fields[name] = (job.stamp, value) }
            }
            for attribute in write.attributes {
                let known = attributes[attribute.key]
                // A deletion is less than any value of the same stamp.
                if known == nil || job.stamp > known!.stamp
                    || (job.stamp == known!.stamp && (attribute.value ?? "") > (known!.value ?? ""))
                {
                    attributes[attribute.key] = (job.stamp, attribute.value)
                }
            }
        }
        let kept = attributes.sorted { a, b in (a.value.stamp, a.key) > (b.value.stamp, b.key) }.prefix(256)
        let stored = kept.sorted { $0.key < $1.key }
            .map { "\($0.key)=\($0.value.stamp):\($0.value.value ?? "-")" }.joined(separator: ";")
        let device = ["platform", "os", "model", "locale"].map { name -> String in
            guard let (stamp, value) = fields[name] else { return "-@-1" }
            return "\(value)@\(stamp)"
        }.joined(separator: " ")
        let first = jobs[0]
        return """
            \(first.organization) customer \(uuid(first.organization, user(first))) \(user(first)) \
            \(jobs.map(\.stamp).min()!) \(jobs.map(\.stamp).max()!) \(jobs.contains { proof($0).attested }) \
            \(last.stamp) \(last.attested == 1) \(last.reason.isEmpty ? "-" : last.reason) \(device) {\(stored)}
            """
    }

    private static func uuid(_ organization: String, _ user: String) -> String {
        UUIDv8.customer(organization: organization, appUserID: user).description
    }

    // MARK: - Purchases

    private struct Link {
        let job: StampedWrite
        let write: AttributeWrite
        let facts: TransactionFacts?
        var lineage: String { facts?.originalTransactionID ?? write.originalTransactionID }
        var store: String { facts == nil ? write.store.rawValue : "app_store" }
        var agrees: Bool { lineage == write.originalTransactionID }
        var group: String { "\(job.organization) \(store) \(lineage)" }
        var customer: String { uuid(job.organization, write.appUserID) }
        var hash: String { SHA256Digest(of: Array(lineage.utf8)).hex }
    }

    private static func links(_ jobs: [StampedWrite]) -> [[Link]] {
        var groups: [String: [Link]] = [:]
        for job in jobs {
            guard case .attribute(let write) = job.content else { continue }
            var facts: TransactionFacts?
            if case .verified(let verified) = write.evidence { facts = verified }
            let link = Link(job: job, write: write, facts: facts)
            groups[link.group, default: []].append(link)
        }
        return Array(groups.values)
    }

    private static func purchases(_ jobs: [StampedWrite]) -> [String] {
        links(jobs).map { links in
            var bundle: (Int64, String) = (-1, "-")
            var product: (Int64, String) = (-1, "-")
            for link in links where link.agrees {
                bundle = max(bundle, (link.job.stamp, link.write.bundleID), by: <)
                if let id = link.write.productID { product = max(product, (link.job.stamp, id), by: <) }
            }
            let first = links[0]
            return """
                \(first.job.organization) purchase \(first.store) \(first.hash) \(first.lineage) \
                \(links.map(\.job.stamp).min()!) \(links.map(\.job.stamp).max()!) \
                \(links.contains { $0.write.proof.attested }) \(links.contains { $0.facts != nil }) \
                \(bundle.1)@\(bundle.0) \(product.1)@\(product.0)
                """
        }
    }

    private static func max<T>(_ a: T, _ b: T, by less: (T, T) -> Bool) -> T { less(a, b) ? b : a }

    private struct OwnerWrite {
        let stamp: Int64
        let customer: String
        var attested: Bool
        var jws: Bool
        var device: String
        var address: String
        var proven: Bool { attested || jws }
    }

    private static func ownerWrites(_ jobs: [StampedWrite]) -> [String] {
        var lines: [String] = []
        for links in links(jobs) {
            var writes: [OwnerWrite] = []
            for link in links {
                let proof = link.write.proof
                let device = proof.deviceID ?? ""
                let address = proof.addressHash ?? ""
                if let known = writes.firstIndex(where: {
                    $0.stamp == link.job.stamp && $0.customer == link.customer
                }) {
                    writes[known].attested = writes[known].attested || proof.attested
                    writes[known].jws = writes[known].jws || link.facts != nil
                    writes[known].device = max(writes[known].device, device, by: <)
                    writes[known].address = max(writes[known].address, address, by: <)
                } else {
                    writes.append(
                        OwnerWrite(
                            stamp: link.job.stamp, customer: link.customer, attested: proof.attested,
                            jws: link.facts != nil, device: device, address: address))
                }
            }
            // UUIDs of one length in lower-case hex: the order of the text is that of the bytes.
            writes.sort { ($0.stamp, $0.customer) < ($1.stamp, $1.customer) }
            let key = "\(links[0].store) \(links[0].hash)"
            let organization = links[0].job.organization
            for (index, write) in writes.enumerated() {
                let tail = """
                    \(write.attested) \(write.jws) false \(write.device.isEmpty ? "-" : write.device) \
                    \(write.address.isEmpty ? "-" : write.address)
                    """
                lines.append("\(organization) owner \(key) \(write.stamp) \(write.customer) \(tail)")
                let before = index > 0 ? writes[index - 1].customer : "-"
                guard before != write.customer else { continue }
                let contested =
                    !write.proven && writes[..<index].contains { $0.proven && $0.customer != write.customer }
                lines.append(
                    "\(organization) move \(key) \(write.stamp) \(before) \(write.customer) \(tail) \(contested)")
            }
        }
        return lines
    }

    // MARK: - Transactions

    private static func transactions(_ jobs: [StampedWrite]) -> [String] {
        var winners: [String: (String, TransactionFacts)] = [:]
        for job in jobs {
            guard case .attribute(let write) = job.content, case .verified(let facts) = write.evidence else { continue }
            let key = "\(job.organization) \(facts.transactionID)"
            if let (_, known) = winners[key],
                (known.signedDate, known.payloadDigest) >= (facts.signedDate, facts.payloadDigest)
            {
                continue
            }
            winners[key] = (job.organization, facts)
        }
        return winners.values.map { organization, facts in
            func text<T>(_ value: T?) -> String { value.map { "\($0)" } ?? "-" }
            return """
                \(organization) transaction app_store \(SHA256Digest(of: Array(facts.transactionID.utf8)).hex) \
                \(facts.transactionID) \(SHA256Digest(of: Array(facts.originalTransactionID.utf8)).hex) \
                \(facts.signedDate) \(facts.payloadDigest) \(facts.bundleID) \(facts.productID) \(facts.environment) \
                \(facts.purchaseDate) \(text(facts.originalPurchaseDate)) \(text(facts.expiresDate)) \
                \(text(facts.type)) \(text(facts.ownership)) \(text(facts.revocationDate)) \
                \(text(facts.revocationReason)) \(text(facts.isUpgraded)) \(text(facts.price)) \
                \(text(facts.currency)) \(text(facts.storefront)) \(text(facts.appAccountToken)) \
                \(text(facts.quantity))
                """
        }
    }
}
