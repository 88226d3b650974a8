use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tideline_common::{Digest, FIELD_MANAGER_HUB, ObjectKey};

use crate::placement::SourceId;

/// Where the status of a source is, and what it is, as the space last showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSeen {
    pub version: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// Of `.status`, if it is there and not empty.
    pub status: Option<Digest>,
    /// The hub wrote it.
    pub ours: bool,
}

/// Every object of every space, by identity: what the writers of statuses need, and no more.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    seen: BTreeMap<SourceId, SourceSeen>,
}

impl SourceSeen {
    pub fn of(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let api_version = object["apiVersion"].as_str()?;
        let version = api_version.rsplit_once('/').map_or(api_version, |(_, version)| version);
        let status = status_digest(&object["status"]);
        let managers = metadata["managedFields"].as_array();
        let ours = managers.is_some_and(|managers| {
            managers.iter().any(|entry| entry["manager"] == FIELD_MANAGER_HUB && entry["subresource"] == "status")
        });
        Some(Self {
            version: version.into(),
            namespace: metadata["namespace"].as_str().unwrap_or("").into(),
            name: metadata["name"].as_str()?.into(),
            status,
            ours,
        })
    }

    /// Keeps where it is in the words of these, which are kept anyway, as far as they say the same.
    pub fn share(&mut self, place: &ObjectKey, version: &Arc<str>) {
        let Self { version: its_version, namespace, name, status: _, ours: _ } = self;
        for (its, same) in [(its_version, version), (namespace, &place.namespace), (name, &place.name)] {
            if its == same {
                *its = same.clone();
            }
        }
    }

    /// Whether both are of one version, and have one name.
    pub fn is_placed_like(&self, other: &Self) -> bool {
        let Self { version, namespace, name, status: _, ours: _ } = self;
        (version, namespace, name) == (&other.version, &other.namespace, &other.name)
    }
}

/// Names a status; none for one that says nothing.
pub fn status_digest(status: &Value) -> Option<Digest> {
    let empty = status.is_null() || status.as_object().is_some_and(serde_json::Map::is_empty);
    (!empty).then(|| Digest::of(status.to_string().as_bytes()))
}

impl Sources {
    pub fn get(&self, id: &SourceId) -> Option<&SourceSeen> {
        self.seen.get(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&SourceId, &SourceSeen)> {
        self.seen.iter()
    }

    /// Says whether the status, or where it is, differs from what was known.
    pub(super) fn put(&mut self, id: &SourceId, seen: SourceSeen) -> bool {
        match self.seen.get_mut(id) {
            Some(former) if *former == seen => return false,
            Some(former) => *former = seen,
            None => {
                self.seen.insert(id.clone(), seen);
            }
        }
        true
    }

    pub(super) fn remove(&mut self, id: &SourceId) {
        self.seen.remove(id);
    }
}
