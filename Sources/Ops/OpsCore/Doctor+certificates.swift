internal import EventLoop
internal import Service
internal import Trust

extension Doctor {
    private static let millisecondsPerDay: Int64 = 86_400_000
    /// Half a year: releases with a new root come slower than one thinks.
    private static let warningDays: Int64 = 180

    /// The roots that signed transactions are judged by.
    func certificates(extraRoots path: String?) -> [Check] {
        var checks: [Check] = []
        do throws(TrustError) {
            checks.append(check(try TrustedRoot.appleRootCAG3()))
        } catch {
            checks.append(
                Check(
                    "certificates", .fail, "the built-in Apple root can't be used: \(error.message)",
                    remedy: "this build is damaged: install it anew"))
        }
        guard let path else { return checks }
        guard let text = TextFile.read(path) else {
            return checks + [
                Check(
                    "certificates", .fail, "RATCHET_EXTRA_APPLE_ROOTS: cannot read \(path)",
                    remedy: "correct the path, or remove the setting")
            ]
        }
        do throws(TrustError) {
            for root in try TrustedRoot.roots(pem: text) { checks.append(check(root)) }
            checks.append(
                Check(
                    "certificates", .warn, "the roots of \(path) are trusted beside Apple's",
                    remedy: "remove RATCHET_EXTRA_APPLE_ROOTS unless this is a test installation"))
        } catch {
            checks.append(
                Check(
                    "certificates", .fail, "RATCHET_EXTRA_APPLE_ROOTS: \(error.message)",
                    remedy: "put PEM root certificates into \(path), or remove the setting"))
        }
        return checks
    }

    private func check(_ root: TrustedRoot) -> Check {
        let left = root.millisecondsLeft(at: time.wallMilliseconds)
        let text = "\(root.subject), SHA-256 \(root.fingerprint)"
        if left < 0 {
            return Check(
                "certificates", .fail, "\(text) has expired: nothing newer can be verified",
                remedy: "install a version of Ratchet with the new root")
        }
        let days = left / Self.millisecondsPerDay
        guard days < Self.warningDays else {
            return Check("certificates", .ok, "\(text), valid for \(days) more days")
        }
        return Check(
            "certificates", .warn, "\(text) expires in \(days) days",
            remedy: "install a version of Ratchet with the new root before then")
    }
}
