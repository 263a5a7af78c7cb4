import Foundation

// Measures one thing of Ratchet in a process of its own and prints one line of JSON: `BenchMain <subcommand> [options]`.
// Run by Tests/Bench; each file beside this one is a subcommand, listed here.
let subcommands: [any Subcommand.Type] = [
    JWSSamples.self, JWSRates.self, AttestSamples.self, AttestRates.self, QueueAccept.self, QueueSettle.self,
    QueueSlowest.self, QueueLive.self,
]

let arguments = Array(CommandLine.arguments.dropFirst())
guard let name = arguments.first, let subcommand = subcommands.first(where: { $0.name == name }) else {
    let names = subcommands.map { $0.name }.joined(separator: "|")
    FileHandle.standardError.write(Data("usage: BenchMain \(names) [--option value]\n".utf8))
    exit(2)
}
do {
    let figures = try await subcommand.run(Options(Array(arguments.dropFirst())))
    let fields = figures.map { "\"\($0.key)\":\($0.value)" }.sorted().joined(separator: ",")
    print("{\(fields)}")
} catch {
    FileHandle.standardError.write(Data("\(name): \(error)\n".utf8))
    exit(1)
}
