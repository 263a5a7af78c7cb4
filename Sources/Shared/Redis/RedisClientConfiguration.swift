/// Limits and deadlines of one client.
package struct RedisClientConfiguration: Sendable {
    /// Connecting and the greeting (AUTH, SELECT, PING) together, per address tried.
    package var connectTimeoutMilliseconds: Int64
    /// How long a command may wait for its reply unless the call says otherwise. Past it the whole connection is
    /// closed, so a client for blocking commands is one of its own with a timeout above its BLOCK.
    package var commandTimeoutMilliseconds: Int64
    /// How long a command that finds no connection waits for one; 0 fails it at once with `.unavailable`.
    package var connectionWaitMilliseconds: Int64
    /// Pause before the first attempt after a loss; doubled for each further one, with up to a fifth added at random.
    package var minBackoffMilliseconds: Int64
    /// The longest pause before jitter. A connection that lived at least this long starts again at the shortest.
    package var maxBackoffMilliseconds: Int64
    /// Commands waiting for replies; more fail at once with `.unavailable` instead of growing the queue.
    package var maxInFlight: Int
    /// Bytes encoded and not yet taken by the kernel; a command above it fails at once with `.unavailable`.
    package var maxUnsentBytes: Int
    /// Bytes of one reply; a larger one is a `.protocolViolation` and closes the connection.
    package var maxReplyBytes: Int
    /// A subscription's connection is asked for a sign of life this often, and dropped when none came in between.
    package var subscriptionPingMilliseconds: Int64
    /// Messages kept for a subscriber that doesn't read; beyond it the oldest are dropped.
    package var subscriptionBuffer: Int
    /// Shown by CLIENT LIST; no spaces. Nil sets none.
    package var clientName: String?
    /// In a cluster each slot in use has a connection of its own, so that a blocking command holds up no other slot.
    package var connectionPerSlot: Bool

    package init(
        connectTimeoutMilliseconds: Int64 = 2_000,
        commandTimeoutMilliseconds: Int64 = 10_000,
        connectionWaitMilliseconds: Int64 = 0,
        minBackoffMilliseconds: Int64 = 50,
        maxBackoffMilliseconds: Int64 = 1_000,
        maxInFlight: Int = 16_384,
        maxUnsentBytes: Int = 64 << 20,
        maxReplyBytes: Int = 64 << 20,
        subscriptionPingMilliseconds: Int64 = 5_000,
        subscriptionBuffer: Int = 16_384,
        clientName: String? = nil,
        connectionPerSlot: Bool = false
    ) {
        self.connectTimeoutMilliseconds = connectTimeoutMilliseconds
        self.commandTimeoutMilliseconds = commandTimeoutMilliseconds
        self.connectionWaitMilliseconds = connectionWaitMilliseconds
        self.minBackoffMilliseconds = minBackoffMilliseconds
        self.maxBackoffMilliseconds = maxBackoffMilliseconds
        self.maxInFlight = maxInFlight
        self.maxUnsentBytes = maxUnsentBytes
        self.maxReplyBytes = maxReplyBytes
        self.subscriptionPingMilliseconds = subscriptionPingMilliseconds
        self.subscriptionBuffer = subscriptionBuffer
        self.clientName = clientName
        self.connectionPerSlot = connectionPerSlot
    }
}
