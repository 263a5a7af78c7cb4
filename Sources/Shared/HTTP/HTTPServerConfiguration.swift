/// Every limit and timeout of a server. The defaults suit small JSON posts behind a proxy.
package struct HTTPServerConfiguration: Sendable {
    // MARK: One request

    /// Bytes of "METHOD target HTTP/1.1" without its CRLF; past it 414. What nginx allows too, so that a request the
    /// proxy took is not refused here.
    package var maxRequestLineBytes = 8 * 1024
    /// Bytes of all field lines with their CRLFs; past it 431. Real SDK requests need less than 2 KiB.
    package var maxHeaderBytes = 16 * 1024
    /// Field lines; past it 431. Browsers behind two proxies send about forty.
    package var maxHeaders = 100
    /// Bytes of trailer field lines after a chunked body; past it 431. They are dropped, so few are worth reading.
    package var maxTrailerBytes = 4 * 1024
    /// Bytes of chunk extensions in one body; past it 400. They are ignored, so that nothing is lost by the bound,
    /// and without it one-byte chunks would buy a sender unlimited work.
    package var maxChunkExtensionBytes = 1024

    // MARK: One connection

    /// Complete requests that wait on a connection besides the one being handled; past it reading pauses.
    package var maxPipelined = 16
    /// Bytes of waiting requests' bodies, or of unsent answers, past which reading and handling pause.
    package var maxBufferedBytes = 256 * 1024

    // MARK: All connections

    /// Connections at once; past it a new one is answered 503 and closed. Below the usual descriptor limit of a
    /// service (20,000 here), with room for everything else a process opens.
    package var maxConnections = 10_000
    /// Connections at once of one address; past it 503. 0 is none: behind a proxy all come from one address.
    package var maxConnectionsPerAddress = 0
    /// Length of the kernel's queue of connections not yet accepted: a burst of reconnecting clients fits in.
    package var backlog = 1024

    // MARK: Timeouts, in milliseconds

    /// From accept, or from a request's first byte, to the end of its header, in all: dripping bytes doesn't extend
    /// it. Ten seconds pass on the worst mobile network.
    package var headerTimeoutMilliseconds: Int64 = 10_000
    /// From the end of the header to the end of the body, in all. A 1 MiB body needs 140 kbit/s.
    package var bodyTimeoutMilliseconds: Int64 = 60_000
    /// Between two requests on a connection. Longer than the 60 s that proxies keep an idle upstream connection, so
    /// that the proxy closes first and no request meets a closing socket.
    package var idleTimeoutMilliseconds: Int64 = 75_000
    /// Without the client taking a byte of a waiting answer.
    package var writeTimeoutMilliseconds: Int64 = 30_000
    /// How long a closing connection reads on, so that the answer is not lost to a reset (RFC 9112 §9.6).
    package var lingerTimeoutMilliseconds: Int64 = 2_000

    // MARK: Hooks. Both run on the loop and must be quick.

    /// The most body bytes a request may have, by its head; past it 413. 64 KiB unless set.
    package var bodyLimit: @Sendable (HTTPRequestHead) -> Int = { _ in 64 * 1024 }
    /// The answer to a failure; the head is given where it had been read. Its status is kept as given.
    package var failure: @Sendable (HTTPFailure, HTTPRequestHead?) -> HTTPResponse = { failure, _ in
        failure.plainResponse
    }

    package init() {}
}
