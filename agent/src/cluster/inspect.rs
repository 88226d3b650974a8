//! What would be deleted with a namespace or a definition: listed live, so that nothing foreign is ever deleted along.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use kube::discovery::{ApiGroup, Discovery, Scope as KindScope, verbs};
use tideline_common::{GroupKind, ObjectKey, Ownership, Reason};

use super::Scope;
use super::decode::{key_of, mark_of};
use super::definition::Definition;
use super::discovery::confirm_missing;
use super::failure::{Failure, Refused};
use super::metadata::Metadata;
use super::pages::{Item, Page};
use super::request::{Call, Want, call};
use super::resource::Resource;

/// Objects on one page.
const PAGE: u32 = 500;
/// Objects listed before the inspection gives up: what holds more is certainly not empty.
const OBJECTS_MAX: usize = 200_000;

/// What an inspection found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) foreign: u64,
    pub(super) example: Option<String>,
    pub(super) ours: u64,
}

/// Lists everything in a namespace that goes with it. A kind that cannot be listed fails the whole inspection, for what is not
/// seen may be there; not one of which no object can be deleted either, such as a review, for Kubernetes leaves those alone.
pub(super) async fn namespace(client: &Client, scope: &Scope, name: &str) -> Result<Contents, Failure> {
    let discovery = Discovery::new(client.clone()).run().await.map_err(|error| Failure::of_client(&error))?;
    let mut census = Census::new(scope);
    for (resource, verbs) in discovery.groups().flat_map(namespaced) {
        let Verbs { lists, deletes } = verbs;
        let list = if lists {
            census.list(client, &resource, Some(name)).await?
        } else {
            List::NotServed("its API server does not serve lists of it".to_owned())
        };
        match list {
            List::NotServed(why) if deletes => return Err(unseen(&resource, &why)),
            // A kind that went since discovery named it has nothing in the namespace that could be deleted with it.
            List::NotServed(_) | List::Missing | List::Done => {}
        }
    }
    Ok(census.finish())
}

/// What can be done with objects of a kind, at any of its versions.
#[derive(Clone, Copy, Debug, Default)]
struct Verbs {
    lists: bool,
    deletes: bool,
}

/// The namespaced kinds of a group, each once, at a version at which it is listed if there is one. A group may serve a kind at
/// versions that it does not prefer only, as one that has beta kinds beside stable ones does.
fn namespaced(group: &ApiGroup) -> Vec<(Resource, Verbs)> {
    let mut kinds = BTreeMap::<String, (Resource, Verbs)>::new();
    for (resource, capabilities) in group.versions().flat_map(|version| group.versioned_resources(version)) {
        if capabilities.scope != KindScope::Namespaced {
            continue;
        }
        let can = |verbs: &[&str]| verbs.iter().any(|verb| capabilities.supports_operation(verb));
        let lists = can(&[verbs::LIST]);
        let deletes = can(&[verbs::DELETE, verbs::DELETE_COLLECTION]);
        let served = Resource {
            kind: GroupKind::new(resource.group.as_str(), resource.kind.as_str()),
            version: resource.version.as_str().into(),
            plural: resource.plural.clone(),
            namespaced: true,
            status: false,
        };
        let (known, verbs) = kinds.entry(resource.plural).or_insert_with(|| (served.clone(), Verbs::default()));
        if lists && !verbs.lists {
            *known = served;
        }
        *verbs = Verbs { lists: verbs.lists || lists, deletes: verbs.deletes || deletes };
    }
    kinds.into_values().collect()
}

fn unseen(resource: &Resource, why: &str) -> Failure {
    let kind = &resource.kind;
    Failure::new(
        Reason::NotEmpty,
        format!("{kind} can be deleted and not listed, so what there is cannot be seen: {why}"),
    )
}

/// Lists every object of the kind that a definition defines.
pub(super) async fn definition(client: &Client, scope: &Scope, definition: &Definition) -> Result<Contents, Failure> {
    let spec = &definition.spec;
    let Some(version) = spec.versions.iter().find(|version| version.served) else {
        return Err(Failure::new(
            Reason::NotEmpty,
            "none of its versions is served, so what there is of its kind cannot be seen",
        ));
    };
    let resource = Resource {
        kind: GroupKind::new(spec.group.as_str(), spec.names.kind.as_str()),
        version: version.name.as_str().into(),
        plural: spec.names.plural.clone(),
        namespaced: spec.scope == "Namespaced",
        status: false,
    };
    let mut census = Census::new(scope);
    match census.list(client, &resource, None).await? {
        List::Done => Ok(census.finish()),
        List::NotServed(why) => Err(unseen(&resource, &why)),
        // The definition says that it is served. Its handler may be behind, and its objects would go with the definition.
        List::Missing => Err(unseen(&resource, "its definition is there, and the API server does not serve it yet")),
    }
}

