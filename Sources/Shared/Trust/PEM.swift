internal import Bytes

/// Certificates in textual form (RFC 7468).
package enum PEM {
    /// The DER of each `CERTIFICATE` block, in order. Text around the blocks is allowed, as `openssl x509 -text` writes
    /// it. Throws `.empty`, `.wrongFormat` (no block: DER, HTML, a key) or `.malformed` (a block that doesn't end or
    /// is no base64).
    package static func certificates(in text: [UInt8]) throws(TrustError) -> [[UInt8]] {
        guard !text.isEmpty else { throw TrustError(.empty, "the file is empty") }
        var found: [[UInt8]] = []
        var block: [UInt8]?
        for line in text.split(whereSeparator: { $0 == 0x0a || $0 == 0x0d }) {
            let line = trimmed(line)
            if line.elementsEqual("-----BEGIN CERTIFICATE-----".utf8) {
                guard block == nil else { throw TrustError(.malformed, "a certificate begins inside another") }
                block = []
            } else if line.elementsEqual("-----END CERTIFICATE-----".utf8) {
                guard let encoded = block, let der = Base64.decode(encoded, .standard), !der.isEmpty else {
                    throw TrustError(.malformed, "a certificate block is not whole base64")
                }
                found.append(der)
                block = nil
            } else {
                block?.append(contentsOf: line)
            }
        }
        guard block == nil else { throw TrustError(.malformed, "the last certificate has no end line") }
        guard !found.isEmpty else { throw TrustError(.wrongFormat, "\(kind(of: text)), not PEM with a certificate") }
        return found
    }

    /// The text of one certificate, with lines of 64 characters.
    package static func encode(certificate der: [UInt8]) -> String {
        let encoded = Array(Base64.encode(der, .standard).utf8)
        var lines = ["-----BEGIN CERTIFICATE-----"]
        for start in stride(from: 0, to: encoded.count, by: 64) {
            lines.append(String(decoding: encoded[start..<min(start + 64, encoded.count)], as: UTF8.self))
        }
        lines.append("-----END CERTIFICATE-----\n")
        return lines.joined(separator: "\n")
    }

    /// What a file that is not what was asked for seems to be, in words that follow "it is".
    static func kind(of bytes: [UInt8]) -> String {
        guard let first = bytes.first(where: { $0 > 0x20 }) else { return "it is blank" }
        if bytes.starts(with: [0x30, 0x82]) { return "it looks like DER" }
        if first == UInt8(ascii: "<") { return "it looks like an HTML or XML page" }
        if first == UInt8(ascii: "-") { return "it looks like PEM" }
        return "it is of no known kind"
    }

    private static func trimmed(_ line: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        var line = line
        while let last = line.last, last == 0x20 || last == 0x09 { line.removeLast() }
        return line
    }
}
