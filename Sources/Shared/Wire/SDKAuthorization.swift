/// What the `Authorization` header of an SDK call says. Whether a token is live is for others to find out.
package enum SDKAuthorization: Equatable, Sendable {
    /// No such header: a tokenless call, taken as unverified.
    case absent
    /// `Bearer dt_` and 43 base64url characters; the text is the whole token with its prefix.
    case deviceToken(String)
    /// Anything else (another scheme, an empty or strange token): never a live token, so the call is refused with 401.
    case foreign

    /// - Parameter value: the header's value, nil when there is none. A call with several such headers is the caller's
    ///   to treat as foreign. The scheme's name is matched in any case (RFC 9110 §11.1), white space around is skipped.
    package init(header value: String?) {
        guard let value else {
            self = .absent
            return
        }
        let text = value.utf8.trimmingHeaderSpace()
        let scheme = Array("bearer ".utf8)
        guard text.count > scheme.count,
            zip(text, scheme).allSatisfy({ $0 == $1 || (TextRules.isAlphanumeric($0) && $0 | 0x20 == $1) })
        else {
            self = .foreign
            return
        }
        let token = text.dropFirst(scheme.count).drop { $0 == 0x20 }
        guard token.count == 3 + SDKLimits.deviceTokenCharacters, token.starts(with: "dt_".utf8),
            token.allSatisfy(TextRules.isBase64URL)
        else {
            self = .foreign
            return
        }
        self = .deviceToken(String(decoding: token, as: UTF8.self))
    }
}

/// Why a call carries no device token, as `X-RevenueHog-Unattested` says (seed 001). Raw values stand in
/// `WriteProof.unattestedReason`, in the database and in metrics: a closed set, so that no sender can fill them.
package enum UnattestedReason: String, CaseIterable, Sendable {
    case pending
    case unsupported
    case simulator
    case enrollFailed = "enroll-failed"
    /// A value outside the documented ones.
    case other

    /// - Parameter value: the header's bytes; nil, and so no reason, when there is none.
    package init?(header value: ArraySlice<UInt8>?) {
        guard let text = value?.trimmingHeaderSpace() else { return nil }
        for reason in Self.allCases where text.elementsEqual(reason.rawValue.utf8) {
            self = reason
            return
        }
        self = .other
    }
}

extension BidirectionalCollection<UInt8> {
    /// Without the spaces and tabs at both ends.
    fileprivate func trimmingHeaderSpace() -> SubSequence {
        var rest = self[...]
        while let first = rest.first, first == 0x20 || first == 0x09 { rest = rest.dropFirst() }
        while let last = rest.last, last == 0x20 || last == 0x09 { rest = rest.dropLast() }
        return rest
    }
}
