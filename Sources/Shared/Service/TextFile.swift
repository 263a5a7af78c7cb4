internal import Glibc

/// Small files that a process reads at its start.
package enum TextFile {
    /// Larger ones are not what was meant.
    private static let mostBytes = 1 << 20

    /// The bytes of a file of at most 1 MiB, or nil when it can't be read.
    package static func read(_ path: String) -> [UInt8]? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        return read(descriptor: descriptor)
    }

    /// The bytes up to the end of an open descriptor (standard input, a pipe), at most 1 MiB; nil on error or above.
    package static func read(descriptor: Int32) -> [UInt8]? {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count < 0 && errno == EINTR { continue }
            if count < 0 { return nil }
            if count == 0 { return bytes }
            bytes.append(contentsOf: buffer[0..<count])
            if bytes.count > mostBytes { return nil }
        }
    }
}
