//! Why the API server did not do what it was asked, in our words.

use std::error::Error as _;
use std::time::Duration;

use hyper_util::client::legacy;
use kube::core::Status;
use tideline_common::{Reason, Recreate};

pub(super) use crate::core::Failure;
use crate::core::FieldConflict;

/// How the failures that are reported are made of the API server's words.
impl Failure {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Reason::Invalid, message)
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Reason::Unavailable, message)
    }

    /// Somebody at the cluster says no, whether or not anything is there.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.reason, Reason::Forbidden | Reason::Denied)
    }

    /// Says what could be done about a change of an immutable field.
    pub(super) fn with_advice(self, recreate: Recreate) -> Self {
        if self.reason != Reason::Immutable {
            return self;
        }
        let advice = match recreate {
            Recreate::Never => {
                "to have it deleted and created again, set apply.recreate to OnImmutable in its Placement"
            }
            Recreate::OnImmutable => {
                "CustomResourceDefinitions, PersistentVolumeClaims, Namespaces, adopted objects and Jobs that have run are \
                 never deleted for that: to have it created again, delete it in the cluster yourself"
            }
        };
        let Self { reason, message, retry_after, fate } = self;
        let message = format!("an immutable field changed; {advice}: {message}");
        Self { retry_after, fate, ..Self::new(reason, message) }
    }

    /// Of a request that got no answer.
    pub(super) fn of_client(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return classify(status.code, status, None);
        }
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // kube's errors print their cause, others do not.
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = error.source();
        }
        let failure = Self::unavailable(message);
        if was_sent(error) { failure.unanswered() } else { failure }
    }
}

/// Whether a request without an answer may have arrived: it was more than prepared, and there was a connection to send it by.
fn was_sent(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect) {
            return false;
        }
        cause = error.source();
    }
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_))
}

/// A call that did not succeed.
#[derive(Clone, Debug)]
pub(super) enum Refused {
    /// There was no answer, or none that can be read.
    Local(Failure),
    /// The API server said no.
    Status { code: u16, status: Box<Status>, retry_after: Option<Duration> },
}

impl Refused {
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Local(failure) => failure.clone(),
            Self::Status { code, status, retry_after } => classify(*code, status, *retry_after),
        }
    }

    /// The object itself is not there (rather than its kind or namespace).
    pub(super) fn is_object_missing(&self) -> bool {
        match self {
            Self::Status { code: code @ 404, status, .. } => {
                missing(status) == Missing::Object && !is_denied(*code, &status.message)
            }
            Self::Status { .. } | Self::Local(_) => false,
        }
    }

    /// The kind is not served: nothing of it can be there either.
    pub(super) fn is_kind_missing(&self) -> bool {
        self.failure().reason == Reason::KindMissing
    }

    pub(super) fn is_already_there(&self) -> bool {
        matches!(self, Self::Status { code: 409, status, .. } if status.reason == "AlreadyExists")
    }

    /// It speaks of the object's identity or version, not of field managers or content. A UID that is another's is
    /// refused as a field that cannot change (422), one where nothing is as a conflict (409). Others answer 409 for reasons of
    /// their own, webhooks above all: the API server's own words are those of `NewConflict` in k8s.io/apimachinery.
    pub(super) fn is_stale(&self) -> bool {
        match self {
            Self::Status { code: 409, status, .. } => {
                status.reason == "Conflict" && status.message.starts_with("Operation cannot be fulfilled on ")
            }
            Self::Status { code: 422, status, .. } => {
                status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.field == "metadata.uid")
            }
            Self::Status { .. } | Self::Local(_) => false,
        }
    }

    /// The fields that others own, of an unforced apply.
    pub(super) fn field_conflicts(&self) -> Vec<FieldConflict> {
        match self {
            Self::Status { code: 409, status, .. } => field_conflicts(status),
            Self::Status { .. } | Self::Local(_) => Vec::new(),
        }
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Local(failure)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        refused.failure()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Kind,
    Namespace,
    Object,
}

/// What a 404 is about. An object's names it; the server's own, for a path it does not serve, names nothing.
fn missing(status: &Status) -> Missing {
    match &status.details {
        Some(details) if details.kind == "namespaces" && !details.name.is_empty() => Missing::Namespace,
        Some(details) if !details.name.is_empty() => Missing::Object,
        Some(_) | None => Missing::Kind,
    }
}

