import Foundation

/// One thing that can be measured.
protocol Subcommand {
    static var name: String { get }
    /// - Returns: figures by name, units in the name.
    static func run(_ options: Options) async throws -> [String: Double]
}

/// `--name value` pairs.
struct Options {
    struct Problem: Error, CustomStringConvertible {
        let description: String
    }

    private var values: [String: String] = [:]

    init(_ arguments: [String]) throws {
        var rest = arguments[...]
        while let name = rest.popFirst() {
            guard name.hasPrefix("--"), let value = rest.popFirst() else {
                throw Problem(description: "\(name): options are --name value")
            }
            values[String(name.dropFirst(2))] = value
        }
    }

    func text(_ name: String) throws -> String {
        guard let value = values[name] else { throw Problem(description: "--\(name) is missing") }
        return value
    }

    func number(_ name: String, default standard: Int) throws -> Int {
        guard let value = values[name] else { return standard }
        guard let number = Int(value), number > 0 else {
            throw Problem(description: "--\(name) \(value): not a number")
        }
        return number
    }
}

/// User and system time of this process in seconds.
func processSeconds() -> Double {
    var time = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

/// How often a second of processor time `work` can be done, measured for `seconds` of it; the caller counts up from 0.
func rate(seconds: Double, _ work: (Int) throws -> Void) rethrows -> Double {
    var done = 0
    let begin = processSeconds()
    var spent = 0.0
    while spent < seconds {
        for _ in 0..<16 {
            try work(done)
            done += 1
        }
        spent = processSeconds() - begin
    }
    return Double(done) / spent
}
