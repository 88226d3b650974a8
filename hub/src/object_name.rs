//! What a Kubernetes object can be called.

/// Bytes of the name of a Kubernetes object that is a DNS subdomain (RFC 1123).
pub(crate) const NAME_BYTES_MAX: usize = 253;

/// Whether an object can have this name: a DNS subdomain (RFC 1123), as Kubernetes asks of most kinds.
pub(crate) fn is_object_name(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_part)
}
