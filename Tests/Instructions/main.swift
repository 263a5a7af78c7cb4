import Foundation

// Runs one hot path so often; `deploy/dev/instructions.py` counts the instructions of two such runs, and the difference
// is what the path costs without the start of the program.
let arguments = CommandLine.arguments
guard arguments.count == 3, let path = HotPath(rawValue: arguments[1]), let rounds = Int(arguments[2]), rounds > 0
else {
    FileHandle.standardError.write(
        Data("usage: \(arguments[0]) \(HotPath.allCases.map(\.rawValue).joined(separator: "|")) ROUNDS\n".utf8))
    exit(2)
}
do {
    let run = try path.prepared()
    var sum = 0
    for round in 0..<rounds { sum &+= try run(round) }
    print("\(path.rawValue): \(rounds) rounds, \(sum)")
} catch {
    FileHandle.standardError.write(Data("\(path.rawValue): \(error)\n".utf8))
    exit(1)
}
