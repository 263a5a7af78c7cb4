import EventLoop
import Glibc
import Postgres
import TestSupport
import Testing

@Suite struct ConnectionTests {
    @Test func everyParameterTypeComesBackAsItWent() async throws {
        try await withConnection { connection in
            let sql = """
                SELECT $1::text AS t, $2::bigint AS i, $3::boolean AS b, $4::bytea AS y, $5::uuid AS u, $6::jsonb AS j
                """
            let uuid: [UInt8] = (0..<16).map { UInt8($0) }
            let row = try #require(
                try await connection.query(
                    sql,
                    [
                        .text("a\"\\{},NULL é 🏳️‍🌈"), .int64(.min), .bool(true), .bytes([0, 1, 255]), .uuid(uuid),
                        .jsonb("{\"a\": [1, null]}"),
                    ]
                ).first)
            #expect(try row.string("t") == "a\"\\{},NULL é 🏳️‍🌈")
            #expect(try row.int64("i") == .min)
            #expect(try row.bool("b") == true)
            #expect(try row.bytes("y") == [0, 1, 255])
            #expect(try row.string("u") == "00010203-0405-0607-0809-0a0b0c0d0e0f")
            #expect(try row.string("j") == "{\"a\": [1, null]}")
            let nulls = try #require(
                try await connection.query(
                    sql, [.text(nil), .int64(nil), .bool(nil), .bytes(nil), .uuid(nil), .jsonb(nil)]
                ).first)
            #expect(try nulls.optionalString("t") == nil)
            #expect(try nulls.optionalInt64("i") == nil)
            #expect(try nulls.optionalBool("b") == nil)
            #expect(try nulls.optionalBytes("y") == nil)
            let empty = try #require(
                try await connection.query(
                    sql, [.text(""), .int64(0), .bool(false), .bytes([]), .uuid(nil), .jsonb("0")]
                )
                .first)
            #expect(try empty.string("t") == "")
            #expect(try empty.bytes("y") == [])
            #expect(try empty.bool("b") == false)
        }
    }

    @Test func arraysOfEveryTypeKeepOrderNullsAndEmptiness() async throws {
        try await withConnection { connection in
            var texts = PostgresArray(of: .text)
            var bools = PostgresArray(of: .bool)
            var bytes = PostgresArray(of: .bytes)
            var uuids = PostgresArray(of: .uuid)
            var jsons = PostgresArray(of: .jsonb)
            var integers = PostgresArray(of: .int64)
            for text in ["", "NULL", nil, "a,b\"{}\\", "é"] as [String?] { texts.append(text: text) }
            for value in [true, nil, false, true, true] as [Bool?] { bools.append(bool: value) }
            for value in [[], [0], nil, [255, 0], [1]] as [[UInt8]?] { bytes.append(bytes: value) }
            for value in [Int64.min, nil, 0, .max, -1] as [Int64?] { integers.append(int64: value) }
            for index in 0..<5 {
                uuids.append(uuid: index == 2 ? nil : [UInt8](repeating: UInt8(index), count: 16))
                jsons.append(jsonb: index == 1 ? nil : Array("{\"k\":\(index)}".utf8))
            }
            let rows = try await connection.query(
                """
                SELECT * FROM unnest($1::text[], $2::bool[], $3::bytea[], $4::uuid[], $5::jsonb[], $6::bigint[])
                    AS x(t, b, y, u, j, i)
                """,
                [
                    .array(texts), .array(bools), .array(bytes), .array(uuids), .array(jsons), .array(integers),
                ]
            ).rows
            #expect(try rows.map { try $0.optionalString("t") } == ["", "NULL", nil, "a,b\"{}\\", "é"])
            #expect(try rows.map { try $0.optionalBool("b") } == [true, nil, false, true, true])
            #expect(try rows.map { try $0.optionalBytes("y") } == [[], [0], nil, [255, 0], [1]])
            #expect(try rows.map { try $0.optionalInt64("i") } == [.min, nil, 0, .max, -1])
            #expect(try rows[3].string("u") == "03030303-0303-0303-0303-030303030303")
            #expect(try rows[2].optionalString("u") == nil)
            #expect(try rows[1].optionalString("j") == nil)
            #expect(try rows[4].string("j") == "{\"k\": 4}")
            let none = try await connection.query("SELECT cardinality($1::text[]) AS n", [.texts([])])
            #expect(try none.first?.int64("n") == 0)
        }
    }

    @Test func aRowRefusesWrongNamesTypesAndUnexpectedNulls() async throws {
        try await withConnection { connection in
            let row = try #require(try await connection.query("SELECT 'x' AS a, NULL::bigint AS n").first)
            #expect(throws: PostgresError.self) { try row.string("b") }
            #expect(throws: PostgresError.self) { try row.int64("a") }
            #expect(throws: PostgresError.self) { try row.bool("a") }
            #expect(throws: PostgresError.self) { try row.bytes("a") }
            #expect(throws: PostgresError.self) { try row.int64("n") }
            #expect(try row.optionalInt64("n") == nil)
        }
    }

    @Test func aSessionIsSetUpWhateverTheServerSays() async throws {
        let schema = try TestPostgres.shared.get().schema()
        try await withConnection(schema: schema) { connection in
            let row = try #require(
                try await connection.query(
                    """
                    SELECT current_setting('search_path') AS path, current_setting('TimeZone') AS zone,
                        current_setting('client_encoding') AS encoding, current_setting('statement_timeout') AS timeout,
                        current_setting('application_name') AS name, current_setting('synchronous_commit') AS durable
                    """
                ).first)
            #expect(try row.string("path") == "\"\(schema)\"")
            #expect(try row.string("zone") == "UTC")
            #expect(try row.string("encoding") == "UTF8")
            #expect(try row.string("timeout") == "1min")
            #expect(try row.string("name") == "tests")
            #expect(try row.string("durable") == "on")
        }
    }

    @Test func noticesAreKeptForTheReader() async throws {
        try await withConnection { connection in
            try await connection.execute("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")
            #expect(connection.takeNotices().map(\.message) == ["hello"])
            #expect(connection.takeNotices().isEmpty)
        }
    }

    @Test func aTransactionThatThrowsLeavesNothingBehind() async throws {
        let schema = try TestPostgres.shared.get().schema()
        try await withConnection(schema: schema) { connection in
            try await connection.execute("CREATE SCHEMA \(schema); CREATE TABLE n (i bigint PRIMARY KEY)")
            let error = await failure { () async throws(PostgresError) in
                try await connection.transaction { () async throws(PostgresError) in
                    _ = try await connection.query("INSERT INTO n VALUES ($1)", [.int64(1)])
                    _ = try await connection.query("INSERT INTO n VALUES ($1)", [.int64(1)])
                }
            }
            #expect(error?.sqlstate == "23505")
            #expect(error?.constraint == "n_pkey")
            // What is in the row is people's.
            #expect(error?.message.contains("(1)") == false)
            let swallowed = await failure { () async throws(PostgresError) in
                try await connection.transaction { () async throws(PostgresError) in
                    _ = try await connection.query("INSERT INTO n VALUES ($1)", [.int64(2)])
                    _ = await failure { () async throws(PostgresError) in try await connection.execute("SELECT 1/0") }
                }
            }
            #expect(swallowed?.code == .usage, "a swallowed failure must not look like a commit")
            try await connection.transaction { () async throws(PostgresError) in
                _ = try await connection.query("INSERT INTO n VALUES ($1)", [.int64(3)])
            }
            let rows = try await connection.query("SELECT i FROM n").rows
            #expect(try rows.map { try $0.int64("i") } == [3])
        }
    }

    @Test func statementsOfOneExchangeTakeEffectTogetherOrNotAtAll() async throws {
        let schema = try TestPostgres.shared.get().schema()
        try await withConnection(schema: schema) { connection in
            try await connection.execute(
                """
                CREATE SCHEMA \(schema);
                CREATE TABLE n (i bigint PRIMARY KEY);
                CREATE TABLE m (i bigint REFERENCES n DEFERRABLE INITIALLY DEFERRED)
                """)
            func insert(_ table: String, _ values: [Int64?]) -> PostgresStatement {
                PostgresStatement("INSERT INTO \(table) SELECT unnest($1::bigint[])", [.int64s(values)])
            }
            let results = try await connection.transaction(of: [
                insert("n", [1, 2]), PostgresStatement("SELECT count(*) AS number FROM n", []),
                PostgresStatement("DELETE FROM n WHERE i = $1", [.int64(2)]),
            ])
            #expect(results.map(\.affectedRows) == [2, 1, 1])
            #expect(try results[1].first?.int64("number") == 2)
            let refused = await failure { () async throws(PostgresError) in
                _ = try await connection.transaction(of: [insert("n", [3]), insert("n", [3]), insert("n", [4])])
            }
            #expect(refused?.sqlstate == "23505")
            #expect(refused?.constraint == "n_pkey")
            // What fails at the commit itself, when each statement has had its answer, fails the whole.
            let late = await failure { () async throws(PostgresError) in
                _ = try await connection.transaction(of: [insert("n", [5]), insert("m", [99])])
            }
            #expect(late?.sqlstate == "23503")
            let rows = try await connection.query("SELECT i FROM n").rows
            #expect(try rows.map { try $0.int64("i") } == [1])
        }
    }

    @Test func aServerThatEndsInTheMiddleOfAnExchangeFailsItAtOnce() async throws {
        try await withConnection { connection in
            let error = await failure { () async throws(PostgresError) in
                _ = try await connection.transaction(of: [
                    PostgresStatement("SELECT 1", []),
                    PostgresStatement("SELECT pg_terminate_backend(pg_backend_pid())", []),
                    PostgresStatement("SELECT 2", []),
                ])
            }
            #expect(error?.outcome == .dependency)
            #expect(!connection.isOpen)
        }
    }

    @Test func twoCallsAtOnceAreRefused() async throws {
        try await withConnection { connection in
            let ended = Flag()
            async let slow = failure { () async throws(PostgresError) in
                defer { ended.raise() }
                _ = try await connection.query("SELECT pg_sleep(0.2)")
            }
            // Which of them starts first is the scheduler's choice: asked until they have met.
            var quick: PostgresError?
            while quick == nil && !ended.isRaised {
                quick = await failure { () async throws(PostgresError) in
                    _ = try await connection.query("SELECT 1")
                }
            }
            let errors = [await slow, quick].compactMap { $0 }
            #expect(errors.map(\.code) == [.usage], "whichever came second is refused, the other one works")
            let alive = try await answersOne(connection)
            #expect(alive)
        }
    }

    @Test func aLargeParameterAndALargeAnswerPassInPieces() async throws {
        try await withConnection { connection in
            let big = [UInt8](repeating: 7, count: 1_000_000)
            let row = try #require(try await connection.query("SELECT $1::bytea AS y", [.bytes(big)]).first)
            #expect(try row.bytes("y") == big)
        }
    }
}
