internal import HTTP

/// One request on its way through the handler.
final class SDKCall: Sendable {
    let request: HTTPRequest
    let route: SDKRoute
    /// Whose address it came from, behind trusted proxies too.
    let client: PeerAddress
    let requestID: String
    let startedNanoseconds: Int64
    let reply: HTTPReply

    init(
        request: HTTPRequest, route: SDKRoute, client: PeerAddress, requestID: String, startedNanoseconds: Int64,
        reply: HTTPReply
    ) {
        self.request = request
        self.route = route
        self.client = client
        self.requestID = requestID
        self.startedNanoseconds = startedNanoseconds
        self.reply = reply
    }
}
