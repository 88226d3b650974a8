//! Who asks, and whether they may.

use std::sync::Arc;

use serde_json::Value;

/// The group that may do everything, as in every Kubernetes API server.
pub const MASTERS: &str = "system:masters";
/// The group of everybody who authenticated.
pub const AUTHENTICATED: &str = "system:authenticated";

/// An authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub user: Arc<str>,
    pub groups: Arc<[String]>,
}

impl Identity {
    pub fn new(user: impl Into<Arc<str>>, groups: impl IntoIterator<Item = String>) -> Self {
        Self { user: user.into(), groups: groups.into_iter().collect() }
    }

    /// The process itself: passes every authorizer.
    pub fn system() -> Self {
        Self::new("system:apiserver", [MASTERS.to_owned(), AUTHENTICATED.to_owned()])
    }

    /// Whether no authorizer is asked about this client.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// What a request offers as proof of identity.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The space in the request's path, whether or not it exists.
    pub space: &'a str,
    pub bearer: Option<&'a str>,
    pub certificate: Option<&'a PeerCertificate>,
}

/// The verified client certificate of a connection, in DER. The TLS listener puts it into the request's extensions.
#[derive(Clone, Debug)]
pub struct PeerCertificate(pub bytes::Bytes);

/// Hears who a request is from as soon as that is known, and before its body is read. A listener puts it into the request's
/// extensions.
#[derive(Clone)]
pub struct OnAuthenticated(Arc<Hears>);

type Hears = dyn Fn(&Identity) -> Result<(), Crowded> + Send + Sync;

/// The client has too much in use already: the request is answered with 429, and nothing of it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crowded {
    pub message: String,
}

impl OnAuthenticated {
    pub fn new(hears: impl Fn(&Identity) -> Result<(), Crowded> + Send + Sync + 'static) -> Self {
        Self(Arc::new(hears))
    }

    pub(crate) fn tell(&self, identity: &Identity) -> Result<(), Crowded> {
        (self.0)(identity)
    }
}

/// No valid credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized")]
pub struct Unauthenticated;

/// Turns credentials into an identity. Asked before anything is read from the store.
pub trait Authenticator: Send + Sync + 'static {
    /// # Errors
    ///
    /// The credentials are nobody's.
    fn authenticate(&self, credentials: Credentials<'_>) -> Result<Identity, Unauthenticated>;
}

impl<F> Authenticator for F
where
    F: Fn(Credentials<'_>) -> Result<Identity, Unauthenticated> + Send + Sync + 'static,
{
    fn authenticate(&self, credentials: Credentials<'_>) -> Result<Identity, Unauthenticated> {
        self(credentials)
    }
}

/// What a request wants to do, in the terms of Kubernetes RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for paths `get`.
    pub verb: &'a str,
    pub target: Target<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    Resource {
        group: &'a str,
        resource: &'a str,
        subresource: Option<&'a str>,
        namespace: Option<&'a str>,
        name: Option<&'a str>,
    },
    /// A path that is no resource, such as `/version`.
    Path(&'a str),
}

/// One object that is about to be deleted.
#[derive(Clone, Copy, Debug)]
pub struct Deletion<'a> {
    pub identity: &'a Identity,
    pub group: &'a str,
    pub resource: &'a str,
    /// As it is stored.
    pub object: &'a Value,
    /// Nothing is deleted whatever is answered.
    pub dry_run: bool,
}

/// Has a say in what is done, beyond what an identity may do. Must not block.
pub trait Admission: Send + Sync + 'static {
    /// Whether an object may be deleted; if not, why, and what to do instead.
    ///
    /// # Errors
    ///
    /// Why it may not be deleted, and what to do instead, as the client reads it.
    fn deletes(&self, deletion: &Deletion<'_>) -> Result<(), String>;
}

/// Decides what an identity may do in one space.
pub trait Authorizer: Send + Sync + 'static {
    fn authorize(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool;
}

impl<F> Authorizer for F
where
    F: Fn(&Identity, &Attributes<'_>) -> bool + Send + Sync + 'static,
{
    fn authorize(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        self(identity, attributes)
    }
}
