/// Why a server can't listen.
package struct HTTPServerError: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Code: Sendable, Hashable {
        /// Another socket has the port. A retry helps once that one is gone.
        case addressInUse
        /// No numeric address, or one that this machine doesn't have.
        case addressInvalid
        /// The port is privileged.
        case permissionDenied
        /// Descriptors or memory are short. A retry can help.
        case noResources
        case other
    }
    package let code: Code
    package let message: String

    package init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    package var canRetry: Bool { code == .addressInUse || code == .noResources }
    package var description: String { message }
}
