use serde_json::Value;

use crate::schema::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::schema::field_path::FieldPath;

/// What a kind's names look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Lower case RFC 1123 subdomain; nearly all kinds.
    Subdomain,
    /// RFC 1123 label: namespaces.
    Label,
    /// RFC 1035 label: services.
    Rfc1035Label,
    /// Anything that can be one segment of a URL: RBAC.
    PathSegment,
}

impl NameRule {
    /// The rule of a kind.
    pub(crate) fn of(api_version: &str, kind: &str) -> Self {
        match (api_version, kind) {
            ("v1", "Namespace") => Self::Label,
            ("v1", "Service") => Self::Rfc1035Label,
            (rbac, _) if rbac.starts_with("rbac.authorization.k8s.io/") => Self::PathSegment,
            ("certificates.k8s.io/v1" | "networking.k8s.io/v1", "CertificateSigningRequest" | "IPAddress") => {
                Self::PathSegment
            }
            _subdomain => Self::Subdomain,
        }
    }

    /// What is wrong with `name`, if anything. A prefix may end where a name may not.
    pub(crate) fn problem(self, name: &str) -> Option<&'static str> {
        match self {
            Self::Subdomain if name.len() > SUBDOMAIN_MAX => Some("must be no more than 253 characters"),
            Self::Subdomain => (!is_dns_subdomain(name)).then_some(SUBDOMAIN_PROBLEM),
            Self::Label | Self::Rfc1035Label if name.len() > LABEL_MAX => Some("must be no more than 63 characters"),
            Self::Label => (!is_dns_label(name)).then_some(LABEL_PROBLEM),
            Self::Rfc1035Label => {
                let starts_with_letter = name.starts_with(|c: char| c.is_ascii_lowercase());
                (!(starts_with_letter && is_dns_label(name))).then_some(RFC1035_PROBLEM)
            }
            Self::PathSegment if name == "." || name == ".." => Some("may not be '.' or '..'"),
            Self::PathSegment => name.contains(['/', '%']).then_some("may not contain '/' or '%'"),
        }
    }
}

/// Characters of an RFC 1123 subdomain.
const SUBDOMAIN_MAX: usize = 253;
/// Characters of a label of a domain name, of a label's value and of the name part of a key.
const LABEL_MAX: usize = 63;
/// Bytes of all annotations together.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

const SUBDOMAIN_PROBLEM: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_PROBLEM: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const RFC1035_PROBLEM: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_PROBLEM: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_PROBLEM: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Whether the text is a lower case RFC 1123 label of at most 63 characters.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= LABEL_MAX
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether the text is a lower case RFC 1123 subdomain; its parts may be as long as the whole.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= SUBDOMAIN_MAX && text.split('.').all(part)
}

/// Whether the text may be the value of a label.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// Whether the text may be a key of a label: a name with an optional subdomain before it.
pub(crate) fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name_part(name),
        None => is_name_part(text),
    }
}

fn is_name_part(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    text.len() <= LABEL_MAX
        && bytes.iter().copied().all(inner)
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Checks `metadata`, as apimachinery's `ValidateObjectMeta` does.
pub(crate) fn validate_metadata(metadata: &Value, rule: NameRule, namespaced: bool, out: &mut FieldErrors) {
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
    let invalid = |path: &str, value: &str, detail: &str| {
        FieldError::new(&FieldPath::Text(path), FieldErrorKind::Invalid, detail).with_value(&Value::from(value))
    };
    let (name, prefix) = (text("name"), text("generateName"));
    if name.is_empty() && prefix.is_empty() {
        let detail = "name or generateName is required";
        out.push(FieldError::new(&FieldPath::Text("metadata.name"), FieldErrorKind::Required, detail));
    }
    if let Some(problem) = (!name.is_empty()).then(|| rule.problem(name)).flatten() {
        out.push_with(|| invalid("metadata.name", name, problem));
    }
    // A prefix is followed by a suffix and so may end in a dash.
    let whole = format!("{}a", prefix.trim_end_matches('-'));
    if let Some(problem) = (!prefix.is_empty()).then(|| rule.problem(&whole)).flatten() {
        out.push_with(|| invalid("metadata.generateName", prefix, problem));
    }
    let namespace = text("namespace");
    if !namespaced && !namespace.is_empty() {
        let detail = "not allowed on this type";
        out.push(FieldError::new(&FieldPath::Text("metadata.namespace"), FieldErrorKind::Forbidden, detail));
    } else if !namespace.is_empty() && !is_dns_label(namespace) {
        out.push_with(|| invalid("metadata.namespace", namespace, LABEL_PROBLEM));
    }
    for (key, value) in metadata.get("labels").and_then(Value::as_object).into_iter().flatten() {
        if !is_qualified_name(key) {
            out.push_with(|| invalid("metadata.labels", key, QUALIFIED_PROBLEM));
        }
        if let Some(value) = value.as_str().filter(|value| !is_label_value(value)) {
            let detail =
                if value.len() > LABEL_MAX { "must be no more than 63 characters" } else { LABEL_VALUE_PROBLEM };
            out.push_with(|| invalid("metadata.labels", value, detail));
        }
    }
    let mut bytes = 0;
    for (key, value) in metadata.get("annotations").and_then(Value::as_object).into_iter().flatten() {
        if !is_qualified_name(&key.to_ascii_lowercase()) {
            out.push_with(|| invalid("metadata.annotations", key, QUALIFIED_PROBLEM));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        let detail = format!("may not be more than {ANNOTATIONS_BYTES_MAX} bytes");
        out.push(FieldError::new(&FieldPath::Text("metadata.annotations"), FieldErrorKind::TooLong, detail));
    }
    for finalizer in metadata.get("finalizers").and_then(Value::as_array).into_iter().flatten() {
        if let Some(finalizer) = finalizer.as_str().filter(|finalizer| !is_qualified_name(finalizer)) {
            out.push_with(|| invalid("metadata.finalizers", finalizer, QUALIFIED_PROBLEM));
        }
    }
    validate_owners(metadata, out);
}

fn validate_owners(metadata: &Value, out: &mut FieldErrors) {
    let owners = metadata.get("ownerReferences").and_then(Value::as_array);
    let mut controllers = 0;
    for (at, owner) in owners.into_iter().flatten().enumerate() {
        let path = FieldPath::Text("metadata.ownerReferences");
        let path = path.index(at);
        for name in ["apiVersion", "kind", "name", "uid"] {
            if owner.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                out.push_with(|| FieldError::new(&path.field(name), FieldErrorKind::Required, "must not be empty"));
            }
        }
        controllers += usize::from(owner.get("controller") == Some(&Value::Bool(true)));
    }
    if controllers > 1 {
        let detail = "Only one reference can have Controller set to true";
        out.push(FieldError::new(&FieldPath::Text("metadata.ownerReferences"), FieldErrorKind::Invalid, detail));
    }
}
