internal import OpsCore

/// Devices that enrolled with App Attest, and who may enrol.
enum DeviceCommands {
    private static let columns = ["": ["id", "app", "environment", "enrolledAt", "lastSeenAt", "revokedAt"]]
    /// What an organization may send a minute: nobody needs more, and the number fits where it is kept.
    private static let mostPerMinute = 1_000_000

    static let all = [
        Command(
            words: ["devices", "list"], summary: "list enrolled devices, the latest enrolment first",
            flags: [
                CommandTable.organizationFlag, .init("app", "A", "of this app only: its id or its bundle id"),
                .init("state", "S", "live or revoked; both when absent"), DeadLetterCommands.limitFlag,
            ]
        ) { line, session in
            var revoked: Bool?
            switch line["state"] {
            case nil: break
            case "live": revoked = false
            case "revoked": revoked = true
            case .some(let other): throw OpsError(.usage, "--state must be live or revoked; it is '\(other)'")
            }
            let devices = try await session.administration().devices(
                organization: line.required("org"), app: line["app"], revoked: revoked,
                limit: DeadLetterCommands.limit(line))
            return Answer(
                document: .list(devices.map { Document($0) }), columns: columns, empty: "no devices")
        },
        Command(
            words: ["devices", "show"], summary: "show one device",
            positionals: [.init("ID", "dev_ and 24 hex characters")], flags: [CommandTable.organizationFlag]
        ) { line, session in
            let device = try await session.administration().device(id: line[0], organization: line.required("org"))
            return Answer(document: Document(device))
        },
        Command(
            words: ["devices", "revoke"], summary: "end a device's token for good",
            detail: """
                Every ingress refuses the token within about a second; one that the message does not reach, within a minute.
                What the device wrote keeps its proof. Its app enrols anew with a new key and gets a new device.
                """,
            positionals: [.init("ID", "dev_ and 24 hex characters")], flags: [CommandTable.organizationFlag]
        ) { line, session in
            let revocation = try await session.administration().revokeDevice(
                id: line[0], organization: line.required("org"))
            return Answer(
                document: Document(revocation),
                text: revocation.isNew
                    ? "device \(line[0]) revoked\n" : "device \(line[0]) was revoked before; nothing changed\n",
                warnings: revocation.isPublished
                    ? [] : ["redis could not be told; a ratchet-writer tells it as soon as it can"])
        },
        Command(
            words: ["devices", "funnel"], summary: "show how far enrolments come, and why no further",
            detail: """
                Counts by app, step and reason: challenged (a challenge was given out; it names no app yet), attempted, refused
                (the reason is that of the 401), unavailable (503), enrolled. Calls for a bundle that nobody or several connected
                (404, 409) belong to no app; they and the challenges are those of the whole installation.
                """,
            flags: [
                CommandTable.organizationFlag, .init("app", "BUNDLE", "of this app only"),
                .init("days", "N", "so many days, today included; 7 when absent"),
            ]
        ) { line, session in
            let text = line["days"] ?? "7"
            guard let days = Int64(text), 1...Administration.mostFunnelDays ~= days else {
                throw OpsError(.usage, "--days must be 1 to \(Administration.mostFunnelDays); it is '\(text)'")
            }
            let sums = try await session.administration().enrolments(
                organization: line.required("org"), bundleID: line["app"], days: days)
            return Answer(
                document: .list(sums.map { Document($0.what, times: $0.times) }), empty: "no enrolments in these days")
        },
        Command(
            words: ["apps", "attest"], summary: "say whether development builds of an app may enrol",
            detail: """
                Apps that are run from Xcode attest in App Attest's development environment. Its keys are refused unless the
                app allows them; allow them for apps in development only.
                """,
            positionals: [.init("APP", "bundle id, or app id")],
            flags: [
                CommandTable.organizationFlag,
                .init("development", "WORD", "allow or refuse", required: true),
            ]
        ) { line, session in
            let word = line.required("development")
            guard ["allow", "refuse"].contains(word) else {
                throw OpsError(.usage, "--development must be allow or refuse; it is '\(word)'")
            }
            let apps = try await session.administration().setDevelopment(
                app: line[0], organization: line.required("org"), allowed: word == "allow")
            return Answer(
                document: .list(apps.map { Document($0) }),
                text: "app \(line[0]): development builds \(word == "allow" ? "may" : "may not") enrol\n")
        },
        Command(
            words: ["orgs", "limit"], summary: "set how many attested writes a minute an organization may send",
            positionals: [.init("ID", "the organization")],
            flags: [
                .init("attested", "N", "writes a minute; 0 for no limit, default for the setting's", required: true)
            ]
        ) { line, session in
            let text = line.required("attested")
            var perMinute: Int?
            if text != "default" {
                guard let number = Int(text), 0...mostPerMinute ~= number else {
                    throw OpsError(.usage, "--attested must be 0 to \(mostPerMinute), or default; it is '\(text)'")
                }
                perMinute = number
            }
            let organization = try await session.administration().setAttestedPerMinute(
                perMinute, organization: line[0])
            return Answer(
                document: Document(organization),
                text:
                    "organization \(line[0]): \(perMinute.map { "\($0) attested writes a minute" } ?? "the setting's limit")\n"
            )
        },
    ]
}
