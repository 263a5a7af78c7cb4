internal import Glibc
internal import Synchronization

/// Where log lines go.
package protocol LogSink: Sendable {
    /// Takes one whole line, newline included, from any thread. Must not wait for a reader.
    /// - Returns: false when the line had to be dropped.
    func write(_ line: [UInt8]) -> Bool
}

/// Writes lines to a descriptor that may be a file, a terminal, a pipe or a socket, and never waits for its reader:
/// a line that the kernel won't take at once is dropped, because a stuck log collector must not stop a loop.
///
/// The descriptor is shared with other processes, so it isn't switched to non-blocking; it is asked first. A line of at
/// most `PIPE_BUF` (4,096) bytes that a pipe has room for goes in whole. What remains: another writer of the same pipe
/// may take the room between the question and the write; then this write waits for the reader like any other program.
package final class DescriptorLogSink: LogSink {
    private let descriptor: Int32
    private let isSocket: Bool
    /// The unwritten end of a line that was taken in part; it goes out before anything else, so lines never mix.
    private let unwritten = Mutex<[UInt8]>([])

    /// - Parameter descriptor: stays the caller's; standard error by default.
    package init(descriptor: Int32 = 2) {
        self.descriptor = descriptor
        var status = stat()
        isSocket = fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFSOCK
    }

    package func write(_ line: [UInt8]) -> Bool {
        unwritten.withLock { unwritten in
            if !unwritten.isEmpty {
                guard let sent = push(unwritten) else { return false }
                unwritten.removeFirst(sent)
                guard unwritten.isEmpty else { return false }
            }
            guard let sent = push(line) else { return false }
            unwritten = Array(line.dropFirst(sent))
            return true
        }
    }

    /// Bytes taken, or nil when none could be.
    private func push(_ bytes: [UInt8]) -> Int? {
        while true {
            let sent: Int
            if isSocket {
                sent = send(descriptor, bytes, bytes.count, Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL))
            } else {
                var question = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                guard poll(&question, 1, 0) == 1, question.revents & Int16(POLLOUT) != 0 else { return nil }
                sent = Glibc.write(descriptor, bytes, bytes.count)
            }
            if sent > 0 { return sent }
            guard sent < 0, errno == EINTR else { return nil }
        }
    }
}

/// Keeps lines in memory, for tests of what a component logs.
package final class MemoryLogSink: LogSink {
    private struct State {
        var lines: [String] = []
        var refusing = false
    }
    private let state = Mutex(State())

    package init() {}

    package func write(_ line: [UInt8]) -> Bool {
        state.withLock { state in
            guard !state.refusing else { return false }
            state.lines.append(String(decoding: line.dropLast(), as: UTF8.self))
            return true
        }
    }

    /// Every line taken so far, without newlines.
    package var lines: [String] { state.withLock { $0.lines } }

    /// From now on lines are dropped (true) or taken (false), as by a reader that is stuck.
    package func refuse(_ refusing: Bool) { state.withLock { $0.refusing = refusing } }
}
