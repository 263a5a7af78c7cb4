/// The methods the server hands to a handler. Every other one is answered 501 and the connection is closed: RFC 9110
/// §15.6.2 is for methods no resource here supports, while 405 is about one resource and so is the handler's to say.
package enum HTTPMethod: String, Sendable, Hashable, CaseIterable {
    case get = "GET"
    case post = "POST"
    case put = "PUT"
    case patch = "PATCH"
    case delete = "DELETE"
    case options = "OPTIONS"
    case head = "HEAD"

    /// Methods are case-sensitive (RFC 9110 §9.1).
    init?(_ bytes: Span<UInt8>) {
        func isAll(_ word: StaticString) -> Bool {
            bytes.count == word.utf8CodeUnitCount
                && word.withUTF8Buffer { word in bytes.indices.allSatisfy { bytes[$0] == word[$0] } }
        }
        if isAll("POST") {
            self = .post
        } else if isAll("GET") {
            self = .get
        } else if isAll("OPTIONS") {
            self = .options
        } else if isAll("PUT") {
            self = .put
        } else if isAll("PATCH") {
            self = .patch
        } else if isAll("DELETE") {
            self = .delete
        } else if isAll("HEAD") {
            self = .head
        } else {
            return nil
        }
    }
}
