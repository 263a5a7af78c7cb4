internal import Postgres
internal import RedisQueue
package import Store
package import Wire

extension Administration {
    /// Devices of an organization, the latest enrolment first.
    /// - Parameters:
    ///   - app: an app's id or a bundle id; nil for all.
    ///   - revoked: nil for both.
    package func devices(
        organization: String, app: String?, revoked: Bool?, limit: Int
    ) async throws(OpsError) -> [DeviceRecord] {
        try await inOrganization(organization) { connection in
            try await Devices.list(organization: organization, app: app, revoked: revoked, limit: limit, connection)
        }
    }

    /// - Throws: `.notFound` when the organization has none of that id.
    package func device(id: String, organization: String) async throws(OpsError) -> DeviceRecord {
        try await inOrganization(organization) { connection in
            guard let device = try await Devices.find(organization: organization, id: id, connection) else {
                throw OpsError(.notFound, "\(organization) has no device \(Self.quoted(id))")
            }
            return device
        }
    }

    /// What became of a revocation.
    package struct DeviceRevocation: Equatable, Sendable {
        package let device: DeviceRecord
        /// False when it had been revoked before.
        package let isNew: Bool
        /// False when Redis could not be told now; a writer tells it as soon as it can.
        package let isPublished: Bool
    }

    /// Ends a device's token for good: in Postgres first, then in Redis and at every ingress.
    /// - Throws: `.notFound` when the organization has none of that id.
    package func revokeDevice(id: String, organization: String) async throws(OpsError) -> DeviceRevocation {
        let (actor, now) = (actor, nowMicroseconds)
        let revocation = try await inOrganization(organization) { connection in
            let revocation = try await Devices.revoke(
                organization: organization, id: id, actor: actor, nowMicroseconds: now, connection)
            guard let revocation else {
                throw OpsError(.notFound, "\(organization) has no device \(Self.quoted(id))")
            }
            return revocation
        }
        let keys = installation.keys
        var isPublished = true
        do throws(OpsError) {
            try await installation.withRedis { client in
                try await KnownDevices(client: client, keys: keys)
                    .revoke(revocation.tokenHash, nobody: DeviceFacts.encode(nil))
            }
        } catch {
            isPublished = false
        }
        return DeviceRevocation(device: revocation.device, isNew: revocation.isNew, isPublished: isPublished)
    }

    /// Days of the enrolment funnel that are kept.
    package static let mostFunnelDays = EnrolmentCounts.days

    /// How far enrolments came in the last days, today included.
    /// - Parameter bundleID: nil for all apps.
    package func enrolments(
        organization: String, bundleID: String?, days: Int64
    ) async throws(OpsError) -> [(what: EnrolmentCount, times: Int64)] {
        let firstDay = EnrolmentCount.day(ofMilliseconds: nowMicroseconds / 1000) - days + 1
        return try await inOrganization(organization) { connection in
            try await EnrolmentCounts.sums(
                organization: organization, bundleID: bundleID, firstDay: firstDay, connection)
        }
    }

    /// Says whether devices of an app that runs from Xcode may enrol.
    /// - Parameter app: an app's id or a bundle id.
    /// - Throws: `.notFound` when the organization has no such app of Apple's store.
    package func setDevelopment(
        app: String, organization: String, allowed: Bool
    ) async throws(OpsError) -> [AppRecord] {
        let (actor, now) = (actor, nowMicroseconds)
        return try await inOrganization(organization) { connection in
            let matching = try await Apps.list(organization: organization, connection)
                .filter { $0.store == .appStore && ($0.id == app || $0.bundleID.utf8.elementsEqual(app.utf8)) }
            var changed: [AppRecord] = []
            for match in matching {
                let record = try await Apps.setDevelopment(
                    organization: organization, app: match.id, allowed: allowed, actor: actor, nowMicroseconds: now,
                    connection)
                if let record { changed.append(record) }
            }
            guard !changed.isEmpty else {
                throw OpsError(.notFound, "\(organization) has no connected App Store app \(Self.quoted(app))")
            }
            return changed
        }
    }

    /// Sets how many attested writes a minute an organization may send.
    /// - Parameter perMinute: 0 for no limit, nil for what the setting says.
    package func setAttestedPerMinute(
        _ perMinute: Int?, organization: String
    ) async throws(OpsError) -> OrganizationRecord {
        let (actor, now) = (actor, nowMicroseconds)
        return try await inOrganization(organization) { connection in
            let record = try await Organizations.setAttestedPerMinute(
                id: organization, perMinute, actor: actor, nowMicroseconds: now, connection)
            guard let record else { throw OpsError(.notFound, "the organization was removed meanwhile") }
            return record
        }
    }
}
