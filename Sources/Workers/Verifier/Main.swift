internal import EventLoop
internal import Glibc
internal import Jobs
internal import Service
internal import Trust
internal import WorkerCore

/// ratchet-verifier: signature work. Knows no database and opens no socket but those to Redis and for operations.
@main
struct VerifierMain {
    /// A root that expires sooner than this is worth a warning at the start, milliseconds.
    private static let rootWarningMilliseconds: Int64 = 180 * 86_400_000

    static func main() async {
        await ServiceMain.run(.verifier) { context in
            let (verifier, attestations) = try makeVerifiers(context)
            let loop = EventLoop(name: "verifier", time: context.time)
            let worker = try await WorkerProcess.start(context, .verify, loop)
            let handler = VerifyHandler(
                verifier: verifier, attestations: attestations, time: context.time,
                cores: max(1, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))))
            try await worker.run(handler)
        }
    }

    private static func makeVerifiers(
        _ context: ServiceContext
    ) throws -> (SignedTransactionVerifier, AttestationVerifier) {
        do {
            var extra: [UInt8]?
            if let path = context.settings.extraAppleRoots {
                guard let bytes = TextFile.read(path) else {
                    throw ServiceError(.configuration, "RATCHET_EXTRA_APPLE_ROOTS: cannot read \(path)")
                }
                extra = bytes
                context.log.warn("additional root certificates are trusted", ["path": path])
            }
            let verifier = try SignedTransactionVerifier(extraRootsPEM: extra)
            let attestations = try AttestationVerifier(extraRootsPEM: extra)
            for root in verifier.roots + [try TrustedRoot.appleAppAttestation()] {
                let left = root.millisecondsLeft(at: context.time.wallMilliseconds)
                if left < rootWarningMilliseconds {
                    context.log.warn(
                        "a root certificate expires soon", ["subject": root.subject, "milliseconds": left])
                }
            }
            return (verifier, attestations)
        } catch let error as TrustError {
            throw ServiceError(.configuration, "root certificates: \(error.message)")
        }
    }
}
