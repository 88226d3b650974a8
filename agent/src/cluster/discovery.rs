//! Which kinds the API server serves: read once per group and version, and again when one is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIGroupList, APIResourceList, APIVersions};
use kube::Client;
use serde::de::DeserializeOwned;
use tideline_common::{GroupKind, Reason};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OnceCell};

use super::definition::Definition;
use super::failure::{Failure, Refused};
use super::object::Object;
use super::pages::{Item, Page};
use super::request::{Call, Want, call, unreadable};
use super::resource::{Resource, root, segment};
use super::watch::PAGE_METADATA;

/// The collection of all definitions.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// What to do where definitions may not be read.
const MAY_READ_DEFINITIONS: &str = "let the agent get and list CustomResourceDefinitions, and it sees for itself (deploy/README.md, In some namespaces)";

/// How long an answer without the wanted kind is believed. A missing kind that many objects need is asked for once.
const MISSING_FOR: Duration = Duration::from_millis(900);

/// Why a kind is not known.
#[derive(Clone, Debug)]
pub(super) enum Unresolved {
    Missing(Failure),
    /// Discovery itself failed: neither served nor not.
    Failed(Failure),
}

impl Unresolved {
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Missing(failure) | Self::Failed(failure) => failure,
        }
    }
}

type Group = BTreeMap<Arc<str>, Arc<Resource>>;

/// One reading, shared by all callers that arrived while it was under way.
#[derive(Debug)]
struct Reading<T> {
    since: Instant,
    what: Arc<OnceCell<T>>,
}

impl<T> Reading<T> {
    fn fresh() -> Self {
        Self { since: Instant::now(), what: Arc::default() }
    }

    fn is_believed(&self) -> bool {
        self.since.elapsed() < MISSING_FOR
    }
}

impl<T> Clone for Reading<T> {
    fn clone(&self) -> Self {
        Self { since: self.since, what: Arc::clone(&self.what) }
    }
}

#[derive(Debug, Default)]
struct Readings {
    /// By group and version.
    kinds: BTreeMap<(Arc<str>, Arc<str>), Reading<Group>>,
    /// The versions of a group, the preferred one first; read only where a kind is not at the version that is wanted.
    versions: BTreeMap<Arc<str>, Reading<Vec<Arc<str>>>>,
    /// The kinds of a group that definitions define, served or not; read only where one is not served.
    definitions: BTreeMap<Arc<str>, Reading<BTreeSet<Arc<str>>>>,
}

/// The cache of discovery.
pub struct Kinds {
    client: Client,
    readings: Mutex<Readings>,
    /// Wakes callers that wait for a missing kind when kinds changed.
    changed: Notify,
}

impl Kinds {
    pub fn new(client: Client) -> Self {
        Self { client, readings: Mutex::default(), changed: Notify::new() }
    }

    /// As [`Kinds::resolve`], or at the version that its group prefers among those served: an object is the same at each
    /// version, and can be read and removed at any.
    pub(super) async fn find(&self, kind: &GroupKind, version: &Arc<str>) -> Result<Arc<Resource>, Unresolved> {
        let missing = match self.resolve(kind, version).await {
            Err(Unresolved::Missing(missing)) => missing,
            found => return found,
        };
        for other in self.versions(&kind.group).await?.iter().filter(|other| *other != version) {
            match self.resolve(kind, other).await {
                Err(Unresolved::Missing(_)) => {}
                found => return found,
            }
        }
        Err(Unresolved::Missing(missing))
    }

    /// The versions at which a group is served.
    async fn versions(&self, group: &Arc<str>) -> Result<Vec<Arc<str>>, Unresolved> {
        let reading = {
            let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
            let reading = readings.versions.entry(Arc::clone(group)).or_insert_with(Reading::fresh);
            if !reading.is_believed() {
                *reading = Reading::fresh();
            }
            reading.clone()
        };
        Ok(reading.what.get_or_try_init(|| read_versions(&self.client, group)).await?.clone())
    }

