//! Kinds as the API server serves them.

use std::sync::Arc;

use kube::core::discovery::ApiResource;
use tideline_common::{GroupKind, ObjectKey};

use super::failure::Failure;
use super::render::api_version;

/// A kind as it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) kind: GroupKind,
    pub(super) version: Arc<str>,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    /// Its objects may have a status: in the subresource of that name, or, where somebody's definition does without, in
    /// the object itself.
    pub(super) status: bool,
}

impl Resource {
    pub(super) fn api_version(&self) -> String {
        api_version(&self.kind.group, &self.version)
    }

    /// For kube's typed interfaces.
    pub(super) fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.kind.group.as_ref().to_owned(),
            version: self.version.as_ref().to_owned(),
            api_version: self.api_version(),
            kind: self.kind.kind.as_ref().to_owned(),
            plural: self.plural.clone(),
        }
    }

    /// The path of the collection: in one namespace, or in all.
    pub(super) fn collection(&self, namespace: Option<&str>) -> String {
        let root = root(&self.kind.group, &self.version);
        match namespace {
            Some(namespace) if self.namespaced => format!("{root}/namespaces/{namespace}/{}", self.plural),
            _ => format!("{root}/{}", self.plural),
        }
    }

    /// The path of one object. A key that cannot be part of a path names no object of any API server.
    pub(super) fn object(&self, key: &ObjectKey) -> Result<String, Failure> {
        Ok(format!("{}/{}", self.parent(key)?, segment(&key.name)?))
    }

    /// The path of the collection that the object belongs to.
    pub(super) fn parent(&self, key: &ObjectKey) -> Result<String, Failure> {
        match (self.namespaced, key.is_namespaced()) {
            (true, true) => Ok(self.collection(Some(segment(&key.namespace)?))),
            (false, false) => Ok(self.collection(None)),
            (true, false) => {
                Err(Failure::invalid(format!("{} is namespaced here, and {key} names no namespace", self.kind)))
            }
            (false, true) => {
                Err(Failure::invalid(format!("{} is cluster-scoped here, and {key} names a namespace", self.kind)))
            }
        }
    }
}

pub(super) fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// Names are checked by the API server; what is checked here is that they stay one segment of the path.
pub(super) fn segment(text: &str) -> Result<&str, Failure> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&b);
    if text.bytes().all(plain) && text != "." && text != ".." {
        Ok(text)
    } else {
        Err(Failure::invalid(format!("{text:?} cannot be a name")))
    }
}
