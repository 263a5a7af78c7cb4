internal import OpsCore
internal import Service

/// Every command of `ratchet`, in the order in which help lists them.
enum CommandTable {
    static let all: [Command] =
        installation + QueueCommands.all + DeadLetterCommands.all + organizations + apps + DeviceCommands.all
        + customers + purchases + AdServicesCommands.all + SweepCommands.all + questions

    static let organizationFlag = Command.Flag("org", "O", "id of the organization", required: true)
    static let storeFlag = Command.Flag("store", "S", "app_store or play_store; either one when absent")

    private static let installation = [
        Command(
            words: ["migrate"], summary: "bring the database schema to what this version needs",
            detail: """
                Applies the missing migrations, each in its own transaction, and creates the schema (RATCHET_PG_SCHEMA) when
                it is absent. Safe to repeat, and while older processes run. There is no way back.
                """
        ) { _, session in
            let result = try await session.administration().migrate { session.progress("migration \($0) applied") }
            let document = Document(result)
            let applied = document["applied"]?.elements.count ?? 0
            let current = result.current
            return Answer(
                document: document,
                text: applied == 0
                    ? "the schema is at \(current); nothing to do\n"
                    : "the schema is at \(current); migrations applied: \(applied)\n")
        }
    ]

    private static let organizations = [
        Command(
            words: ["orgs", "create"], summary: "create an organization",
            detail: "One that is there already is said to be, and left as it is.",
            positionals: [.init("ID", "1 to 63 of a-z, 0-9, _ and -, a letter or digit first; never changes")],
            flags: [.init("name", "N", "name for people; the id when absent")]
        ) { line, session in
            let creation = try await session.administration().createOrganization(id: line[0], name: line["name"])
            return Answer(
                document: Document(creation),
                text: creation.created
                    ? "organization \(line[0]) created\n"
                    : "organization \(line[0]) was there already; nothing changed\n")
        },
        Command(words: ["orgs", "list"], summary: "list the organizations") { _, session in
            let organizations = try await session.administration().organizations()
            return Answer(document: .list(organizations.map { Document($0) }), empty: "no organizations")
        },
    ]

    private static let appColumns = ["": ["bundleId", "store", "teamId", "organization", "id", "createdAt"]]

    private static let apps = [
        Command(
            words: ["apps", "connect"], summary: "connect an app to an organization",
            detail: """
                From then on writes that name the bundle go to the organization; every ingress knows within a second. An app
                that is connected already is said to be, and left as it is; with another team id it is another app. A bundle that two organizations have connected
                belongs to neither: writes without a device token are dropped.
                """,
            positionals: [.init("BUNDLE", "bundle id, or package name of a Play app")],
            flags: [
                organizationFlag, .init("team", "T", "Apple team id, ten of A-Z and 0-9; App Attest needs it"),
                .init("store", "S", "app_store (default) or play_store"),
            ]
        ) { line, session in
            let store = try Administration.store(named: line["store"])
            let connection = try await session.administration().connectApp(
                bundleID: line[0], organization: line.required("org"), team: line["team"], store: store)
            let others = connection.others.joined(separator: ", ")
            return Answer(
                document: Document(connection),
                text: connection.created
                    ? "app \(line[0]) connected to \(line.required("org"))\n"
                    : "app \(line[0]) was connected to \(line.required("org")) already; nothing changed\n",
                warnings: others.isEmpty
                    ? []
                    : [
                        "\(line[0]) is also connected to \(others): writes without a device token are dropped until one"
                            + " of them disconnects it"
                    ])
        },
        Command(
            words: ["apps", "disconnect"], summary: "disconnect an app from an organization",
            detail: "What it wrote stays. Without --store the apps of both stores with this bundle are disconnected.",
            positionals: [.init("BUNDLE", "bundle id or package name")], flags: [organizationFlag, storeFlag]
        ) { line, session in
            let removed = try await session.administration().disconnectApp(
                bundleID: line[0], organization: line.required("org"),
                store: try Administration.store(named: line["store"]))
            let document = Document.list(removed.map { Document($0) })
            let stores = document.elements.compactMap { $0["store"]?.string }.joined(separator: ", ")
            return Answer(
                document: document,
                text: "app \(line[0]) (\(stores)) disconnected from \(line.required("org"))\n")
        },
        Command(
            words: ["apps", "list"], summary: "list the connected apps",
            flags: [.init("org", "O", "of this organization only")]
        ) { line, session in
            let apps = try await session.administration().apps(organization: line["org"])
            return Answer(document: .list(apps.map { Document($0) }), columns: appColumns, empty: "no connected apps")
        },
        Command(
            words: ["apps", "unresolved"], summary: "list bundles whose writes were dropped",
            detail: """
                A write is dropped when its bundle is connected to no organization (organizations 0) or to several. 1 says that
                it was mended since.
                """
        ) { _, session in
            let bundles = try await session.administration().unresolvedBundles()
            return Answer(document: .list(bundles.map { Document($0) }), empty: "no dropped writes")
        },
    ]