/// Judges a refusal by its code and, where one code has several meanings, by what the API server is known to say.
pub(super) fn classify(code: u16, status: &Status, retry_after: Option<Duration>) -> Failure {
    let text = status.message.as_str();
    let says = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let cause = |reason: &str| {
        status.details.as_ref().is_some_and(|details| details.causes.iter().any(|cause| cause.reason == reason))
    };
    // What it does is not supported, or nobody answered: "failed calling webhook …".
    let webhook = says(&["admission webhook \"", "failed calling webhook"]);
    let reason = match code {
        403 if cause("NamespaceTerminating") || says(&["because it is being terminated"]) => {
            Reason::NamespaceUnavailable
        }
        // A webhook or policy that denies may give any code, and details of any object.
        _ if is_denied(code, text) => Reason::Denied,
        404 => match missing(status) {
            Missing::Namespace => Reason::NamespaceUnavailable,
            Missing::Kind => Reason::KindMissing,
            Missing::Object => Reason::Conflict,
        },
        413 => Reason::TooLarge,
        // One that fails may give any code.
        _ if webhook => Reason::Webhook,
        429 => Reason::Throttled,
        500 | 503 | 504 if speaks_of_strain(status) => Reason::Throttled,
        // An account with every right may be meant: the credentials are not accepted, so nobody knows.
        401 => Reason::Unavailable,
        403 => Reason::Forbidden,
        409 if !field_conflicts(status).is_empty() => Reason::FieldConflict,
        409 => Reason::Conflict,
        422 if is_about_immutability(status) => Reason::Immutable,
        500 if says(&[
            "request is too large",
            "Request entity too large",
            "trying to send message larger than max",
        ]) =>
        {
            Reason::TooLarge
        }
        400..=499 => Reason::Invalid,
        _ => Reason::Unavailable,
    };
    let message = match text {
        "" => format!("the API server answered {code} {}", status.reason),
        _ if code == 401 => format!("the API server does not accept this agent's credentials: {text}"),
        _ => text.to_owned(),
    };
    let failure = Failure { retry_after, ..Failure::new(reason, message) };
    if is_conclusive(code, status, reason) { failure } else { failure.unanswered() }
}

/// Whether an error says that nothing was done. Beyond 499 it may come from behind the store, or from a proxy that lost an
/// API server half way; but admission comes before the store, and these are words of an API server that did not begin.
fn is_conclusive(code: u16, status: &Status, reason: Reason) -> bool {
    code < 500
        || matches!(reason, Reason::Webhook | Reason::Denied | Reason::TooLarge)
        || status.reason == "ServiceUnavailable"
        || REFUSED_BY_ETCD.iter().any(|text| status.message.contains(text))
}

/// What etcd says, by its API server, when it takes no write: of `etcdserver: request timed out` nobody knows.
const REFUSED_BY_ETCD: [&str; 3] =
    ["etcdserver: no leader", "etcdserver: too many requests", "etcdserver: mvcc: database space exceeded"];

/// Whether a webhook, a policy or a quota denies this very object. Webhooks and policies may give any code. Built-in admission
/// of the API server (quotas, limits, Pod security) answers as to an account without the right.
fn is_denied(code: u16, text: &str) -> bool {
    let webhook = text.contains("admission webhook \"") && text.contains(" denied the request");
    let policy = text.contains("ValidatingAdmissionPolicy '") && text.contains(" denied request");
    let built_in = code == 403 && text.contains("is forbidden: ") && !speaks_of_rights(text);
    webhook || policy || built_in
}

/// The texts by which the API server says that the user lacks a right: authorization, RBAC's escalation checks, and
/// OwnerReferencesPermissionEnforcement.
fn speaks_of_rights(text: &str) -> bool {
    ["User \"", "user \"", "must have cluster-admin privileges", "you can't set finalizers on"]
        .iter()
        .any(|part| text.contains(part))
}

/// The API server itself, or its etcd, is overloaded; not an aggregated server behind it, nor a proxy before it, whose words
/// are not Kubernetes'.
fn speaks_of_strain(status: &Status) -> bool {
    matches!(status.reason.as_str(), "ServiceUnavailable" | "Timeout" | "ServerTimeout" | "TooManyRequests")
        || status.message.starts_with("etcdserver: ") && !status.message.contains("request is too large")
}

/// Whatever else is wrong, a dry run will tell whether it would be wrong with a new object, too.
fn is_about_immutability(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| &details.causes[..]).unwrap_or_default();
    match causes {
        [] => speaks_of_immutability(&status.message),
        causes => causes.iter().any(|cause| speaks_of_immutability(&cause.message)),
    }
}

/// The texts by which Kubernetes refuses to change a field; there is no code for it.
fn speaks_of_immutability(text: &str) -> bool {
    [
        "field is immutable",
        "is immutable",
        "may not be changed",
        "may not change once set",
        "cannot be changed",
        "can not be unset",
        "Forbidden: updates to ",
        "pod updates may not change fields",
        "spec is immutable after creation",
        "cannot change roleRef",
    ]
    .iter()
    .any(|part| text.contains(part))
}

fn field_conflicts(status: &Status) -> Vec<FieldConflict> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| FieldConflict { manager: manager_of(&cause.message), field: cause.field.clone() })
        .collect()
}

/// `conflict with "kubectl-edit" using apps/v1` names the manager in quotes.
fn manager_of(message: &str) -> String {
    let mut quoted = message.split('"');
    quoted.next();
    quoted.next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests;
