/// What a job is. A worker that does not know a kind, or its payload version, puts the job aside for a newer worker.
package struct JobKind: RawRepresentable, Hashable, Sendable {
    /// Lower-case letters, digits and underscores: it stands in headers and metrics.
    package let rawValue: String
    package init(rawValue: String) { self.rawValue = rawValue }

    /// Comes back as it was sent, through every stage: shows that the whole chain works.
    package static let echo = JobKind(rawValue: "echo")
    /// A validated `POST /api/sdk/v1/identify`.
    package static let identify = JobKind(rawValue: "identify")
    /// A validated `POST /api/sdk/v1/attribute`, before or after its signature was looked at.
    package static let attribute = JobKind(rawValue: "attribute")
    /// A validated `POST /api/sdk/v1/adservices`, its token sealed.
    package static let adServices = JobKind(rawValue: "adservices")
    /// A device's enrolment: asked by an ingress, judged by a verifier, made durable by a writer.
    package static let attest = JobKind(rawValue: "attest")
    /// Whose a device token is: asked by an ingress that does not know, answered by a writer.
    package static let device = JobKind(rawValue: "device")

    /// All that this version knows.
    package static let all: Set<JobKind> = [.echo, .identify, .attribute, .adServices, .attest, .device]
}