/// What came of listing a kind.
enum List {
    Done,
    /// The API server serves nothing of its group any more.
    Missing,
    /// The API server serves no list of it, for this reason.
    NotServed(String),
}

/// The owners of the objects seen. An object without a mark is its owners': the Pods of our Deployment are not foreign.
struct Census<'a> {
    scope: &'a Scope,
    ours: BTreeSet<String>,
    owned: BTreeMap<String, (ObjectKey, Vec<String>)>,
    foreign: u64,
    example: Option<ObjectKey>,
}

impl<'a> Census<'a> {
    fn new(scope: &'a Scope) -> Self {
        Self { scope, ours: BTreeSet::new(), owned: BTreeMap::new(), foreign: 0, example: None }
    }

    async fn list(&mut self, client: &Client, resource: &Resource, namespace: Option<&str>) -> Result<List, Failure> {
        let first = format!("{}?limit={PAGE}", resource.collection(namespace));
        let mut next = Some(first.clone());
        while let Some(uri) = next {
            let page: Page<Item> = match call(client, Call::get(uri, Want::MetadataList)).await {
                Ok(page) => page,
                Err(refused) if refused.is_kind_missing() => {
                    confirm_missing(client, &resource.kind.group, None).await?;
                    return Ok(List::Missing);
                }
                // Some kinds can be read by name only, whatever discovery says of them.
                Err(refused @ Refused::Status { code: 405, .. }) => {
                    return Ok(List::NotServed(refused.failure().message));
                }
                Err(refused) => {
                    let failure = refused.failure();
                    return Err(Failure {
                        message: format!("cannot list {}: {}", resource.kind, failure.message),
                        ..failure
                    });
                }
            };
            let (items, following) = page.turn(&first);
            for item in items {
                self.count(resource, item.metadata);
            }
            if self.ours.len() + self.owned.len() > OBJECTS_MAX {
                return Err(Failure::new(Reason::NotEmpty, format!("it holds more than {OBJECTS_MAX} objects")));
            }
            next = following;
        }
        Ok(List::Done)
    }

    fn count(&mut self, resource: &Resource, metadata: Metadata) {
        let Some(key) = key_of(resource, &metadata) else { return };
        let uid = metadata.uid.clone().unwrap_or_default();
        let mark = mark_of(&metadata).map(|mark| mark.ownership(*self.scope, &key));
        if mark == Some(Ownership::Ours) {
            self.ours.insert(uid);
            return;
        }
        if belongs_to_the_namespace(&key) {
            return;
        }
        let owners: Vec<String> =
            metadata.owner_references.unwrap_or_default().into_iter().map(|owner| owner.uid).collect();
        if owners.is_empty() {
            self.foreign(key);
        } else {
            self.owned.insert(uid, (key, owners));
        }
    }

    fn foreign(&mut self, key: ObjectKey) {
        self.foreign += 1;
        self.example.get_or_insert(key);
    }

    fn finish(mut self) -> Contents {
        let owned = std::mem::take(&mut self.owned);
        for (uid, (key, _)) in &owned {
            if !self.descends_from_ours(uid, &owned) {
                self.foreign(key.clone());
            }
        }
        Contents {
            foreign: self.foreign,
            example: self.example.map(|key| key.to_string()),
            ours: self.ours.len() as u64,
        }
    }

    /// Follows owners upwards; a circle leads to nobody.
    fn descends_from_ours(&self, uid: &str, owned: &BTreeMap<String, (ObjectKey, Vec<String>)>) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![uid];
        while let Some(uid) = open.pop() {
            if self.ours.contains(uid) {
                return true;
            }
            if seen.insert(uid)
                && let Some((_, owners)) = owned.get(uid)
            {
                open.extend(owners.iter().map(String::as_str));
            }
        }
        false
    }
}

/// What Kubernetes itself puts into every namespace, and what only describes other objects.
fn belongs_to_the_namespace(key: &ObjectKey) -> bool {
    let kind = &key.kind;
    kind.is("", "ConfigMap") && &*key.name == "kube-root-ca.crt"
        || kind.is("", "ServiceAccount") && &*key.name == "default"
        || kind.is("", "Event")
        || kind.is("events.k8s.io", "Event")
        || kind.is("", "Endpoints")
        || kind.is("discovery.k8s.io", "EndpointSlice")
        || kind.is("coordination.k8s.io", "Lease")
        || &*kind.group == "metrics.k8s.io"
}
