package import HTTP

extension Settings {
    /// The limits and timeouts of the SDK API's HTTP server; its body limit is one for all paths, its failure answers
    /// are the plain ones.
    package var httpServerConfiguration: HTTPServerConfiguration {
        var configuration = HTTPServerConfiguration()
        configuration.maxRequestLineBytes = self.httpMaxRequestLineBytes
        configuration.maxHeaderBytes = self.httpMaxHeaderBytes
        configuration.maxHeaders = self.httpMaxHeaders
        configuration.maxPipelined = self.httpMaxPipelined
        configuration.maxConnections = self.maxConnections
        configuration.maxConnectionsPerAddress = self.maxConnectionsPerAddress
        configuration.headerTimeoutMilliseconds = Int64(self.httpHeaderTimeoutMilliseconds)
        configuration.bodyTimeoutMilliseconds = Int64(self.httpBodyTimeoutMilliseconds)
        configuration.idleTimeoutMilliseconds = Int64(self.httpIdleTimeoutMilliseconds)
        configuration.writeTimeoutMilliseconds = Int64(self.httpWriteTimeoutMilliseconds)
        let maxBodyBytes = self.httpMaxBodyBytes
        configuration.bodyLimit = { _ in maxBodyBytes }
        return configuration
    }
}
