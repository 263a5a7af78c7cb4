import Glibc

/// Processor time, which tells what work costs however busy the machine is.
enum CPUTime {
    /// User and system time of this process, all threads.
    static var ownNanoseconds: Int64 {
        var usage = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &usage)
        return Int64(usage.tv_sec) * 1_000_000_000 + Int64(usage.tv_nsec)
    }

    /// Time on a processor of another process with one thread, such as a backend of Postgres; 0 when there is none.
    static func nanoseconds(of process: Int64) -> Int64 {
        guard let file = fopen("/proc/\(process)/schedstat", "r") else { return 0 }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 128)
        guard fgets(&line, Int32(line.count), file) != nil else { return 0 }
        let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return text.split(separator: " ").first.flatMap { Int64($0) } ?? 0
    }
}
