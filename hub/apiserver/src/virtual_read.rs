//! Reads the objects of virtual resources, part by part.

use std::sync::Arc;

use serde_json::Value;

use crate::catalog::Served;
use crate::query::ListOptions;
use crate::virtual_resource::{Listed, Page, PageRequest, UnknownKey, VirtualResource};

/// Objects asked for at once. With 1,000 bytes each that is half a MiB.
const PAGE: usize = 500;

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
