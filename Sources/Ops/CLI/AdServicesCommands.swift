internal import OpsCore
internal import Store

/// `ratchet adservices ...`: which campaign brought which install.
enum AdServicesCommands {
    static let all = [list, show, stats]

    private static let appFlag = Command.Flag("app", "A", "of this app only: its id or its bundle id")
    private static let filters: [Command.Flag] = [
        CommandTable.organizationFlag, appFlag,
        .init("state", "S", "pending, resolved, test, organic, invalid or expired"),
        .init("day", "DAY", "received on this day, such as 2026-11-30, in UTC"),
        .init("status", "N", "whose last ask ended with this HTTP status; 0 for no answer"),
    ]
    private static let columns = [
        "installId", "bundleId", "state", "attempts", "lastStatus", "campaignId", "adGroupId", "keywordId",
        "receivedAt",
        "nextAskAt", "endedAt",
    ]
    private static let usualDays = 30
    /// Ten years: more than there can be.
    private static let mostDays = 3_660

    private static func filter(_ line: Invocation) throws(OpsError) -> AdServicesFilter {
        try Administration.adServicesFilter(
            app: line["app"], state: line["state"], day: line["day"], status: line["status"])
    }

    private static let list = Command(
        words: ["adservices", "list"], summary: "list installs and the Apple Ads campaign of each, the latest first",
        detail: """
            pending: not answered yet, nextAskAt says when Apple is asked again. resolved: an ad brought it. organic: no ad did.
            test: from TestFlight, Xcode or a sandbox; in no number. invalid: Apple refused the token. expired: Apple had no
            answer within 24 hours. attempts: asks that used up a rung of the ladder, or ended it. A token that came later for
            the same install is counted in laterTokens, and changes nothing.
            """,
        flags: filters + [DeadLetterCommands.limitFlag]
    ) { line, session in
        let records = try await session.administration().adServices(
            organization: line.required("org"), filter(line), limit: DeadLetterCommands.limit(line))
        return Answer(
            document: .list(records.map { Document($0) }), columns: ["": columns], empty: "no installs")
    }

    private static let show = Command(
        words: ["adservices", "show"], summary: "show all that is known of one install's token",
        detail: "The token's text is never shown: nobody but the sweep can read it, and it is erased at the end.",
        positionals: [.init("INSTALLID", "as the app sent it; a UUID in any case of its letters")],
        flags: [CommandTable.organizationFlag, appFlag]
    ) { line, session in
        let record = try await session.administration().adServices(
            installID: line[0], organization: line.required("org"), app: line["app"])
        return Answer(document: Document(whole: record))
    }

    private static let stats = Command(
        words: ["adservices", "stats"], summary: "count installs by app, day, state, last status and campaign",
        detail: """
            By the day on which the token was received, in UTC. Installs in state test are in testInstalls and in their own rows
            and in no other number. The percentages are of the installs that have ended.
            """,
        flags: filters + [
            .init("days", "N", "the last N days, today included; 30 when neither this nor a day is given")
        ]
    ) { line, session in
        var days = usualDays
        if let text = line["days"] {
            guard let number = Int(text), 1...mostDays ~= number else {
                throw OpsError(.usage, "--days must be a number from 1 to \(mostDays); it is '\(text)'")
            }
            guard !line.has("day") else { throw OpsError(.usage, "--day and --days exclude each other") }
            days = number
        }
        let summary = try await session.administration().adServicesStatistics(
            organization: line.required("org"), filter(line), days: days)
        return Answer(document: Document(summary))
    }
}
