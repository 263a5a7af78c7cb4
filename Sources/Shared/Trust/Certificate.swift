internal import Bytes
internal import COpenSSL

/// One X.509 certificate that parsed as exactly one DER structure.
///
/// `@unchecked Sendable`: the handle is set once, freed once in `deinit`, and every function that is called on it only
/// reads (OpenSSL fills its cache of extensions while parsing).
final class Certificate: @unchecked Sendable {
    private let handle: OpaquePointer

    /// Nil unless the bytes are one DER certificate and nothing else.
    init?(der: [UInt8]) {
        guard let handle = copenssl_certificate_parse(der, UInt64(der.count)) else { return nil }
        self.handle = handle
    }

    deinit { copenssl_certificate_free(handle) }

    /// Seconds since 1970, both ends inside; nil when a date is not in RFC 5280's form or the window is empty.
    var window: ClosedRange<Int64>? {
        var notBefore: Int64 = 0
        var notAfter: Int64 = 0
        guard copenssl_certificate_window(handle, &notBefore, &notAfter) == 1, notBefore <= notAfter else { return nil }
        return notBefore...notAfter
    }

    /// RFC 2253 text, at most 511 bytes.
    var subject: String {
        var text = [CChar](repeating: 0, count: 512)
        copenssl_certificate_subject(handle, &text, UInt64(text.count))
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    var isAuthority: Bool { copenssl_certificate_is_authority(handle) == 1 }
    var isRoot: Bool { copenssl_certificate_is_root(handle) == 1 }
    var maySignData: Bool { copenssl_certificate_may_sign_data(handle) == 1 }

    /// Whether exactly one extension has this dotted identifier. Its value is not looked at: Apple's markers hold NULL.
    func hasExtension(_ oid: String) -> Bool { copenssl_certificate_extension_count(handle, oid) == 1 }

    func hasAny(_ oid: String) -> Bool { copenssl_certificate_extension_count(handle, oid) != 0 }

    /// The value of the only extension with this dotted identifier; nil for none, several, or more than 1 KiB.
    func extensionValue(_ oid: String) -> [UInt8]? {
        var value = [UInt8](repeating: 0, count: 1024)
        let size = copenssl_certificate_extension_value(handle, oid, &value, UInt64(value.count))
        guard size >= 0, size <= Int64(value.count) else { return nil }
        return Array(value.prefix(Int(size)))
    }

    /// The P-256 key; nil for any other kind of key.
    var p256Key: P256Key? { copenssl_certificate_p256_key(handle).map(P256Key.init(owning:)) }

    /// Why this is no path of exactly [leaf, intermediate, root], in OpenSSL's fixed words; nil when it is one. Dates
    /// are not looked at.
    static func pathFault(leaf: Certificate, intermediate: Certificate, root: RootStore) -> String? {
        let result = copenssl_root_verify(root.handle, leaf.handle, intermediate.handle)
        return result == 0 ? nil : String(cString: copenssl_root_error(result))
    }

    func makeStore() -> RootStore? { copenssl_root_create(handle).map(RootStore.init(owning:)) }

    /// This certificate as one whose own path was found good; nil only when memory ran out.
    func makeIssuer() -> IssuerStore? { copenssl_issuer_create(handle).map(IssuerStore.init(owning:)) }

    /// Whether it is signed by an intermediate whose own path holds. Dates are not looked at.
    func isIssued(by issuer: IssuerStore) -> Bool { copenssl_issuer_verify(issuer.handle, handle) == 0 }
}

/// A certificate store that holds one intermediate and nothing else.
///
/// `@unchecked Sendable`: as `RootStore`.
final class IssuerStore: @unchecked Sendable {
    fileprivate let handle: OpaquePointer
    fileprivate init(owning handle: OpaquePointer) { self.handle = handle }
    deinit { copenssl_issuer_free(handle) }
}

/// A certificate store that holds one root and nothing else.
///
/// `@unchecked Sendable`: set once, freed once in `deinit`; OpenSSL guards the store with a lock of its own and each
/// verification has its own context.
final class RootStore: @unchecked Sendable {
    fileprivate let handle: OpaquePointer
    fileprivate init(owning handle: OpaquePointer) { self.handle = handle }
    deinit { copenssl_root_free(handle) }
}

/// A P-256 public key.
///
/// `@unchecked Sendable`: set once, freed once in `deinit`; verifying only reads the key and makes its own context.
final class P256Key: @unchecked Sendable {
    private let handle: OpaquePointer
    fileprivate init(owning handle: OpaquePointer) { self.handle = handle }
    deinit { copenssl_p256_key_free(handle) }

    /// The uncompressed point, 65 bytes (SEC 1 §2.3.3).
    var point: [UInt8]? {
        var point = [UInt8](repeating: 0, count: 65)
        return copenssl_p256_key_point(handle, &point) == 1 ? point : nil
    }

    /// Whether `signature` is ES256 (RFC 7518 §3.4: r and s, 32 bytes each) over what has that digest.
    func verifies(signature: [UInt8], of digest: SHA256Digest) -> Bool {
        guard signature.count == 64 else { return false }
        return copenssl_es256_verify(handle, digest.bytes, signature) == 1
    }
}
