import Glibc

/// Uses up a process's descriptors and gives them back one by one.
struct DescriptorFiller {
    private var held: [Int32] = []

    /// - Parameter limit: the most descriptors the process may have from now on.
    init(limit: UInt64) {
        var limits = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limits)
        limits.rlim_cur = rlim_t(limit)
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limits)
    }

    mutating func fill() {
        while true {
            let fd = open("/dev/null", O_RDONLY)
            if fd < 0 { return }
            held.append(fd)
        }
    }

    mutating func free(_ count: Int) {
        for _ in 0..<min(count, held.count) { close(held.removeLast()) }
    }
}
