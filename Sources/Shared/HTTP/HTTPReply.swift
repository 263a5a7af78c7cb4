/// The way back for an answer that a handler did not give at once.
///
/// The request's connection takes up its next request only after the answer, so that answers keep the order of the
/// requests: a handler that keeps none of its replies makes its clients wait for ever.
package struct HTTPReply: Sendable {
    let connection: HTTPConnection
    let ordinal: Int

    /// Answers the request. Called on the server's loop, once; a second answer, or one to a client that is gone, is
    /// dropped.
    package func send(_ response: HTTPResponse) { connection.answer(response, ordinal) }
}
