internal import Bytes

extension FuzzTarget {
    /// Both forms of base64 and hexadecimal: what is taken is what the encoder writes for it, and the other way round.
    static let base64 = FuzzTarget(name: "base64", maximumBytes: 128) { bytes throws(BrokenProperty) in
        for form in [Base64.Form.standard, .url] {
            if let decoded = Base64.decode(bytes, form) {
                try require(
                    Base64.encode(decoded, form).utf8.elementsEqual(bytes),
                    "\(form) text that is not what encode writes")
            }
            try require(
                Base64.decode(Base64.encode(bytes, form).utf8, form) == bytes, "\(form) text is read as other bytes")
            // Bytes without storage of their own take another way.
            try require(
                Base64.decode(bytes.lazy.map { $0 }, form) == Base64.decode(bytes, form),
                "\(form) text is read otherwise from a lazy collection")
        }
        let text = String(decoding: bytes, as: UTF8.self)
        if let decoded = Hex.decode(text) {
            try require(Hex.encode(decoded) == text.lowercased(), "hexadecimal that is not what encode writes")
        }
        try require(Hex.decode(Hex.encode(bytes)) == bytes, "hexadecimal is read as other bytes")
    }
}
