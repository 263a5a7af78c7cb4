internal import Jobs
package import RedisQueue
package import Store
package import Wire

// How records read for operators: the one place that names the keys.

extension Document {
    package init(_ organization: OrganizationRecord) {
        self = .members([
            "id": .string(organization.id), "name": .string(organization.name),
            "createdAt": .time(microseconds: organization.createdAt),
            "attestedPerMinute": organization.attestedPerMinute.map { .int(Int64($0)) } ?? .null,
        ])
    }

    package init(_ app: AppRecord) {
        self = .members([
            "id": .string(app.id), "organization": .string(app.organization), "bundleId": .string(app.bundleID),
            "store": .string(app.store.rawValue), "teamId": .text(app.teamID),
            "createdAt": .time(microseconds: app.createdAt), "attestDevelopment": .bool(app.allowsDevelopment),
        ])
    }

    package init(_ device: DeviceRecord) {
        self = .members([
            "id": .string(device.id), "organization": .string(device.organization), "app": .string(device.app),
            "bundleId": .string(device.bundleID), "environment": .string(device.environment),
            "bundleVersion": .text(device.bundleVersion), "validationCategory": .text(device.validationCategory),
            "enrolledAt": .time(microseconds: device.enrolledAt),
            "lastSeenAt": .time(microseconds: device.lastSeenAt),
            "revokedAt": .time(microseconds: device.revokedAt),
        ])
    }

    package init(_ revocation: Administration.DeviceRevocation) {
        self = Document(revocation.device).adding([
            "changed": .bool(revocation.isNew), "published": .bool(revocation.isPublished),
        ])
    }

    package init(_ creation: Administration.Creation) {
        self = Document(creation.organization).adding(["created": .bool(creation.created)])
    }

    package init(_ connection: Administration.Connection) {
        self = Document(connection.app).adding([
            "created": .bool(connection.created),
            "alsoConnectedBy": .list(connection.others.map { .string($0) }),
        ])
    }

    package init(_ bundle: UnresolvedBundle) {
        self = .members([
            "bundleId": .string(bundle.bundleID), "dropped": .int(bundle.dropped),
            "organizations": .int(bundle.organizations), "firstSeenAt": .time(microseconds: bundle.firstSeenAt),
            "lastSeenAt": .time(microseconds: bundle.lastSeenAt),
        ])
    }

    package init(_ customer: CustomerRecord) {
        self = .members([
            "appUserId": .string(customer.appUserID), "id": .string(customer.id),
            "organization": .string(customer.organization),
            "attributes": .object(customer.attributes.map { Member($0.key, .json($0.value)) }),
            "platform": .text(customer.platform), "osVersion": .text(customer.osVersion),
            "deviceModel": .text(customer.deviceModel), "locale": .text(customer.locale),
            "firstSeenAt": .time(microseconds: customer.firstSeenAt),
            "lastSeenAt": .time(microseconds: customer.lastSeenAt),
            "attested": .bool(customer.attested), "verified": .bool(customer.verified),
            "lastWrite": .members([
                "attested": .bool(customer.lastWrite.attested), "reason": .text(customer.lastWrite.reason),
                "at": .time(microseconds: customer.lastWrite.at),
            ]),
            "purchases": .list(customer.purchases.map { Document($0) }),
        ])
    }

    package init(_ purchase: PurchaseRecord) {
        self = .members([
            "originalTransactionId": .string(purchase.originalTransactionID), "store": .string(purchase.store),
            "organization": .string(purchase.organization), "owner": .string(purchase.owner),
            "productId": .text(purchase.productID), "bundleId": .text(purchase.bundleID),
            "environment": .text(purchase.environment), "ownership": .text(purchase.ownership),
            "purchasedAt": .time(milliseconds: purchase.purchasedAt),
            "expiresAt": .time(milliseconds: purchase.expiresAt),
            "revokedAt": .time(milliseconds: purchase.revokedAt), "appAccountToken": .text(purchase.appAccountToken),
            "attested": .bool(purchase.attested), "jwsVerified": .bool(purchase.jwsVerified),
            "verified": .bool(purchase.verified), "contested": .bool(purchase.contested),
            "flapping": .bool(purchase.flapping), "firstSeenAt": .time(microseconds: purchase.firstSeenAt),
            "lastSeenAt": .time(microseconds: purchase.lastSeenAt),
        ])
    }

    package init(_ move: PurchaseMove) {
        self = .members([
            "from": .text(move.from), "to": .string(move.to), "at": .time(microseconds: move.at),
            "attested": .bool(move.attested), "jws": .bool(move.jws), "operator": .bool(move.operator),
            "contested": .bool(move.contested),
        ])
    }

    package init(_ purchase: Administration.PurchaseHistory) {
        self = Document(purchase.purchase).adding(["history": .list(purchase.history.map { Document($0) })])
    }

    package init(_ move: Administration.Move) {
        self = Document(move.result).adding([
            "movedFrom": .string(move.from), "movedAt": .time(microseconds: move.at),
        ])
    }

    package init(_ lane: LaneStatistics) {
        self = .members([
            "lane": .string(lane.lane.name), "waiting": .int(lane.waiting), "pending": .int(lane.pending),
            "due": .int(lane.due), "parked": .int(lane.parked), "dead": .int(lane.dead),
            "oldestWaitingMs": lane.oldestWaitingMilliseconds.map { .int($0) } ?? .null,
            "paused": .bool(lane.paused),
        ])
    }

    package init(_ order: QueueOrder) {
        self = .members([
            "action": .string(order.action.rawValue), "scope": .string(order.scope.rawValue),
            "target": .string(order.target), "owner": .string(order.owner),
            "reason": .string(order.reason), "at": .time(milliseconds: order.at),
            "until": .time(milliseconds: order.until),
        ])
    }

    package init(_ result: Administration.MigrationResult) {
        self = .members([
            "applied": .list(result.applied.map { .int(Int64($0)) }), "current": .int(Int64(result.state.current)),
            "needed": .int(Int64(result.state.needed)), "fits": .bool(result.state.fits),
        ])
    }

    package init(_ count: EnrolmentCount, times: Int64) {
        self = .members([
            "app": .text(count.bundleID.isEmpty ? nil : count.bundleID), "step": .string(count.step.rawValue),
            "reason": .text(count.reason.isEmpty ? nil : count.reason), "times": .int(times),
        ])
    }
}
