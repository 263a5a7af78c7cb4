/// What a server has done since it was made. Read on the loop.
package struct HTTPServerCounters: Sendable, Equatable {
    /// Connections accepted, those refused included.
    package var accepted: Int64 = 0
    /// Connections open now, closing ones included.
    package var connections: Int64 = 0
    /// Complete requests given to the handler.
    package var requests: Int64 = 0
    /// Connections answered 503 because a limit was met.
    package var refused: Int64 = 0
    /// Requests the server answered with an error of its own, but for timeouts.
    package var badRequests: Int64 = 0
    /// Connections ended by the header, body, idle or write timeout.
    package var timeouts: Int64 = 0
    /// Times that accepting paused because the kernel had no descriptor or memory left.
    package var acceptPauses: Int64 = 0
    /// Bytes received.
    package var receivedBytes: Int64 = 0

    package init() {}
}
