import EventLoop
import Foundation
import HTTPClient
import Postgres
import Store
import TestSupport
import Testing

/// The sweep with up to a million tokens pending, measured and printed: `make bench-adservices`. Nothing is asserted of
/// times.
@Suite(.enabled(if: ProcessInfo.processInfo.environment["RATCHET_BENCH_ADSERVICES"] != nil), .serialized)
struct SweeperBench {
    private static let most = Int(ProcessInfo.processInfo.environment["RATCHET_BENCH_ADSERVICES"] ?? "") ?? 1_000_000

    private func fill(_ system: SweeperSystem, from first: Int, to last: Int, due: String) async throws {
        try await system.query { connection in
            _ = try await connection.query(
                """
                INSERT INTO adservices_tokens (
                    organization, bundle_id, subject_kind, subject, stamp, sealed_token, due_at, environment, attested)
                SELECT 'o', 'b', 'install', 'p' || n, n, decode(repeat('ab', 590), 'hex'), \(due), 'Production', false
                FROM generate_series(\(first)::bigint, \(last)::bigint - 1) AS n
                """, deadlineMilliseconds: 300_000)
            _ = try await connection.execute("VACUUM ANALYZE adservices_tokens", deadlineMilliseconds: 300_000)
        }
    }

    /// What the statement takes in Postgres, by its own account.
    private static func claimMilliseconds(_ connection: PostgresConnection) async throws -> Double {
        let plan = try await connection.query(
            "EXPLAIN (ANALYZE, TIMING OFF) " + AdServicesSweep.claimStatement,
            [.bytes(Array(repeating: 1, count: 16)), .int64(.max / 4), .int64(1_500_000), .int64(500)])
        for row in plan.rows {
            let line = try row.string("QUERY PLAN")
            if line.hasPrefix("Execution Time: ") { return Double(line.split(separator: " ")[2]) ?? -1 }
        }
        return -1
    }

    @Test func claims() async throws {
        let system = try await SweeperSystem(sweepers: 0, timeScale: 1, FakeAdServices())
        var filled = 0
        for rows in [10_000, 100_000, 1_000_000] where rows <= Self.most {
            try await fill(system, from: filled, to: rows, due: "n")
            filled = rows
            let times = try await system.query { connection in
                var times: [Double] = []
                // Each claim leaves 500 dead entries at the head of the index for the next one to step over.
                for _ in 0..<15 { times.append(try await Self.claimMilliseconds(connection)) }
                return times.sorted()
            }
            print(
                "adservices bench: \(rows) pending: claim of 500 in Postgres, median "
                    + String(format: "%.1f ms, slowest %.1f ms", times[times.count / 2], times[times.count - 1]))
        }
        await system.stop()
    }

    @Test func exchanges() async throws {
        let tokens = 40_000
        let apple = try FakeAdServices(byDefault: { _, _ in .attributed(campaign: 7) })
        let caller = HTTPCaller(HTTPCaller.Configuration())
        let alone = SystemTime().monotonicNanoseconds
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<32 {
                group.addTask {
                    for _ in 0..<(tokens / 32) {
                        _ = await caller.post(Array("curl-alone".utf8), to: apple.url)
                    }
                }
            }
        }
        let curl = Double(tokens) / (Double(SystemTime().monotonicNanoseconds - alone) / 1e9)
        print("adservices bench: libcurl alone \(Int(curl)) exchanges/s")
        caller.close()

        let system = try await SweeperSystem(sweepers: 1, timeScale: 1, apple)
        try await fill(system, from: 0, to: Self.most, due: "\(Int64.max / 4)")
        for start in stride(from: 0, to: tokens, by: 5_000) { try await system.receive(start..<(start + 5_000)) }
        let before = apple.total
        try await system.start()
        await apple.waitForAsks(before + 1)
        let began = SystemTime().monotonicNanoseconds
        await apple.waitForAsks(before + tokens)
        let sweep = Double(tokens) / (Double(SystemTime().monotonicNanoseconds - began) / 1e9)
        let status = try String(
            contentsOfFile: "/proc/\(system.sweepers[0].processID ?? 0)/status", encoding: .utf8)
        let peak = status.split(separator: "\n").first { $0.hasPrefix("VmHWM") } ?? ""
        print("adservices bench: sweeper \(Int(sweep)) exchanges/s with \(Self.most) more pending, \(peak)")
        await system.stop()
    }
}
