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
    init?(bytes: ArraySlice<UInt8>) {
        for method in [HTTPMethod.post, .get, .options, .put, .patch, .delete, .head]
        where method.rawValue.utf8.elementsEqual(bytes) {
            self = method
            return
        }
        return nil
    }
}
