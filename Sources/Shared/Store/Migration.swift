internal import Bytes

/// One numbered step of the schema: a file of `Migrations/`, never edited once it has been applied anywhere.
package struct Migration: Equatable, Sendable {
    package let number: Int
    package let sql: String
    /// Lower-case hex SHA-256 of the file's bytes.
    package let checksum: String

    package init(number: Int, bytes: [UInt8]) {
        self.number = number
        sql = String(decoding: bytes, as: UTF8.self)
        checksum = SHA256Digest(of: bytes).hex
    }

    /// All steps this program knows, in order. A new file needs its line here (SwiftPM drops the first digit of the
    /// name).
    package static let all: [Migration] = [
        Migration(number: 1, bytes: PackageResources._01_sql),
        Migration(number: 2, bytes: PackageResources._02_sql),
        Migration(number: 3, bytes: PackageResources._03_sql),
        Migration(number: 4, bytes: PackageResources._04_sql),
        Migration(number: 5, bytes: PackageResources._05_sql),
        Migration(number: 6, bytes: PackageResources._06_sql),
        Migration(number: 7, bytes: PackageResources._07_sql),
    ]
}

/// Where a schema stands against what this program needs.
package struct MigrationState: Equatable, Sendable {
    /// The highest migration applied; 0 for none.
    package let current: Int
    /// The highest migration this program knows.
    package let needed: Int
    /// Known migrations that were not applied.
    package let missing: [Int]
    /// Applied ones that this program does not know: a newer program was here. Harmless, since migrations are safe with
    /// the old program still running.
    package let unknown: [Int]
    /// Applied ones whose text differs from this program's.
    package let changed: [Int]

    /// Whether this program can work on the schema.
    package var fits: Bool { missing.isEmpty && changed.isEmpty }
}
