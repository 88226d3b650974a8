//! One request, what it is about, and its answer, as the operations see them.

use std::sync::Arc;

use axum::body::Body;
use http::header::USER_AGENT;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tideline_store::Item;

use crate::catalog::Served;
use crate::filled_field::FilledField;
use crate::identity::{Attributes, Identity, Target};
use crate::long_work::{self, Work};
use crate::path::SPACES;
use crate::query::{IGNORE_STORE_READ_ERROR, Query};
use crate::state::{Inner, Space};
use crate::status::{ApiError, qualified};
use crate::{keys, object};

/// One request, past the door.
pub(crate) struct Call {
    pub(crate) inner: Arc<Inner>,
    pub(crate) space: Arc<Space>,
    pub(crate) identity: Identity,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) work: Arc<Work>,
}

impl Call {
    /// Takes up an object of so many bytes, sent or stored: what takes long is done apart from here on.
    pub(crate) async fn take_up(&self, served: &Served, bytes: usize) {
        if long_work::is_long(bytes, served.steps_each()) {
            self.work.set_apart().await;
        }
    }

    /// Whether the caller may do this.
    pub(crate) fn may(&self, attributes: &Attributes<'_>) -> bool {
        match &self.space.authorizer {
            None => true,
            Some(authorizer) => self.identity.is_master() || authorizer.authorize(&self.identity, attributes),
        }
    }

    pub(crate) fn authorize(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        if self.may(attributes) {
            return Ok(());
        }
        let (user, verb) = (&self.identity.user, attributes.verb);
        Err(match attributes.target {
            Target::Path(path) => {
                ApiError::forbidden("", "", "", &format!("User {user:?} cannot {verb} path {path:?}"))
            }
            Target::Resource { group, resource, subresource, namespace, name } => {
                let scope = match namespace {
                    Some(namespace) => format!("in the namespace {namespace:?}"),
                    None => "at the cluster scope".to_owned(),
                };
                let full = match subresource {
                    Some(subresource) => format!("{resource}/{subresource}"),
                    None => resource.to_owned(),
                };
                let why = format!("User {user:?} cannot {verb} resource {full:?} in API group {group:?} {scope}");
                ApiError::forbidden(group, resource, name.unwrap_or_default(), &why)
            }
        })
    }

    /// The field that is filled in for whoever asks, where there is one.
    pub(crate) fn filled(&self, served: &Served) -> Option<&Arc<dyn FilledField>> {
        let resource = (served.resource.group.as_str(), served.resource.plural.as_str());
        let field = self.space.filled_fields.iter().find(|field| field.resource() == resource);
        field.filter(|field| field.is_shown_to(&self.identity))
    }

    /// Who writes, when the request does not say: the program, as the User-Agent names it.
    pub(crate) fn default_manager(&self) -> &str {
        let agent = self.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let program = agent.split('/').next().unwrap_or_default().trim();
        if program.is_empty() || program.len() > 128 { "unknown" } else { program }
    }
}

/// A resource, and the namespace of the request; `None` for all of them or for a resource without namespaces.
pub(crate) struct Place {
    pub(crate) served: Arc<Served>,
    pub(crate) namespace: Option<String>,
}

impl Place {
    pub(crate) fn key(&self, space: &str, name: &str) -> bytes::Bytes {
        let resource = &self.served.resource;
        keys::object(space, &resource.group, &resource.plural, self.namespace.as_deref(), name)
    }

    /// Reads one object for a client that named it. Of one that cannot be read it is told how to delete it.
    pub(crate) fn read(&self, space: &str, name: &str, item: &Item) -> Result<Value, ApiError> {
        object::read(item).map_err(|error| {
            let resource = &self.served.resource;
            let root = if resource.group.is_empty() { "api" } else { "apis" };
            let namespace = self.namespace.as_ref().map_or_else(String::new, |name| format!("/namespaces/{name}"));
            let path =
                format!("{SPACES}{space}/{root}/{}{namespace}/{}/{name}", self.served.api_version, resource.plural);
            ApiError::unreadable(format!(
                "{} {name:?}: {}. It can be deleted, whatever its finalizers are, and made anew: kubectl delete --raw \
                 '{path}?{IGNORE_STORE_READ_ERROR}=true'",
                qualified(&resource.group, &resource.plural),
                error.message
            ))
        })
    }
}

/// An answer, before it is put into bytes.
pub(crate) struct Reply {
    pub(crate) code: StatusCode,
    pub(crate) content: Content,
    pub(crate) warnings: Vec<String>,
}

pub(crate) enum Content {
    Json(Value),
    /// A document with a media type of its own.
    Document(&'static str, bytes::Bytes),
    /// JSON in pieces.
    Stream(Body),
}

impl Reply {
    pub(crate) fn ok(value: Value) -> Self {
        Self { code: StatusCode::OK, content: Content::Json(value), warnings: Vec::new() }
    }

    pub(crate) fn created(value: Value) -> Self {
        Self { code: StatusCode::CREATED, ..Self::ok(value) }
    }

    pub(crate) fn document(media: &'static str, bytes: impl Into<bytes::Bytes>) -> Self {
        let content = Content::Document(media, bytes.into());
        Self { code: StatusCode::OK, content, warnings: Vec::new() }
    }

    pub(crate) fn stream(body: Body) -> Self {
        Self { code: StatusCode::OK, content: Content::Stream(body), warnings: Vec::new() }
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }
}
