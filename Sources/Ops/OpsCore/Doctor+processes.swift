internal import EventLoop
internal import Glibc
internal import JSON
internal import Service

extension Doctor {
    /// The processes of this machine, by what they wrote into their run folders.
    func processes(_ settings: Settings, _ loop: EventLoop) async -> [Check] {
        var checks: [Check] = []
        for process in ServiceProcess.services {
            let name = process.rawValue
            let folders = Self.runFolders(of: process, settings.runFolder)
            if folders.isEmpty {
                checks.append(
                    Check(
                        name, .warn, "does not run here, as far as \(settings.runFolder) tells",
                        remedy: "start it, unless it runs on another machine; RATCHET_RUN_DIR must be the one it has"))
            }
            for folder in folders { checks.append(await check(process, folder, loop)) }
        }
        return checks
    }

    /// The folders that hold the process's pid file: the one of the settings, and those beside it that bear the
    /// process's name (`ratchet-writer-1`), since several of a kind need one each.
    private static func runFolders(of process: ServiceProcess, _ path: String) -> [RunFolder] {
        let name = process.rawValue
        let parent = path.split(separator: "/").dropLast().map { "/" + $0 }.joined()
        let beside = entries(of: parent.isEmpty ? "/" : parent)
            .filter { $0 == name || $0.hasPrefix(name + "-") }.sorted().map { "\(parent)/\($0)" }
        return ([path] + beside.filter { $0 != path }).map { RunFolder(path: $0) }
            .filter { $0.read("\(process.fileName).pid") != nil }
    }

    /// The names in a folder; none when it can't be read.
    private static func entries(of path: String) -> [String] {
        guard let folder = opendir(path) else { return [] }
        defer { closedir(folder) }
        var names: [String] = []
        while let entry = readdir(folder) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            names.append(name)
        }
        return names
    }

    private func check(_ process: ServiceProcess, _ folder: RunFolder, _ loop: EventLoop) async -> Check {
        let (name, file) = (process.rawValue, process.fileName)
        guard let text = folder.read("\(file).pid") else {
            return Check(name, .warn, "has stopped just now", remedy: "start it")
        }
        guard let pid = pid_t(Self.firstLine(text)), pid > 0 else {
            return Check(name, .fail, "\(folder.path)/\(file).pid holds no number", remedy: "restart \(name)")
        }
        // EPERM says that it lives and belongs to somebody else.
        guard kill(pid, 0) == 0 || errno == EPERM else {
            return Check(name, .fail, "process \(pid) has died", remedy: "start it; its last log lines say why it died")
        }
        guard let operations = folder.read("\(file).ops").flatMap({ ListenAddress(Self.firstLine($0)) }) else {
            return Check(
                name, .fail, "process \(pid) runs, but \(folder.path)/\(file).ops names no address",
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
