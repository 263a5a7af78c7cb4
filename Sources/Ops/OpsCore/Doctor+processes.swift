internal import EventLoop
internal import Glibc
internal import JSON
internal import Service

extension Doctor {
    /// The processes of this machine, by what they wrote into the run folder.
    func processes(_ settings: Settings, _ loop: EventLoop) async -> [Check] {
        let folder = RunFolder(path: settings.runFolder)
        var checks: [Check] = []
        for process in [ServiceProcess.ingress, .verifier, .writer] {
            checks.append(await check(process.rawValue, folder, loop))
        }
        return checks
    }

    private func check(_ name: String, _ folder: RunFolder, _ loop: EventLoop) async -> Check {
        guard let text = folder.read("\(name).pid") else {
            return Check(
                name, .warn, "does not run here, as far as \(folder.path) tells",
                remedy: "start it, unless it runs on another machine; RATCHET_RUN_DIR must be the one it has")
        }
        guard let pid = pid_t(Self.firstLine(text)), pid > 0 else {
            return Check(name, .fail, "\(folder.path)/\(name).pid holds no number", remedy: "restart \(name)")
        }
        // EPERM says that it lives and belongs to somebody else.
        guard kill(pid, 0) == 0 || errno == EPERM else {
            return Check(name, .fail, "process \(pid) has died", remedy: "start it; its last log lines say why it died")
        }
        guard let operations = folder.read("\(name).ops").flatMap({ ListenAddress(Self.firstLine($0)) }) else {
            return Check(
                name, .fail, "process \(pid) runs, but \(folder.path)/\(name).ops names no address",
                remedy: "restart \(name), unless it starts just now")
        }
        let answer = try? await loop.run { await OperationsProbe(loop: loop).get("/readyz", at: operations) }
        guard let answer = answer ?? nil else {
            return Check(
                name, .fail, "process \(pid) does not answer at \(operations)",
                remedy: "if that lasts, restart \(name)")
        }
        guard answer.status != 200 else { return Check(name, .ok, "process \(pid) is ready") }
        let reasons = Self.reasons(answer.body)
        return Check(
            name, .fail,
            "process \(pid) is not ready: \(reasons.isEmpty ? "status \(answer.status)" : reasons)",
            remedy: "mend the reason; it becomes ready by itself")
    }

    /// The reasons of `/readyz`, each after its check's name.
    private static func reasons(_ body: [UInt8]) -> String {
        guard let document = try? JSONDocument(parsing: body), let checks = document.root["checks"] else { return "" }
        return checks.elements.compactMap { check in
            guard let reason = check["reason"]?.string else { return nil }
            return "\(check["name"]?.string ?? "?"): \(reason)"
        }.joined(separator: "; ")
    }

    private static func firstLine(_ text: String) -> String {
        text.split(whereSeparator: \.isNewline).first.map { String($0) } ?? ""
    }
}
