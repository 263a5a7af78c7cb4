internal import Glibc

/// The folder in which a process tells others on its machine where it is: `<name>.pid`, `<name>.ops`.
package struct RunFolder: Sendable {
    package let path: String

    /// - Parameter path: absolute; made, with its parents, when something is first written.
    package init(path: String) { self.path = path }

    /// Puts a small file in place in one step: a reader sees the old text or the new one whole.
    /// - Throws: `.configuration` when the folder can't be made or written.
    package func write(_ file: String, _ contents: String) throws(ServiceError) {
        try make()
        let temporary = "\(path)/.\(file).\(getpid())"
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        guard descriptor >= 0 else { throw failure("write \(temporary)") }
        let bytes = Array(contents.utf8)
        let written = Glibc.write(descriptor, bytes, bytes.count)
        close(descriptor)
        guard written == bytes.count, rename(temporary, "\(path)/\(file)") == 0 else {
            let error = failure("write \(path)/\(file)")
            unlink(temporary)
            throw error
        }
    }

    /// Removes a file if it still says what this process wrote: a successor's file stays.
    package func remove(_ file: String, ifItSays contents: String) {
        guard read(file) == contents else { return }
        unlink("\(path)/\(file)")
    }

    /// The text of a file of at most 4,096 bytes, or nil.
    package func read(_ file: String) -> String? {
        let descriptor = open("\(path)/\(file)", O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = Glibc.read(descriptor, &bytes, bytes.count)
        return count >= 0 ? String(decoding: bytes[..<count], as: UTF8.self) : nil
    }

    private func make() throws(ServiceError) {
        var prefix = ""
        for part in path.split(separator: "/") {
            prefix += "/" + part
            guard mkdir(prefix, 0o755) == 0 || errno == EEXIST || access(prefix, F_OK) == 0 else {
                throw failure("make the folder \(prefix)")
            }
        }
    }

    private func failure(_ what: String) -> ServiceError {
        ServiceError(
            .configuration, "cannot \(what) (\(String(cString: strerror(errno)))); RATCHET_RUN_DIR names the folder")
    }
}
