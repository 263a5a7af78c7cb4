/// What came of asking Apple about one token.
package enum AdServicesReply: Equatable, Sendable {
    /// A whole answer.
    /// - Parameter retryAfterSeconds: what it asks to wait, if it does.
    case answered(status: Int, retryAfterSeconds: Int64?, body: [UInt8])
    /// An answer too long to be Apple's.
    case overlong(status: Int)
    /// No answer: no connection, none within the deadline, or one that broke off.
    case none(String)

    /// As the table keeps it: 0 when there was none.
    package var status: Int {
        switch self {
        case .answered(let status, _, _), .overlong(let status): status
        case .none: 0
        }
    }
}
