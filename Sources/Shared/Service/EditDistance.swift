/// How far two names are apart, for guessing what a mistyped one was meant to be.
package enum EditDistance {
    /// Levenshtein distance in bytes. Costs the product of the lengths: the caller bounds them.
    package static func between(_ a: [UInt8], _ b: [UInt8]) -> Int {
        var row = Array(0...b.count)
        for (index, character) in a.enumerated() {
            var diagonal = row[0]
            row[0] = index + 1
            for column in b.indices {
                let substitution = diagonal + (b[column] == character ? 0 : 1)
                diagonal = row[column + 1]
                row[column + 1] = min(substitution, diagonal + 1, row[column] + 1)
            }
        }
        return row[b.count]
    }
}
