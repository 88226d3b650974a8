//! `heldunassignments`: what a change was to unassign, and is held for being too much, read as Kubernetes objects of the
//! root space; and the approval of it, from wherever an administrator's kubeconfig is.

use std::collections::BTreeSet;

use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use tideline_api::{UnassignmentApproval, UnassignmentApprovalSpec};
use tideline_common::{Digest, Monotonic, Revision};

use crate::clean::Destination;
use crate::engine::{Engine, KeptSource, renamed};
use crate::kubeconfig::RequestError;
use crate::placement::SourceId;
use crate::virtual_resources::{self, ColumnText, GROUP, RootKind, Unreadable, VERSION};

const KIND: &str = "HeldUnassignment";
const PLURAL: &str = "heldunassignments";
/// Targets that one object names; it counts them all.
const NAMES_MAX: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {operation}")]
    Request { operation: &'static str, source: RequestError },
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// One source that targets keep, though nothing wants it there any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldUnassignment {
    /// At which it was held. What is held at one revision is approved together.
    pub revision: Revision,
    pub source: HeldSource,
    /// What its namespace is called at the targets, if that is not as in the space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub targets: HeldTargets,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldSource {
    pub space: String,
    #[serde(default)]
    pub api_group: String,
    pub kind: String,
    #[serde(default)]
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTargets {
    pub count: u64,
    /// Those of them that came to the hub first, by name.
    pub names: Vec<String>,
}

/// Reads all that is held, by revision and then by object. `root` is a client of the root space.
///
/// # Errors
///
/// The request failed, or an answer cannot be read.
pub async fn held(root: &Client) -> Result<Vec<HeldUnassignment>, Error> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL);
    let all = Api::<DynamicObject>::all_with(root.clone(), &resource).list(&ListParams::default()).await;
    let all = all.map_err(|error| Error::Request { operation: "list what is held", source: error.into() })?;
    let read = all.items.into_iter().map(|object| virtual_resources::decode(KIND, object));
    let mut held: Vec<HeldUnassignment> = read.collect::<Result<_, _>>()?;
    held.sort_by_key(|held| {
        let HeldSource { space, api_group, kind, namespace, name, uid: _ } = held.source.clone();
        (held.revision, space, api_group, kind, namespace, name, held.namespace.clone())
    });
    Ok(held)
}

/// Records the approval of what was held at these revisions, and returns the names of the records.
///
/// # Errors
///
/// The request failed; what was recorded before stands.
pub async fn approve(root: &Client, revisions: &BTreeSet<Revision>) -> Result<Vec<String>, Error> {
    let numbers: Vec<_> = revisions.iter().map(|revision| i64::try_from(revision.0).unwrap_or(i64::MAX)).collect();
    let mut names = Vec::new();
    for part in numbers.chunks(UnassignmentApprovalSpec::REVISIONS_MAX) {
        let mut object = UnassignmentApproval::new("", UnassignmentApprovalSpec { revisions: part.to_vec() });
        object.metadata.name = None;
        object.metadata.generate_name = Some(format!("revision-{}-", part[0]));
        let made = Api::<UnassignmentApproval>::all(root.clone()).create(&PostParams::default(), &object).await;
        let made = made.map_err(|error| Error::Request { operation: "record the approval", source: error.into() })?;
        names.push(made.name_any());
    }
    Ok(names)
}

impl HeldUnassignment {
    fn of(engine: &Engine, kept: KeptSource) -> Self {
        let KeptSource { revision, source, key, destination, targets } = kept;
        let first = targets.iter().take(NAMES_MAX);
        let mut names: Vec<_> = first.map(|target| engine.target_name_at(target)).collect();
        names.sort_unstable();
        Self {
            revision,
            source: HeldSource {
                space: source.space.to_string(),
                api_group: key.kind.group.to_string(),
                kind: key.kind.kind.to_string(),
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                uid: source.uid.to_string(),
            },
            namespace: renamed(&key, &destination).map(str::to_owned),
            targets: HeldTargets { count: targets.len(), names },
        }
    }
}

#[derive(Debug)]
pub(crate) struct HeldUnassignments;

impl RootKind for HeldUnassignments {
    const KIND: &'static str = KIND;
    const PLURAL: &'static str = PLURAL;
    const COLUMNS: &'static [ColumnText] = &[
        ("Revision", ".revision", "integer", 0),
        ("Space", ".source.space", "string", 0),
        ("Kind", ".source.kind", "string", 0),
        ("Namespace", ".source.namespace", "string", 0),
        ("Object", ".source.name", "string", 0),
        ("Targets", ".targets.count", "integer", 0),
    ];

    type Position = (SourceId, Destination);
    type Row = HeldUnassignment;

    fn rows(
        engine: &Engine,
        _now: Monotonic,
        after: Option<&Self::Position>,
        most: usize,
    ) -> Vec<(Self::Position, Self::Row)> {
        engine.kept_sources_after(after).take(most).map(|(at, kept)| (at, HeldUnassignment::of(engine, kept))).collect()
    }

    fn name(row: &HeldUnassignment) -> String {
        // An object's name has characters that this one must not have.
        let place = format!("{:?} {:?}", row.source, row.namespace);
        format!("{}.{}", row.revision, &Digest::of(place.as_bytes()).to_string()[..16])
    }
}