    /// The kind at this very version, in which it is written.
    pub(super) async fn resolve(&self, kind: &GroupKind, version: &Arc<str>) -> Result<Arc<Resource>, Unresolved> {
        let missing = || {
            Unresolved::Missing(Failure::new(
                Reason::KindMissing,
                format!(
                    "the API server does not serve {kind} at {version}; install its CustomResourceDefinition or API server"
                ),
            ))
        };
        let mut reading = self.reading(kind, version, None);
        let mut group = self.read(&reading, kind, version).await?;
        if !group.contains_key(&kind.kind) && !reading.is_believed() {
            reading = self.reading(kind, version, Some(&reading));
            group = self.read(&reading, kind, version).await?;
        }
        group.get(&kind.kind).cloned().ok_or_else(missing)
    }

    /// Confirms that nothing is left of a kind that is not served. The API server keeps what is of a kind as long as a
    /// CustomResourceDefinition defines it, also where that serves no version for a while.
    ///
    /// An aggregated API server keeps its objects itself, and nothing of one that is not registered any more can be seen.
    pub(super) async fn confirm_gone(&self, kind: &GroupKind) -> Result<(), Failure> {
        // The group of a definition is a domain.
        if !kind.group.contains('.') {
            return Ok(());
        }
        let may_be_kept = |why: &str| {
            Failure::new(
                Reason::KindMissing,
                format!("the API server does not serve {kind}, and its objects may be kept: {why}"),
            )
        };
        let reading = {
            let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
            let reading = readings.definitions.entry(Arc::clone(&kind.group)).or_insert_with(Reading::fresh);
            if !reading.is_believed() {
                *reading = Reading::fresh();
            }
            reading.clone()
        };
        match reading.what.get_or_try_init(|| read_definitions(&self.client, &kind.group)).await {
            Ok(kinds) if kinds.contains(&kind.kind) => Err(may_be_kept("its CustomResourceDefinition is there")),
            Ok(_) => Ok(()),
            Err(failure) if failure.reason == Reason::Forbidden => {
                Err(may_be_kept(&format!("{}; {MAY_READ_DEFINITIONS}", failure.message)))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Forgets a group: a definition changed, or an answer contradicts what was read.
    pub(super) fn forget(&self, group: &str) {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        readings.kinds.retain(|(known, _), _| &**known != group);
        readings.versions.remove(group);
        readings.definitions.remove(group);
    }

    /// Forgets everything and wakes callers that wait for a kind: some CustomResourceDefinition changed.
    pub(super) fn definitions_changed(&self) {
        *self.readings.lock().unwrap_or_else(PoisonError::into_inner) = Readings::default();
        self.changed.notify_waiters();
    }

    /// Completes when definitions changed after this was called, polled or not.
    pub(super) fn change(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// The present reading, or a new one in place of `stale`.
    fn reading(&self, kind: &GroupKind, version: &Arc<str>, stale: Option<&Reading<Group>>) -> Reading<Group> {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let group_version = (Arc::clone(&kind.group), Arc::clone(version));
        let reading = readings.kinds.entry(group_version).or_insert_with(Reading::fresh);
        if stale.is_some_and(|stale| Arc::ptr_eq(&stale.what, &reading.what)) {
            *reading = Reading::fresh();
        }
        reading.clone()
    }

    async fn read<'a>(
        &self,
        reading: &'a Reading<Group>,
        kind: &GroupKind,
        version: &Arc<str>,
    ) -> Result<&'a Group, Unresolved> {
        reading.what.get_or_try_init(|| read_group(&self.client, &kind.group, version)).await
    }
}

impl std::fmt::Debug for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kinds").finish_non_exhaustive()
    }
}

/// A group that is not served has no kinds.
async fn read_group(client: &Client, group: &Arc<str>, version: &Arc<str>) -> Result<Group, Unresolved> {
    let uri = root(segment(group).map_err(Unresolved::Failed)?, segment(version).map_err(Unresolved::Failed)?);
    match call::<APIResourceList>(client, Call::get(uri, Want::Whole)).await {
        Ok(list) => Ok(read_list(group, version, &list)),
        Err(Refused::Status { code: 404, .. }) => {
            confirm_missing(client, group, Some(version)).await.map_err(Unresolved::Failed)?;
            Ok(Group::new())
        }
        Err(refused) => Err(Unresolved::Failed(refused.failure())),
    }
}

