//! Read-only kinds that the embedder computes.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use crate::catalog::{ResourceKind, Served, Source};
use crate::query::ListOptions;

/// A column of a virtual resource in `kubectl get`.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// Path of the value, such as `.status.ready`.
    pub path: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// Zero is always shown; others with `-o wide` only.
    pub priority: i32,
}

/// A kind whose objects are computed when they are read. Nothing of it is stored, fed, or written by clients.
///
/// The methods are called on every read and must not block.
pub trait VirtualResource: Send + Sync + 'static {
    /// Group, version, kind, plural and scope; constant.
    fn resource(&self) -> ResourceKind;

    fn short_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Columns between NAME and AGE.
    fn columns(&self) -> Vec<Column> {
        Vec::new()
    }

    /// All objects of a space, or of one of its namespaces. `apiVersion` and `kind` may be left out; `metadata.name`
    /// may not. A `metadata.uid` and `resourceVersion` are made up where missing.
    fn list(&self, space: &str, namespace: Option<&str>) -> Vec<Value>;

    fn get(&self, space: &str, namespace: Option<&str>, name: &str) -> Option<Value>;

    /// A counter that moves when some object may have changed; the resource is not watchable without one.
    fn changes(&self, space: &str) -> Option<watch::Receiver<u64>> {
        let _ = space;
        None
    }
}

pub(crate) fn served(source: &Arc<dyn VirtualResource>) -> Arc<Served> {
    let resource = source.resource();
    Arc::new(Served {
        version: resource.version.clone(),
        api_version: resource.api_version(),
        singular: resource.kind.to_lowercase(),
        list_kind: format!("{}List", resource.kind),
        short_names: source.short_names(),
        categories: Vec::new(),
        verbs: ["get", "list", "watch"].map(str::to_owned).to_vec(),
        subresources: Vec::new(),
        storage_version_hash: None,
        resource: Arc::new(resource),
        source: Source::Virtual(Arc::clone(source)),
    })
}

/// What a list or a watch may mean: the one object that it names, or all.
pub(crate) fn read(
    source: &dyn VirtualResource,
    served: &Served,
    space: &str,
    namespace: Option<&str>,
    options: &ListOptions,
) -> Vec<Value> {
    match options.fields.exact("metadata.name") {
        Some(name) if namespace.is_some() || !served.resource.namespaced => {
            source.get(space, namespace, name).into_iter().collect()
        }
        Some(_) | None => source.list(space, namespace),
    }
}

/// Fills in what the embedder may leave out.
pub(crate) fn complete(served: &Served, mut object: Value, version: u64) -> Value {
    object["apiVersion"] = served.api_version.clone().into();
    object["kind"] = served.resource.kind.clone().into();
    let metadata = &mut object["metadata"];
    if metadata.get("uid").is_none() {
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
        let id = format!("{}/{}/{}", served.resource.plural, text("namespace"), text("name"));
        let digest = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.as_ref()[..16]);
        metadata["uid"] = uuid::Builder::from_random_bytes(bytes).into_uuid().to_string().into();
    }
    if metadata.get("resourceVersion").is_none() {
        metadata["resourceVersion"] = version.to_string().into();
    }
    object
}
