/// Header fields that many answers share, checked and written out once: what is the same on every answer costs each of
/// them a copy of its bytes and nothing more.
package struct HTTPHeaderBlock: Sendable {
    /// "Name: value\r\n" for each field.
    let lines: [UInt8]

    /// - Parameter headers: constants of the program. Traps on a field that can't be sent, and on one that is the
    ///   server's own to write.
    package init(_ headers: [(String, String)]) {
        var lines: [UInt8] = []
        for (name, value) in headers {
            let start = lines.count
            let isSound = ResponseWriter.append(name, value, to: &lines)
            precondition(isSound && lines.count > start, "a header block holds a field that can't be sent")
        }
        self.lines = lines
    }
}