/// Confirms, after a 404 that says so, that a group or this version of it is not served. Anybody on the way may say 404 to
/// everything, as a proxy does that is being started: it counts where the document of all groups lacks this one.
pub(super) async fn confirm_missing(client: &Client, group: &str, version: Option<&str>) -> Result<(), Failure> {
    let is_meant = |served: &str| version.is_none_or(|version| version == served);
    let served = if group.is_empty() {
        let APIVersions { versions, .. } = document(client, "/api").await?;
        versions.iter().any(|served| is_meant(served))
    } else {
        let APIGroupList { groups, .. } = document(client, "/apis").await?;
        let of_group = groups.iter().filter(|served| served.name == group).flat_map(|served| &served.versions);
        of_group.into_iter().any(|served| is_meant(&served.version))
    };
    if served {
        let message = format!("the API server names the group {group:?} and answers 404 for what is in it");
        return Err(Failure::unavailable(message));
    }
    Ok(())
}

async fn document<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, Failure> {
    match call(client, Call::get(path.to_owned(), Want::Whole)).await {
        Err(refused @ Refused::Status { code: 404, .. }) => {
            let message = format!("the API server answers 404 for {path}, too: {}", refused.failure().message);
            Err(Failure::unavailable(message))
        }
        outcome => outcome.map_err(|refused| refused.failure()),
    }
}

/// Kubernetes' own kinds without a group have one version, for ever.
async fn read_versions(client: &Client, group: &Arc<str>) -> Result<Vec<Arc<str>>, Unresolved> {
    if group.is_empty() {
        return Ok(Vec::new());
    }
    let uri = format!("/apis/{}", segment(group).map_err(Unresolved::Failed)?);
    match call::<APIGroup>(client, Call::get(uri, Want::Whole)).await {
        Ok(APIGroup { preferred_version, versions, .. }) => {
            let rest = versions.into_iter().filter(|version| Some(version) != preferred_version.as_ref());
            Ok(preferred_version.clone().into_iter().chain(rest).map(|version| version.version.into()).collect())
        }
        Err(Refused::Status { code: 404, .. }) => {
            confirm_missing(client, group, None).await.map_err(Unresolved::Failed)?;
            Ok(Vec::new())
        }
        Err(refused) => Err(Unresolved::Failed(refused.failure())),
    }
}

/// The kinds that definitions of this group define. A definition is called by the plural of its kind and its group, and who only
/// lists the metadata of all of them reads few.
async fn read_definitions(client: &Client, group: &str) -> Result<BTreeSet<Arc<str>>, Failure> {
    let mut kinds = BTreeSet::new();
    let suffix = format!(".{group}");
    let first = format!("{DEFINITIONS}?limit={PAGE_METADATA}");
    let mut next = Some(first.clone());
    while let Some(uri) = next {
        let page: Page<Item> = call(client, Call::get(uri, Want::MetadataList)).await?;
        let (items, following) = page.turn(&first);
        let names = items.into_iter().filter_map(|item| item.metadata.name);
        for name in names.filter(|name| name.strip_suffix(&suffix).is_some_and(|plural| !plural.contains('.'))) {
            let uri = format!("{DEFINITIONS}/{}", segment(&name)?);
            match call::<Object>(client, Call::get(uri, Want::Whole)).await {
                Ok(object) => {
                    let definition = Definition::of(&object).map_err(|error| unreadable(&error))?;
                    kinds.insert(definition.kind().into());
                }
                Err(refused) if refused.is_object_missing() => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        next = following;
    }
    Ok(kinds)
}

fn read_list(group: &Arc<str>, version: &Arc<str>, list: &APIResourceList) -> Group {
    let is_subresource = |name: &str| name.contains('/');
    list.resources
        .iter()
        .filter(|resource| !is_subresource(&resource.name))
        .map(|resource| {
            let kind: Arc<str> = resource.kind.as_str().into();
            let status = format!("{}/status", resource.name);
            let served = Resource {
                kind: GroupKind { group: Arc::clone(group), kind: Arc::clone(&kind) },
                version: Arc::clone(version),
                plural: resource.name.clone(),
                namespaced: resource.namespaced,
                status: is_custom(group) || list.resources.iter().any(|other| other.name == status),
            };
            (kind, Arc::new(served))
        })
        .collect()
}

/// Kubernetes' own groups have no dot, or are under its domain; those of definitions always have one.
fn is_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

#[cfg(test)]
mod tests;
