internal import Bytes
package import JSON

extension Enrolment {
    /// The payload of an enrolment job: compact JSON; bytes as base64, digests as hex.
    package func encodePayload() -> [UInt8] {
        var writer = JSONWriter(reservingCapacity: 8192)
        writer.beginObject()
        writer.member("keyId", Base64.encode(keyID, .standard))
        writer.member("bundleId", bundleID)
        writer.member("callDigest", Hex.encode(callDigest))
        writer.member("tokenHash", Hex.encode(tokenHash))
        switch evidence {
        case .unverified(let attestation, let clientDataHash, let candidates):
            writer.member("attestation", Base64.encode(attestation, .standard))
            writer.member("clientDataHash", Hex.encode(clientDataHash))
            writer.key("candidates")
            writer.beginArray()
            for candidate in candidates {
                writer.beginObject()
                writer.member("organization", candidate.organization)
                writer.member("app", candidate.appID)
                writer.member("team", candidate.teamID)
                writer.member("development", candidate.allowsDevelopment)
                writer.endObject()
            }
            writer.endArray()
        case .verified(let key):
            writer.key("verified")
            writer.beginObject()
            writer.member("organization", key.organization)
            writer.member("app", key.appID)
            writer.member("environment", key.environment)
            writer.member("publicKey", Base64.encode(key.publicKey, .standard))
            writer.member("receipt", Base64.encode(key.receipt, .standard))
            writer.member("bundleVersion", key.bundleVersion)
            writer.member("validationCategory", key.validationCategory)
            writer.endObject()
        }
        writer.endObject()
        return writer.bytes
    }

    /// Reads what `encodePayload` wrote. An error can't be mended by a retry: the job is dead.
    package init(payload: [UInt8], using parser: JSONParser = JSONParser()) throws(WireError) {
        let root = try PayloadReader.root(of: payload, using: parser)
        let reader = try PayloadReader(
            root,
            members: [
                "keyId", "bundleId", "callDigest", "tokenHash", "attestation", "clientDataHash", "candidates",
                "verified",
            ])
        let evidence: Evidence
        if let verified = reader.value("verified") {
            evidence = .verified(try DeviceKey(payload: verified))
        } else {
            evidence = .unverified(
                attestation: try reader.base64("attestation"), clientDataHash: try reader.digest("clientDataHash"),
                candidates: try Self.candidates(reader))
        }
        self.init(
            keyID: try reader.base64("keyId"), bundleID: try reader.string("bundleId", TextRules.isBundleID),
            callDigest: try reader.digest("callDigest"), tokenHash: try reader.digest("tokenHash"),
            evidence: evidence)
        guard keyID.count == SDKLimits.keyIDBytes else { throw reader.invalid("keyId") }
    }

    private static func candidates(_ reader: PayloadReader) throws(WireError) -> [Candidate] {
        guard let list = reader.value("candidates"), list.kind == .array, list.count <= SDKLimits.candidates else {
            throw reader.invalid("candidates")
        }
        var candidates: [Candidate] = []
        for element in list.elements {
            guard let organization = element["organization"]?.string, OrganizationID(organization) != nil,
                let app = element["app"]?.string, let team = element["team"]?.string
            else { throw reader.invalid("candidates") }
            candidates.append(
                Candidate(
                    organization: organization, appID: app, teamID: team,
                    allowsDevelopment: element["development"]?.bool ?? false))
        }
        return candidates
    }
}

extension Enrolment.DeviceKey {
    fileprivate init(payload: JSONValue) throws(WireError) {
        let reader = try PayloadReader(
            payload, path: "verified.",
            members: [
                "organization", "app", "environment", "publicKey", "receipt", "bundleVersion", "validationCategory",
            ])
        self.init(
            organization: try reader.string("organization") { OrganizationID($0) != nil },
            appID: try reader.string("app", TextRules.isDeviceID),
            environment: try reader.string("environment") { $0 == "production" || $0 == "development" },
            publicKey: try reader.base64("publicKey"), receipt: try reader.base64("receipt"),
            bundleVersion: try reader.optionalString("bundleVersion") { Self.storable($0) != nil },
            validationCategory: try reader.optionalString("validationCategory") { Self.storable($0) != nil })
        guard publicKey.count == 65 else { throw reader.invalid("publicKey") }
    }
}

extension Enrolment.DeviceKey {
    /// What Apple says beside a key, as far as it can be stored: a text that is too long or has control characters is left
    /// out, since the key is good without it.
    package static func storable(_ text: String?) -> String? {
        text.flatMap { $0.utf8.count <= SDKLimits.attestedTextBytes && !TextRules.hasControl($0) ? $0 : nil }
    }
}

extension EnrolmentAnswer {
    package func encodePayload() -> [UInt8] {
        var writer = JSONWriter(reservingCapacity: 96)
        writer.beginObject()
        switch self {
        case .enrolled(let facts): writer.member("enrolled", String(decoding: DeviceFacts.encode(facts), as: UTF8.self))
        case .ambiguous: writer.member("ambiguous", true)
        case .refused(let reason): writer.member("refused", reason)
        case .superseded: writer.member("superseded", true)
        }
        writer.endObject()
        return writer.bytes
    }

    /// Reads what `encodePayload` wrote; nil for anything else.
    package init?(payload: [UInt8], using parser: JSONParser) {
        guard let root = try? parser.parse(payload), root.kind == .object else { return nil }
        if let text = root["enrolled"]?.string, case .some(.some(let facts)) = DeviceFacts.decode(Array(text.utf8)) {
            self = .enrolled(facts)
        } else if root["ambiguous"]?.bool == true {
            self = .ambiguous
        } else if let reason = root["refused"]?.string, TextRules.isRefusalReason(reason) {
            self = .refused(reason: reason)
        } else if root["superseded"]?.bool == true {
            self = .superseded
        } else {
            return nil
        }
    }
}

extension DeviceQuestion {
    package func encodePayload() -> [UInt8] { Array(Hex.encode(tokenHash).utf8) }

    /// Reads what `encodePayload` wrote.
    package init(payload: [UInt8]) throws(WireError) {
        guard let hash = Hex.decode(String(decoding: payload, as: UTF8.self)), hash.count == 32 else {
            throw WireError(.invalidField, "the payload is not a digest", field: "tokenHash")
        }
        self.init(tokenHash: hash)
    }
}

extension DeviceFacts {
    /// `organization|app|device`, as it stands in Redis and in answers; nil, a token that is nobody's, is `-`.
    package static func encode(_ facts: DeviceFacts?) -> [UInt8] {
        guard let facts else { return Array("-".utf8) }
        return Array("\(facts.organization)|\(facts.appID)|\(facts.deviceID)".utf8)
    }

    /// Reads what `encode` wrote.
    /// - Returns: nil for text of another form; `.some(nil)` for a token that is nobody's.
    package static func decode(_ bytes: [UInt8]) -> DeviceFacts?? {
        let parts = String(decoding: bytes, as: UTF8.self).split(separator: "|", omittingEmptySubsequences: false)
        if parts.count == 1 && parts[0] == "-" { return .some(nil) }
        guard parts.count == 3, OrganizationID(String(parts[0])) != nil, TextRules.isDeviceID(String(parts[1])),
            TextRules.isDeviceID(String(parts[2]))
        else { return nil }
        return DeviceFacts(organization: String(parts[0]), appID: String(parts[1]), deviceID: String(parts[2]))
    }
}
