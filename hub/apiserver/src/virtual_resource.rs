//! Read-only kinds that the embedder computes.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use crate::catalog::{ResourceKind, Served, Source};
use crate::object;
use crate::query::ListOptions;

/// Objects asked for at once. With 1,000 bytes each that is half a MiB.
const PAGE: usize = 500;

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
            let namespace = object::namespace(&object).unwrap_or_default();
            Listed { key: format!("{namespace}/{}", object::name(&object)), group: Arc::clone(&group), object }
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

/// Reads what a list or a watch may mean, part by part: the one object that it names, or all.
pub(crate) struct Reader {
    source: Arc<dyn VirtualResource>,
    space: Arc<str>,
    namespace: Option<String>,
    /// The one object that it names.
    one: Option<String>,
    wanted: Vec<(&'static str, String)>,
    next: Next,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    First,
    After(String),
    End,
}

impl Reader {
    /// Of options of which the fields are located.
    pub(crate) fn new(
        source: &Arc<dyn VirtualResource>,
        space: &Arc<str>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Self {
        let namespaced = source.resource().namespaced;
        let selected =
            || options.fields.exact("metadata.namespace").filter(|namespace| namespaced && !namespace.is_empty());
        let namespace = namespace.or_else(selected).map(str::to_owned);
        let one = options.fields.exact("metadata.name").filter(|_| namespace.is_some() || !namespaced);
        let one = one.map(str::to_owned);
        let wanted =
            source.selectable().iter().filter_map(|(_, path)| Some((*path, options.fields.exact(path)?.to_owned())));
        let (wanted, next) = (wanted.collect(), Next::First);
        Self { source: Arc::clone(source), space: Arc::clone(space), namespace, one, wanted, next }
    }

    pub(crate) fn begin_after(&mut self, key: String) {
        self.next = Next::After(key);
    }

    pub(crate) fn next(&self) -> &Next {
        &self.next
    }

    /// The one object that it names, by namespace and name.
    pub(crate) fn one(&self) -> Option<(Option<&str>, &str)> {
        Some((self.namespace.as_deref(), self.one.as_deref()?))
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Begins anew.
    pub(crate) fn rewind(&mut self) {
        self.next = Next::First;
    }

    /// All objects of one group.
    pub(crate) async fn group(&self, group: &str) -> Result<Vec<Listed>, UnknownKey> {
        let (mut all, mut after): (_, Option<String>) = (Vec::new(), None);
        loop {
            let namespace = self.namespace.as_deref();
            let (group, wanted, rows) = (Some(group), &self.wanted[..], PAGE);
            let request = PageRequest { namespace, group, wanted, after: after.as_deref(), rows };
            let Page { objects, next } = self.source.list(&self.space, &request)?;
            all.extend(objects);
            match next {
                Some(next) => {
                    after = Some(next);
                    // A group may have thousands.
                    tokio::task::yield_now().await;
                }
                None => return Ok(all),
            }
        }
    }

    /// The next objects; a page's worth, or `rows` if that is less.
    pub(crate) fn read(&mut self, rows: usize) -> Result<Vec<Listed>, UnknownKey> {
        let namespace = self.namespace.as_deref();
        if let Some(name) = &self.one {
            let first = self.next == Next::First;
            self.next = Next::End;
            let found = if first { self.source.get(&self.space, namespace, name) } else { None };
            let listed = found.map(|object| Listed { key: name.clone(), group: "".into(), object });
            return Ok(listed.into_iter().collect());
        }
        let after = match &self.next {
            Next::First => None,
            Next::After(key) => Some(key.as_str()),
            Next::End => return Ok(Vec::new()),
        };
        let request = PageRequest { namespace, group: None, wanted: &self.wanted, after, rows: rows.clamp(1, PAGE) };
        let Page { objects, next } = self.source.list(&self.space, &request)?;
        self.next = next.map_or(Next::End, Next::After);
        Ok(objects)
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