    private static let purchaseColumns = [
        "originalTransactionId", "store", "productId", "environment", "expiresAt", "revokedAt", "verified", "contested",
        "flapping",
    ]

    private static let customers = [
        Command(
            words: ["customers", "show"], summary: "show one customer",
            positionals: [.init("APPUSERID", "the id the app uses, such as user_42 or '$anon_...'")],
            flags: [organizationFlag]
        ) { line, session in
            let customer = try await session.administration().customer(
                appUserID: line[0], organization: line.required("org"))
            return Answer(document: Document(customer), columns: ["purchases": purchaseColumns])
        }
    ]

    private static let transactionID = Command.Positional(
        "ORIGINALTRANSACTIONID", "of the purchase: Apple's originalTransactionId or the Play purchase token")

    private static let purchases = [
        Command(
            words: ["purchases", "show"], summary: "show one purchase, whose it is and how it moved",
            detail: """
                attested: some write of it carried a live device token. jwsVerified: Apple's signature was verified. verified:
                one of both. contested: no write of the present owner carried proof, one of another customer did. flapping: three
                moves in 24 hours. The history is oldest first and has the proof of each mover.
                """,
            positionals: [transactionID], flags: [organizationFlag, storeFlag]
        ) { line, session in
            let purchase = try await session.administration().purchase(
                originalTransactionID: line[0], organization: line.required("org"),
                store: try Administration.store(named: line["store"]))
            return Answer(document: Document(purchase))
        },
        Command(
            words: ["purchases", "list"], summary: "list what a customer owns now",
            flags: [.init("user", "U", "the id the app uses", required: true), organizationFlag]
        ) { line, session in
            let purchases = try await session.administration().purchases(
                ofUser: line.required("user"), organization: line.required("org"))
            return Answer(
                document: .list(purchases.map { Document($0) }), columns: ["": purchaseColumns], empty: "no purchases")
        },
        Command(
            words: ["purchases", "move"], summary: "set by hand whose a purchase is, or undo a move",
            detail: """
                Adds an owner write with the proof 'operator', later than all others, and a row in the audit log with who did it.
                A later write of an app moves the purchase on, as always. Naming the present owner confirms it.
                """,
            positionals: [transactionID],
            flags: [
                .init("to", "USER", "the id of a customer that exists", required: true), organizationFlag, storeFlag,
                .init("reason", "R", "for the audit log"),
            ]
        ) { line, session in
            let move = try await session.administration().movePurchase(
                originalTransactionID: line[0], organization: line.required("org"),
                store: try Administration.store(named: line["store"]), to: line.required("to"), reason: line["reason"])
            let from = SafeText.escaped(move.from)
            let to = SafeText.escaped(line.required("to"))
            return Answer(
                document: Document(move),
                text: from.utf8.elementsEqual(to.utf8)
                    ? "purchase \(SafeText.escaped(line[0])) confirmed for \(to)\n"
                    : "purchase \(SafeText.escaped(line[0])) moved from \(from) to \(to)\n")
        },
    ]

    private static let questions: [Command] = [
        TokenCommand.command, AttestationCommand.command, DoctorCommand.command, JobCommands.show, JobCommands.audit,
        Command(words: ["version"], summary: "say which version this is") { _, _ in version },
        Command(
            words: ["config"], summary: "list the settings in force, secrets hidden",
            detail: "Settings come from the environment; deploy/env.example describes each."
        ) { _, session in
            let settings = try session.settings()
            return Answer(
                document: Document(settings), columns: ["": ["name", "value", "unit", "source"]],
                warnings: settings.unknownNames.map { unknown in
                    "\(unknown.name) is no setting"
                        + (unknown.nearest.map { "; did you mean \($0)?" } ?? "; it is ignored")
                })
        },
    ]

    static let version = Answer(
        document: .members(["version": .string(Version.text)]), text: "ratchet \(Version.text)\n")
}
