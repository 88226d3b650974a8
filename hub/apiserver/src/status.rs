//! Failures as Kubernetes clients know them: `Status` objects with the reasons and texts of a real API server.

use http::StatusCode;
use serde_json::{Map, Value, json};
use tideline_store as store;

/// A request that failed, and how to say so.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    details: Map<String, Value>,
}

/// One reason among several, with the field that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) field: String,
}

const STORAGE_READ_ERROR: &str = "StorageReadError";

/// `plural` or `plural.group`, as messages name a resource.
pub(crate) fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Map::new() }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        if !name.is_empty() {
            self.details.insert("name".into(), name.into());
        }
        if !group.is_empty() {
            self.details.insert("group".into(), group.into());
        }
        if !kind.is_empty() {
            self.details.insert("kind".into(), kind.into());
        }
        self
    }

    fn causes(mut self, causes: impl IntoIterator<Item = Cause>) -> Self {
        let causes: Vec<Value> = causes
            .into_iter()
            .map(|Cause { reason, message, field }| {
                let mut cause = Map::new();
                if !reason.is_empty() {
                    cause.insert("reason".into(), reason.into());
                }
                cause.insert("message".into(), message.into());
                if !field.is_empty() {
                    cause.insert("field".into(), field.into());
                }
                Value::Object(cause)
            })
            .collect();
        if !causes.is_empty() {
            self.details.insert("causes".into(), causes.into());
        }
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.details.insert("retryAfterSeconds".into(), seconds.into());
        self
    }

    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = qualified(group, plural);
        let message = match (plural.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} {name:?} is forbidden: {why}"),
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(group, plural, name)
    }

    pub(crate) fn namespace_terminating(group: &str, plural: &str, name: &str, namespace: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        Self::forbidden(group, plural, name, &why).causes([Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        }])
    }

    pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(group, plural));
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(group, plural, name)
    }

    /// A path that means nothing here.
    pub(crate) fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    /// Something that a real API server serves and this one deliberately does not.
    pub(crate) fn not_served(what: &str) -> Self {
        let message = format!("{what} is not served by this embedded API server");
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(crate) fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub(crate) fn not_acceptable(accepted: &str) -> Self {
        let message = format!("only the following media types are accepted: {accepted}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub(crate) fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(group, plural));
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(group, plural, name)
    }

    pub(crate) fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(group, plural));
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(group, plural, name)
    }

    /// The write was based on an older object.
    pub(crate) fn modified(group: &str, plural: &str, name: &str) -> Self {
        Self::conflict(
            group,
            plural,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Server-side apply met fields of other managers.
    pub(crate) fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message).causes(causes)
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let texts: Vec<String> = causes
            .iter()
            .map(|cause| match cause.field.as_str() {
                "" => cause.message.clone(),
                field => format!("{field}: {}", cause.message),
            })
            .collect();
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let subject = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{subject} {name:?} is invalid: {all}");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(group, kind, name).causes(causes)
    }

    /// Says how many more reasons there are than it names.
    pub(crate) fn and_more(mut self, more: usize) -> Self {
        if more > 0 {
            self.message = format!("{} and {more} more errors", self.message);
        }
        self
    }

    /// The history asked for is gone.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// What is stored of an object cannot be decoded. As of Kubernetes 1.32.
    pub(crate) fn unreadable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, STORAGE_READ_ERROR, message)
    }

    pub(crate) fn is_unreadable(&self) -> bool {
        self.reason == STORAGE_READ_ERROR
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message).retry_after(1)
    }

    pub(crate) fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if !self.details.is_empty() {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }
}

impl From<store::Error> for ApiError {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Compacted { asked, oldest } => {
                Self::expired(format!("too old resource version: {} ({})", asked.0, oldest.0))
            }
            store::Error::Future { asked, current } => {
                let message = format!("Too large resource version: {}, current: {}", asked.0, current.0);
                Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).retry_after(1).causes([Cause {
                    reason: "ResourceVersionTooLarge".into(),
                    message: "Too large resource version".into(),
                    field: String::new(),
                }])
            }
            store::Error::Lagged(_) => Self::expired("the watch was too slow and missed events"),
            store::Error::TooLarge { bytes, .. } => Self::too_large(format!(
                "the object takes {bytes} bytes; at most {} fit into one write",
                store::MAX_COMMIT_BYTES
            )),
            // Not 503, which clients try again for minutes before they say why.
            error @ store::Error::Full { .. } => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", error.to_string())
            }
            error @ (store::Error::Locked { .. } | store::Error::Schema { .. } | store::Error::Closed) => {
                Self::unavailable(error.to_string())
            }
            error @ (store::Error::Io { .. } | store::Error::Failed { .. }) => Self::internal(error.to_string()),
        }
    }
}
