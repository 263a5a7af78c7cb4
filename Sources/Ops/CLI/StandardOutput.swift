internal import Glibc

/// Writing to the standard descriptors: whole texts, without buffers that an exit could lose.
enum StandardOutput {
    /// Output.
    /// - Returns: false when nobody reads any more.
    @discardableResult
    static func write(_ text: String) -> Bool { write(text, to: STDOUT_FILENO) }
    /// Standard error.
    static func complain(_ text: String) { _ = write(text, to: STDERR_FILENO) }

    /// A reader that went away (`| head`) ends the process quietly.
    static func ignoreClosedPipes() { signal(SIGPIPE, SIG_IGN) }

    /// The process goes on when its terminal goes away.
    static func outliveTerminal() { signal(SIGHUP, SIG_IGN) }

    /// Whoever closed the other end has read enough: nothing is said about it.
    private static func write(_ text: String, to descriptor: Int32) -> Bool {
        let bytes = Array(text.utf8)
        var written = 0
        while written < bytes.count {
            let count = bytes[written...].withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count > 0 {
                written += count
            } else if count < 0, errno == EAGAIN {
                var ready = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                _ = poll(&ready, 1, -1)
            } else if count == 0 || errno != EINTR {
                return false
            }
        }
        return true
    }
}
