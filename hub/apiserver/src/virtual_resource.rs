//! Read-only kinds that the embedder computes.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use crate::resource_kind::ResourceKind;

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

/// One part of a list.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest<'a> {
    /// None for those of all namespaces.
    pub namespace: Option<&'a str>,
    /// None for those of all groups.
    pub group: Option<&'a str>,
    /// Only objects that have these values at these paths of [`VirtualResource::selectable`] are wanted. Others may be among
    /// them: the resource leaves out what it can leave out without a look.
    pub wanted: &'a [(&'static str, String)],
    /// The part begins behind this key; none for the first one.
    pub after: Option<&'a str>,
    /// So many objects are enough; never zero.
    pub rows: usize,
}

/// One object of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The list goes on behind this key from it.
    pub key: String,
    /// What it changes together with, see [`VirtualResource::changed`].
    pub group: Arc<str>,
    pub object: Value,
}

/// What a part of a list holds, at the moment at which it was read.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// In the order of the list.
    pub objects: Vec<Listed>,
    /// The key behind which the list goes on; none at its end. It may be there without any object.
    pub next: Option<String>,
}

impl Page {
    /// All that follows, of a kind that has few objects: they are computed anew for each page. The order is that of
    /// namespaces and names.
    pub fn of_all(objects: Vec<Value>, request: &PageRequest<'_>) -> Self {
        let group: Arc<str> = "".into();
        let listed = |object: Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            let key = format!("{}/{}", text("namespace"), text("name"));
            Listed { key, group: Arc::clone(&group), object }
        };
        let mut objects: Vec<_> = objects.into_iter().map(listed).collect();
        objects.retain(|listed| request.after.is_none_or(|after| listed.key.as_str() > after));
        objects.sort_by(|one, other| one.key.cmp(&other.key));
        Self { objects, next: None }
    }
}

/// What may have changed of the objects of a resource since its counter was at some number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Any of them, while the counter was at most at this number: more is not known. That is later than what was asked for.
    Any {
        until: u64,
        /// Whether any may have gone.
        gone: bool,
    },
    /// Those of these groups alone, in the order of their last changes.
    Groups(Vec<ChangedGroup>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedGroup {
    /// Where the counter was after the last change. It is even, so that the number before this one is nothing else's.
    pub at: u64,
    pub group: String,
    /// What may have gone from the group since, by namespace and name; none where something did and is not known.
    pub gone: Option<Vec<(Option<String>, String)>>,
}

/// A key that the resource has never given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key is not one of this resource")]
pub struct UnknownKey;

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

    /// What a field selector may name beside `metadata.name` and `metadata.namespace`, each with its path in an object, such
    /// as `target.name`.
    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// One page of the objects of a space, or of one of its namespaces. `apiVersion` and `kind` may be left out;
    /// `metadata.name` may not. A `metadata.uid` and `resourceVersion` are made up where missing.
    ///
    /// A list is read page by page, with other work in between, so one call should take milliseconds. The order is up to
    /// the resource and must be stable: an object that is there all the time is in the list once, whatever comes and goes
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// `request.after` is no key of this resource. It may come from a client.
    fn list(&self, space: &str, request: &PageRequest<'_>) -> Result<Page, UnknownKey>;

    fn get(&self, space: &str, namespace: Option<&str>, name: &str) -> Option<Value>;

    /// A counter that rises when some object may have changed; the resource is not watchable without one. The versions that
    /// clients see are made of it.
    fn changes(&self, space: &str) -> Option<watch::Receiver<u64>> {
        let _ = space;
        None
    }

    /// What changed in a space, or in one of its namespaces, since the counter was at `since`. None of a resource that keeps
    /// no book of that: all its objects are computed again after every change, so they should be few.
    fn changed(&self, space: &str, namespace: Option<&str>, since: u64) -> Option<Changed> {
        let _ = (space, namespace, since);
        None
    }
}
