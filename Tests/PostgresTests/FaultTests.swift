import EventLoop
import Postgres
import TestSupport
import Testing

@Suite struct FaultTests {
    @Test(arguments: [
        ("SELECT 1/0", "22012", PostgresError.Outcome.permanent),
        ("SELECT 'x'::bigint", "22P02", .permanent),
        (#"SELECT '"\u0000"'::jsonb"#, "22P05", .permanent),
        ("CREATE TEMP TABLE c (i int CHECK (i > 0)); INSERT INTO c VALUES (0)", "23514", .permanent),
        ("SELECT repeat('(', 100000)::tsquery", "54001", .permanent),
        ("CREATE TEMP TABLE u (i int PRIMARY KEY); INSERT INTO u VALUES (1), (1)", "23505", .transient),
        ("CREATE TEMP TABLE k (i int NOT NULL); INSERT INTO k VALUES (NULL)", "23502", .dependency),
        ("SELECT * FROM nowhere", "42P01", .dependency),
        ("SET statement_timeout = 20; SELECT pg_sleep(5)", "57014", .dependency),
        ("DO $$ BEGIN RAISE EXCEPTION SQLSTATE '40001'; END $$", "40001", .transient),
        ("DO $$ BEGIN RAISE EXCEPTION SQLSTATE '40P01'; END $$", "40P01", .transient),
        ("DO $$ BEGIN RAISE EXCEPTION SQLSTATE '53100'; END $$", "53100", .dependency),
    ])
    func errorsOfTheServerAreClassifiedByTheirState(
        sql: String, sqlstate: String, outcome: PostgresError.Outcome
    ) async throws {
        try await withConnection { connection in
            let error = await failure { () async throws(PostgresError) in try await connection.execute(sql) }
            #expect(error?.code == .server)
            #expect(error?.sqlstate == sqlstate)
            #expect(error?.outcome == outcome)
            #expect(error?.isRetryable == (outcome != .permanent))
            let alive = try await answersOne(connection)
            #expect(alive, "still usable")
        }
    }

    @Test func aBtreeRowTooLargeIsPermanent() async throws {
        let schema = try TestPostgres.shared.get().schema()
        try await withConnection(schema: schema) { connection in
            try await connection.execute("CREATE SCHEMA \(schema); CREATE TABLE b (t text PRIMARY KEY)")
            var token = ""
            var generator = SystemRandomNumberGenerator()
            while token.utf8.count < 4096 { token += String(generator.next(), radix: 36) }
            let error = await failure { [token] () async throws(PostgresError) in
                _ = try await connection.query("INSERT INTO b VALUES ($1)", [.text(token)])
            }
            #expect(error?.sqlstate == "54000")
            #expect(error?.outcome == .permanent)
        }
    }

    @Test func aKilledBackendIsALostDependency() async throws {
        try await withConnection { victim in
            let pid = victim.backendPID
            async let ended = failure { () async throws(PostgresError) in
                _ = try await victim.query("SELECT pg_sleep(30)")
            }
            // Only once the victim's statement runs: before, it would die idle.
            try await waitUntilSleeping(pid)
            try await withConnection { killer in
                _ = try await killer.query("SELECT pg_terminate_backend($1::bigint::int)", [.int64(Int64(pid))])
            }
            let error = await ended
            #expect(error?.sqlstate == "57P01")
            #expect(error?.outcome == .dependency)
            #expect(!victim.isOpen)
            let later = await failure { () async throws(PostgresError) in _ = try await victim.query("SELECT 1") }
            #expect(later?.code == .connection)
        }
    }

    @Test func aDeadlineClosesTheConnection() async throws {
        let time = ManualTime()
        try await withConnection(time: time) { connection in
            async let ended = failure { () async throws(PostgresError) in
                _ = try await connection.query("SELECT pg_sleep(30)", deadlineMilliseconds: 50)
            }
            try await waitUntilSleeping(connection.backendPID)
            time.advance(milliseconds: 50)
            let error = await ended
            #expect(error?.code == .deadline)
            #expect(error?.outcome == .dependency)
            #expect(!connection.isOpen)
        }
    }

    @Test func aDeadlineOfATransactionBindsItsStatementsTogether() async throws {
        let time = ManualTime()
        try await withConnection(time: time) { connection in
            async let ended = failure { () async throws(PostgresError) in
                try await connection.transaction(deadlineMilliseconds: 150) { () async throws(PostgresError) in
                    _ = try await connection.query("SELECT 1")
                    time.advance(milliseconds: 100)
                    _ = try await connection.query("SELECT pg_sleep(30)")
                }
            }
            try await waitUntilSleeping(connection.backendPID)
            time.advance(milliseconds: 50)
            let error = await ended
            #expect(error?.code == .deadline)
            #expect(!connection.isOpen)
        }
    }

    @Test func aFrozenServerIsAnsweredByTheDeadlineAndAThawedOneByANewConnection() async throws {
        let server = try TestPostgres()
        try await withLoop { loop in
            let client = PostgresClient(
                server.configuration(
                    schema: nil, connectDeadlineMilliseconds: 300, queryDeadlineMilliseconds: 200), on: loop)
            func one() async throws(PostgresError) {
                try await client.withConnection { connection throws(PostgresError) in
                    _ = try await connection.query("SELECT 1")
                }
            }
            try await one()
            server.freeze()
            let frozen = await failure(of: one)
            #expect(frozen?.code == .deadline)
            let unreachable = await failure(of: one)
            #expect(unreachable?.code == .deadline, "a frozen server accepts and says nothing")
            let backingOff = await failure(of: one)
            #expect(backingOff == unreachable, "within the back-off the last failure is told at once")
            server.thaw()
            var error: PostgresError?
            for _ in 0..<100 {
                error = await failure(of: one)
                if error == nil { break }
                await loop.sleep(milliseconds: 50)
            }
            #expect(error == nil)
        }
    }

    @Test func aStoppedServerIsNoticedAndAStartedOneFoundAgain() async throws {
        let server = try TestPostgres()
        try await withLoop { loop in
            let client = PostgresClient(server.configuration(schema: nil), on: loop)
            func one() async throws(PostgresError) {
                try await client.withConnection { connection throws(PostgresError) in
                    _ = try await connection.query("SELECT 1")
                }
            }
            try await one()
            try server.stop()
            let gone = await failure(of: one)
            #expect(gone?.outcome == .dependency)
            let away = await failure(of: one)
            #expect(away?.code == .connection)
            try server.start()
            var error: PostgresError?
            for _ in 0..<100 {
                error = await failure(of: one)
                if error == nil { break }
                await loop.sleep(milliseconds: 50)
            }
            #expect(error == nil)
            #expect(client.isConnected)
            client.close()
            let closed = await failure(of: one)
            #expect(closed?.code == .connection)
        }
    }

    @Test func aClientLendsItsConnectionToOneCallerAtATimeInOrder() async throws {
        let server = try TestPostgres.shared.get()
        try await withLoop { loop in
            let client = PostgresClient(server.configuration(schema: nil), on: loop)
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<20 {
                    group.addTask {
                        try await client.withConnection { connection throws(PostgresError) in
                            try await connection.transaction { () async throws(PostgresError) in
                                _ = try await connection.query("SELECT pg_sleep(0.001)")
                            }
                        }
                    }
                }
                try await group.waitForAll()
            }
            client.close()
        }
    }

    @Test func aBadSchemaNameIsRefusedBeforeAnythingIsSent() async throws {
        let configuration = try TestPostgres.shared.get().configuration(schema: "a\"; DROP TABLE x")
        try await withLoop { loop in
            let error = await failure { () async throws(PostgresError) in
                _ = try await PostgresConnection.connect(configuration, on: loop)
            }
            #expect(error?.code == .usage)
        }
    }

    @Test func aServerThatIsNotThereIsAConnectionError() async throws {
        try await withLoop { loop in
            let error = await failure { () async throws(PostgresError) in
                _ = try await PostgresConnection.connect(
                    PostgresConfiguration(conninfo: "host=/nonexistent user=x dbname=x", schema: nil), on: loop)
            }
            #expect(error?.code == .connection)
        }
    }
}
