internal import HTTP

extension FuzzTarget {
    /// Requests in one piece, byte by byte and in splits drawn from the input: always the same, and none that could be
    /// framed in two ways.
    static let http = FuzzTarget(name: "http", maximumBytes: 1200) { bytes throws(BrokenProperty) in
        let whole = try HTTPOutcome(of: [bytes[...]])
        try whole.checkMessages()
        try require(try HTTPOutcome(of: bytes.indices.map { bytes[$0...$0] }) == whole, "read otherwise byte by byte")
        try require(try HTTPOutcome(of: pieces(bytes)) == whole, "read otherwise in pieces")
    }

    /// Cuts where a generator says that the bytes themselves have seeded, so that an input means the same at each run.
    private static func pieces(_ bytes: [UInt8]) -> [ArraySlice<UInt8>] {
        // FNV-1a, then a linear congruential generator: both good enough to cut by.
        var state = bytes.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        func draw(below limit: Int) -> Int {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int(state >> 33) % limit
        }
        let longest = [2, 4, 20, 200][draw(below: 4)]
        var pieces: [ArraySlice<UInt8>] = []
        var rest = bytes[...]
        while !rest.isEmpty {
            let piece = rest.prefix(draw(below: longest + 1))
            pieces.append(piece)
            rest = rest.dropFirst(piece.count)
        }
        return pieces
    }
}
