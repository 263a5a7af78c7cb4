internal import JSON

/// The attributes of a write as one compact JSON object: what the door makes of a body, the queue carries and the writer
/// takes apart, without a text for each key and value on the way. Only this type writes the object, so it is flat, has no
/// white space and only the escapes that `JSONWriter` makes.
package struct EncodedAttributes: Equatable, Sendable, Sequence {
    /// The object with its braces; empty when there are no attributes.
    package let json: [UInt8]

    init(_ attributes: [IdentifyWrite.Attribute] = []) {
        guard !attributes.isEmpty else {
            json = []
            return
        }
        var writer = JSONWriter()
        writer.beginObject()
        for attribute in attributes {
            writer.key(attribute.key)
            writer.raw(attribute.value ?? "null")
        }
        writer.endObject()
        json = writer.bytes
    }

    /// - Parameter json: an object as this type writes it, or nothing.
    init(checked json: [UInt8]) { self.json = json }

    package var isEmpty: Bool { json.isEmpty }

    package func makeIterator() -> Iterator { Iterator(json) }

    /// The key's UTF-8 and the compact JSON text of the value, nil for null.
    package typealias Element = (key: [UInt8], value: String?)

    /// Reads on from each separator to the next one. Ends early where the text is not what it should be.
    package struct Iterator: IteratorProtocol {
        private let json: [UInt8]
        private var place = 1

        fileprivate init(_ json: [UInt8]) { self.json = json }

        package mutating func next() -> Element? {
            // A quote, at least one byte, a quote, a colon, a value and a bracket.
            guard place + 5 < json.count else { return nil }
            let keyStart = place + 1
            let (keyEnd, isPlain) = endOfString(from: keyStart)
            let valueStart = keyEnd + 2
            guard valueStart < json.count else { return nil }
            var valueEnd = valueStart
            if json[valueStart] == UInt8(ascii: "\"") {
                valueEnd = endOfString(from: valueStart + 1).end + 1
            } else {
                while valueEnd < json.count, json[valueEnd] != UInt8(ascii: ","), json[valueEnd] != UInt8(ascii: "}") {
                    valueEnd += 1
                }
            }
            guard valueEnd < json.count else { return nil }
            place = valueEnd + 1
            let key = isPlain ? Array(json[keyStart..<keyEnd]) : unescaped(json[keyStart..<keyEnd])
            let isNull = json[valueStart] == UInt8(ascii: "n")
            return (key, isNull ? nil : String(decoding: json[valueStart..<valueEnd], as: UTF8.self))
        }

        /// Where the closing quote stands, and whether there is no escape before it.
        private func endOfString(from start: Int) -> (end: Int, isPlain: Bool) {
            var index = start
            var isPlain = true
            while index < json.count, json[index] != UInt8(ascii: "\"") {
                if json[index] == UInt8(ascii: "\\") {
                    isPlain = false
                    index += 1
                }
                index += 1
            }
            return (Swift.min(index, json.count), isPlain)
        }

        /// Few keys have an escape, and only those that `JSONWriter` makes.
        private func unescaped(_ text: ArraySlice<UInt8>) -> [UInt8] {
            var bytes: [UInt8] = []
            var rest = text[...]
            while let byte = rest.popFirst() {
                guard byte == UInt8(ascii: "\\"), let escape = rest.popFirst() else {
                    bytes.append(byte)
                    continue
                }
                switch escape {
                case UInt8(ascii: "b"): bytes.append(0x08)
                case UInt8(ascii: "t"): bytes.append(0x09)
                case UInt8(ascii: "n"): bytes.append(0x0a)
                case UInt8(ascii: "f"): bytes.append(0x0c)
                case UInt8(ascii: "r"): bytes.append(0x0d)
                case UInt8(ascii: "u"):
                    let digits = String(decoding: rest.prefix(4), as: UTF8.self)
                    bytes.append(UInt8(digits, radix: 16) ?? 0)
                    rest = rest.dropFirst(4)
                default: bytes.append(escape)
                }
            }
            return bytes
        }
    }
}
