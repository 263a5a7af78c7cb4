internal import EventLoop
internal import Postgres
internal import RedisQueue
internal import Service
internal import Store

extension Doctor {
    /// The schema uses UNIQUE NULLS NOT DISTINCT, which came with 15.
    private static let oldestVersion: Int64 = 150_000
    /// A writer publishes four times a second.
    private static let publishMilliseconds: Int64 = 1_500
    /// Offsets below this are noise; above the second one, orders by hand would sort wrongly among writes of apps.
    private static let clockWarnMicroseconds: Int64 = 1_000_000
    private static let clockFailMicroseconds: Int64 = 60_000_000

    func postgres(_ installation: Installation, _ redis: RedisFindings) async -> [Check] {
        let checks: [Check]
        let directory: Int64?
        do throws(OpsError) {
            (checks, directory) = try await installation.withPostgres { connection in
                var checks = try await server(connection)
                let schema = installation.settings.postgresSchema
                let state = try await Migrator.state(connection)
                checks += Self.checks(state, schema: schema)
                guard state.fits else { return (checks, nil) }
                checks.append(try await partitions(connection, installation.settings))
                checks.append(try await apps(connection))
                checks += try await deadLetters(connection)
                checks += try await sweep(connection)
                return (checks, try await DirectorySnapshot.version(connection))
            }
        } catch {
            return [
                Check(
                    "postgres", .fail, error.message, remedy: "start Postgres, or correct RATCHET_PG",
                    isDependencyAway: true)
            ]
        }
        guard let directory, redis.answers else { return checks }
        return checks + (await self.directory(directory, redis.directoryVersion, installation))
    }

    /// From here, since Redis keeps only some of them, and forgets those in a wipe.
    private func deadLetters(_ connection: PostgresConnection) async throws(PostgresError) -> [Check] {
        let counts = try await DeadLetters.countByLane(connection)
        return counts.sorted { $0.key < $1.key }.map { lane, count in
            Check(
                "dead letters", .warn, "lane \(lane): \(count)",
                remedy: "ratchet dead list --lane \(lane) tells the reason of each")
        }
    }

    private func sweep(_ connection: PostgresConnection) async throws(PostgresError) -> [Check] {
        guard let pause = try await AdServicesOperations.pause(connection) else { return [] }
        return [
            Check(
                "sweep", .warn, "no AdServices token is asked about: paused by \(pause.by): \(pause.reason)",
                remedy: "ratchet sweep resume, once the reason is gone: a token can be asked about for 24 hours")
        ]
    }

    private func server(_ connection: PostgresConnection) async throws(PostgresError) -> [Check] {
        let before = time.wallMicroseconds
        let row = try await connection.query(
            """
            SELECT current_setting('server_version_num')::bigint AS number,
                current_setting('server_version') AS version, current_setting('fsync') AS fsync,
                floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
            """
        ).first
        let after = time.wallMicroseconds
        guard let row else { throw PostgresError(.usage, "the server said nothing of itself") }
        let version = try row.string("version")
        var checks = [Check("postgres", .ok, "answers, version \(version)")]
        if try row.int64("number") < Self.oldestVersion {
            checks = [
                Check("postgres", .fail, "version \(version) is too old", remedy: "install PostgreSQL 15 or newer")
            ]
        }
        if try row.string("fsync") != "on" {
            checks.append(
                Check(
                    "postgres.settings", .warn, "fsync is off: a crash of the machine destroys the database",
                    remedy: "set fsync = on in postgresql.conf and reload"))
        }
        checks.append(clock("clock.postgres", theirs: try row.int64("now"), before, after, "Postgres"))
        return checks
    }

    private static func checks(_ state: MigrationState, schema: String) -> [Check] {
        if let changed = state.changed.first {
            return [
                Check(
                    "schema", .fail, "migration \(changed) of schema \(schema) was applied with another text",
                    remedy: "install the version that made the schema, or restore the schema from a backup")
            ]
        }
        guard state.missing.isEmpty else {
            let what =
                state.current == 0
                ? "schema \(schema) is not there" : "schema \(schema) is at \(state.current), \(state.needed) is needed"
            return [Check("schema", .fail, what, remedy: "ratchet migrate")]
        }
        let newer = state.unknown.isEmpty ? "" : ", and newer than this version, which is harmless"
        return [Check("schema", .ok, "\(schema) is at \(state.current)\(newer)")]
    }

    private func partitions(
        _ connection: PostgresConnection, _ settings: Settings
    ) async throws(PostgresError) -> Check {
        let wanted = String(settings.partitions)
        guard let stands = try await InstallationFacts.get("partitions", connection) else {
            return Check("partitions", .ok, "\(wanted), fixed by the first ratchet-writer that starts")
        }
        guard stands != wanted else { return Check("partitions", .ok, wanted) }
        return Check(
            "partitions", .fail, "RATCHET_PARTITIONS is \(wanted), this installation was made with \(stands)",
            remedy: "set RATCHET_PARTITIONS=\(stands)")
    }

    private func apps(_ connection: PostgresConnection) async throws(PostgresError) -> Check {
        let count = try await Apps.list(organization: nil, connection).count
        guard count == 0 else { return Check("apps", .ok, "\(count) connected") }
        return Check(
            "apps", .warn, "no app is connected: every write is dropped",
            remedy: "ratchet orgs create ORG; ratchet apps connect BUNDLE --org ORG --team TEAM")
    }

    /// Whether what the ingress decides by is what Postgres says. A difference may be younger than a writer's look.
    private func directory(_ stored: Int64, _ published: Int64?, _ installation: Installation) async -> [Check] {
        let keys = installation.keys
        var published = published
        if published.map({ $0 < stored }) ?? true {
            published = try? await installation.withRedis { client in
                await installation.loop.sleep(milliseconds: Self.publishMilliseconds)
                return try await PublishedDirectory(client: client, keys: keys).version()
            }
        }
        guard let published else {
            return [
                Check(
                    "directory", .fail, "the app directory is not in Redis: every write is answered 503",
                    remedy: "start ratchet-writer; it publishes within a second")
            ]
        }
        if published < stored {
            return [
                Check(
                    "directory", .fail,
                    "the app directory in Redis is older than the database: apps connected since are"
                        + " not known to any ingress", remedy: "start ratchet-writer, or look why it doesn't publish")
            ]
        }
        if published > stored {
            return [
                Check(
                    "directory", .warn, "the app directory in Redis is newer than the database: was that restored?",
                    remedy: "connect or disconnect an app; the change outranks what is published")
            ]
        }
        return [Check("directory", .ok, "published, and what the database says")]
    }

    /// Compares a server's clock with this machine's; the answer's way counts as doubt.
    func clock(_ name: String, theirs: Int64, _ before: Int64, _ after: Int64, _ server: String) -> Check {
        let offset = theirs < before ? theirs - before : (theirs > after ? theirs - after : 0)
        let milliseconds = offset / 1000
        guard offset.magnitude >= Self.clockWarnMicroseconds.magnitude else {
            return Check(name, .ok, "agrees with this machine's")
        }
        return Check(
            name, offset.magnitude >= Self.clockFailMicroseconds.magnitude ? .fail : .warn,
            "the clock of \(server) is \(milliseconds.magnitude) ms \(offset < 0 ? "behind" : "ahead of") this machine's",
            remedy: "set both by NTP (systemd-timesyncd or chrony)")
    }
}
