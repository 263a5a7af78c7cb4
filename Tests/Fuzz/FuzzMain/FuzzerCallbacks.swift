internal import FuzzTargets
internal import Glibc

// What libFuzzer, whose `main` this program has, calls by name:
// `RATCHET_FUZZ_TARGET=<target> FuzzMain [options of libFuzzer] [folders or files]`. deploy/dev/fuzz.py knows the options.

/// Set before the first input and never again; C functions carry nothing.
nonisolated(unsafe) private var chosen: FuzzTarget?

/// Called once, before the options are read: picks the target, and puts its longest input before the caller's options,
/// which win.
@_cdecl("LLVMFuzzerInitialize")
public func initialize(
    _ count: UnsafeMutablePointer<CInt>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>
) -> CInt {
    let name = getenv("RATCHET_FUZZ_TARGET").map { String(cString: $0) } ?? ""
    guard let target = FuzzTarget.all.first(where: { $0.name == name }) else {
        report("RATCHET_FUZZ_TARGET must be one of \(FuzzTarget.all.map(\.name).joined(separator: ", "))")
        exit(2)
    }
    chosen = target
    // Never freed: the fuzzer keeps it to the end.
    let longer = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>.allocate(capacity: Int(count.pointee) + 2)
    longer.initialize(to: arguments.pointee[0])
    (longer + 1).initialize(to: strdup("-max_len=\(target.maximumBytes)"))
    // With the null pointer that ends them.
    (longer + 2).initialize(from: arguments.pointee + 1, count: Int(count.pointee))
    arguments.pointee = longer
    count.pointee += 1
    return 0
}

/// Called with each input, which lives as long as the call.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard let chosen else { return -1 }
    do throws(BrokenProperty) {
        try chosen.check(Array(UnsafeBufferPointer(start: bytes, count: count)))
    } catch {
        report("broken property: \(error)")
        // What ends the process is what the fuzzer keeps an input for.
        abort()
    }
    return 0
}

private func report(_ line: String) {
    var text = line + "\n"
    text.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
}
