import EventLoop
import Foundation
import Glibc
import Service
import Testing

/// The environment of a process under test.
private func environment(_ folder: String, _ more: [String: String] = [:]) -> [String: String] {
    ["RATCHET_MODE": "development", "RATCHET_RUN_DIR": folder].merging(more) { $1 }
}

/// Each test runs the frame in a process of its own, which sends itself real signals.
@Suite struct ServiceMainTests {
    private let folder = TemporaryFolder()

    private func text(_ result: ExitTest.Result?) -> String {
        String(decoding: result?.standardErrorContent ?? [], as: UTF8.self)
    }

    @Test func aSignalStopsGracefullyAndLeavesNoFile() async {
        let path = folder.path
        let result = await #expect(processExitsWith: .exitCode(0), observing: [\.standardErrorContent]) {
            [path = path as String] in
            await ServiceMain.run(.writer, environment: environment(path, ["RATCHET_TYPO": "1"])) { context in
                let run = RunFolder(path: path)
                guard run.read("writer.pid") == "\(getpid())\n",
                    let address = run.read("writer.ops")?.dropLast(),
                    let listening = ListenAddress(String(address)),
                    try await get(listening, "/healthz").head.hasPrefix("HTTP/1.1 200 "),
                    try await get(listening, "/metrics").body.contains("process=\"ratchet-writer\""),
                    context.livenessName.contains("-\(getpid())-")
                else { throw ServiceError(.internalFault, "not set up") }
                kill(getpid(), SIGPIPE)
                kill(getpid(), SIGTERM)
                await context.stopping()
            }
        }
        #expect(folder.files.isEmpty)
        let lines = text(result).split(separator: "\n").filter { $0.hasPrefix("{") }
        #expect(lines.count == 3)
        #expect(lines.first?.contains(#""message":"unknown setting","fields":{"name":"RATCHET_TYPO""#) == true)
        #expect(lines.contains { $0.contains(#""message":"started""#) })
        #expect(lines.last?.contains(#""message":"stopped","fields":{"reason":"SIGTERM"}"#) == true)
    }

    @Test func aSecondSignalEndsTheProcessAtOnce() async {
        let path = folder.path
        await #expect(processExitsWith: .exitCode(128 + SIGTERM)) { [path = path as String] in
            await ServiceMain.run(.writer, environment: environment(path)) { context in
                kill(getpid(), SIGTERM)
                await context.stopping()
                kill(getpid(), SIGTERM)
                await context.loop.sleep(milliseconds: 60_000)
            }
        }
    }

    @Test func oneCtrlCToldTwiceIsOneStop() async {
        let path = folder.path
        await #expect(processExitsWith: .exitCode(0)) { [path = path as String] in
            await ServiceMain.run(.writer, environment: environment(path)) { context in
                kill(getpid(), SIGINT)
                await context.stopping()
                kill(getpid(), SIGTERM)
                // Time for the signal thread to end the process, were it to misunderstand.
                await context.loop.sleep(milliseconds: 200)
            }
        }
    }

    @Test func aStopThatHangsIsEndedAtItsDeadline() async {
        let path = folder.path
        let result = await #expect(processExitsWith: .exitCode(70), observing: [\.standardErrorContent]) {
            [path = path as String] in
            await ServiceMain.run(.writer, environment: environment(path, ["RATCHET_STOP_GRACE_MS": "50"])) { context in
                context.lifecycle.stop(because: "test")
                await context.loop.sleep(milliseconds: 60_000)
            }
        }
        #expect(text(result).contains("the stop took longer than its grace"))
    }

    @Test func badSettingsAreOneLineEachAndExitCode2() async {
        let result = await #expect(processExitsWith: .exitCode(2), observing: [\.standardErrorContent]) {
            await ServiceMain.run(.ingress, environment: ["RATCHET_BATCH": "many", "RATCHET_MODE": "development"]) {
                _ in
            }
        }
        #expect(
            text(result).contains(
                "ratchet-ingress: RATCHET_BATCH must be a whole number from 1 to 10000, for example 1024; it is \"many\"\n"
            ))
    }

    @Test func aDependencyThatIsAwayAtBootIsExitCode3() async {
        let path = folder.path
        let result = await #expect(processExitsWith: .exitCode(3), observing: [\.standardErrorContent]) {
            [path = path as String] in
            await ServiceMain.run(.verifier, environment: environment(path)) { _ in
                throw ServiceError(.dependencyAway, "Redis at unix:///x does not answer")
            }
        }
        #expect(text(result).contains("ratchet-verifier: Redis at unix:///x does not answer\n"))
        #expect(folder.files.isEmpty)
    }

    @Test func livenessNamesNeverRepeat() {
        let names = Set((0..<100).map { _ in ServiceMain.livenessName() })
        #expect(names.count == 100)
        let allowed = CharacterSet(charactersIn: "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")
        #expect(names.allSatisfy { $0.unicodeScalars.allSatisfy(allowed.contains) })
    }
}
