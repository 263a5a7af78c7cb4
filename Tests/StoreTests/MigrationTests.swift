import Postgres
import Store
import TestSupport
import Testing

@Suite struct MigrationTests {
    @Test func aFreshSchemaIsCreatedOnceAndFits() async throws {
        let store = TestStore(schema: try TestPostgres.shared.get().schema())
        try await store.withConnection { connection in
            let before = try await Migrator.state(connection)
            #expect(before.current == 0)
            #expect(!before.fits)
            let applied = try await Migrator.migrate(connection)
            #expect(applied == Migration.all.map(\.number))
            let again = try await Migrator.migrate(connection)
            #expect(again.isEmpty)
            let after = try await Migrator.state(connection)
            #expect(after.fits)
            #expect(after.current == after.needed)
            let tables = try await connection.count("pg_tables WHERE schemaname = '\(store.schema)'")
            #expect(tables == 18)
        }
    }

    @Test func migratorsThatStartTogetherApplyEachStepOnce() async throws {
        let store = TestStore(schema: try TestPostgres.shared.get().schema())
        let steps = Migration.all + [Migration(number: 900, bytes: Array("CREATE TABLE late (i int)".utf8))]
        let applied = try await withThrowingTaskGroup(of: [Int].self) { group in
            for _ in 0..<6 {
                group.addTask {
                    try await store.withConnection { try await Migrator.migrate($0, to: steps) }
                }
            }
            return try await group.reduce(into: [Int]()) { $0 += $1 }
        }
        #expect(applied.sorted() == steps.map(\.number))
    }

    @Test func anEditedMigrationIsRefused() async throws {
        try await withStore { connection in
            let edited = Migration.all.map { Migration(number: $0.number, bytes: Array(($0.sql + " ").utf8)) }
            let error = await failure { () async throws(StoreError) in
                try await Migrator.migrate(connection, to: edited)
            }
            #expect(error?.code == .migrationChanged)
            #expect(error?.isRetryable == false)
            let state = try await Migrator.state(connection, against: edited)
            #expect(state.changed == edited.map(\.number))
            #expect(!state.fits)
        }
    }

    @Test func aNewerSchemaFitsTheOldProgram() async throws {
        try await withStore { connection in
            let newer = Migration.all + [Migration(number: 900, bytes: Array("CREATE TABLE late (i int)".utf8))]
            try await Migrator.migrate(connection, to: newer)
            let state = try await Migrator.state(connection)
            #expect(state.unknown == [900])
            #expect(state.fits)
            let applied = try await Migrator.migrate(connection)
            #expect(applied.isEmpty)
        }
    }

    @Test func aSkippedMigrationIsRefused() async throws {
        try await withStore { connection in
            let late = Migration(number: 902, bytes: Array("SELECT 1".utf8))
            try await Migrator.migrate(connection, to: Migration.all + [late])
            let skipped = Migration(number: 901, bytes: Array("SELECT 1".utf8))
            let error = await failure { () async throws(StoreError) in
                try await Migrator.migrate(connection, to: Migration.all + [skipped, late])
            }
            #expect(error?.code == .migrationSkipped)
        }
    }

    @Test func aFailingMigrationLeavesNothingBehind() async throws {
        try await withStore { connection in
            let broken = Migration(number: 900, bytes: Array("CREATE TABLE half (i int); SELECT nonsense".utf8))
            let error = await failure { () async throws(StoreError) in
                try await Migrator.migrate(connection, to: Migration.all + [broken])
            }
            #expect(error?.code == .database)
            let half = try await connection.count(
                "pg_tables WHERE tablename = 'half' AND schemaname = current_schema()")
            #expect(half == 0)
            let state = try await Migrator.state(connection)
            #expect(state.current == Migration.all.last?.number)
        }
    }
}
