//! `historybreaks`: what clusters know of and this hub does not, read as Kubernetes objects of the root space; and the
//! acceptance of it, from wherever an administrator's kubeconfig is.

use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tideline_api::{HistoryAcceptance, HistoryAcceptanceSpec, ShownHistory};
use tideline_apiserver::{Column, Page, PageRequest, ResourceKind, UnknownKey, VirtualResource};
use tideline_common::{Epoch, Revision, TargetId, Version};
use tokio::sync::watch;

use crate::engine::Engine;
use crate::kubeconfig::RequestError;
use crate::ledger::{Accepted, Missing, Restored};
use crate::shared::Shared;
use crate::virtual_resources::{self, GROUP, VERSION};

const KIND: &str = "HistoryBreak";
const PLURAL: &str = "historybreaks";
/// Unknown sets that a sentence names, the highest.
const NAMED_MAX: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {operation}")]
    Request { operation: &'static str, source: RequestError },
    #[error("cannot read the break of history {name}; use the tideline-hub of the hub's version")]
    Unreadable { name: String, source: serde_json::Error },
}

/// Why targets keep what they have, and begin no removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all_fields = "camelCase")]
pub enum HistoryBreak {
    /// A cluster was given a set that this hub does not know of.
    SetUnknown {
        /// The SyncTarget that showed it last.
        target: String,
        segment: String,
        epoch: Epoch,
        revision: Revision,
        /// Up to here this hub's history may be the same.
        after: Revision,
        /// Whether the hub's own signed word proves it, so that it concerns all targets.
        proven: bool,
    },
    /// The store was restored from a backup.
    Restored { id: String, made: String },
}

impl HistoryBreak {
    fn of(engine: &Engine, missing: &Missing) -> Self {
        let Missing { target, shown, after, proven } = *missing;
        Self::SetUnknown {
            target: engine.target_name(target),
            segment: shown.point.segment.to_string(),
            epoch: shown.version.epoch,
            revision: shown.version.revision,
            after,
            proven,
        }
    }

    /// All that there is, of this engine.
    pub(crate) fn all(engine: &Engine) -> Vec<Self> {
        let restored =
            engine.ledger.restored().map(|Restored { id, made }| Self::Restored { id: id.clone(), made: made.clone() });
        restored.into_iter().chain(engine.ledger.missing().map(|missing| Self::of(engine, &missing))).collect()
    }

    fn object(&self) -> Value {
        let mut object = json!(self);
        let name = match self {
            Self::SetUnknown { segment, target, proven: false, .. } => format!("{segment}.{target}"),
            Self::SetUnknown { segment, .. } => segment.clone(),
            Self::Restored { id, .. } => format!("restored-{id}"),
        };
        object["metadata"] = json!({"name": name});
        object
    }
}

/// What concerns all targets, in one sentence for people: what is so, and what follows. None where nothing is proven.
pub fn sentence(breaks: &[HistoryBreak]) -> Option<String> {
    let restored = breaks.iter().find_map(|found| match found {
        HistoryBreak::Restored { made, .. } => Some(made.as_str()),
        HistoryBreak::SetUnknown { .. } => None,
    });
    let unknown = breaks.iter().filter_map(|found| match found {
        HistoryBreak::SetUnknown { target, epoch, revision, after, proven: true, .. } => {
            Some((Version { epoch: *epoch, revision: *revision }, *after, target.as_str()))
        }
        HistoryBreak::SetUnknown { .. } | HistoryBreak::Restored { .. } => None,
    });
    say(restored, say_unknown(unknown))
}

/// What agents claim and do not prove, each with its target. It concerns that one alone.
pub fn claims(breaks: &[HistoryBreak]) -> impl Iterator<Item = (&str, String)> {
    breaks.iter().filter_map(|found| match found {
        HistoryBreak::SetUnknown { target, epoch, revision, proven: false, .. } => {
            Some((target.as_str(), claim(target, Version { epoch: *epoch, revision: *revision })))
        }
        HistoryBreak::SetUnknown { .. } | HistoryBreak::Restored { .. } => None,
    })
}

/// The same, as every SyncTarget says it: without names and numbers, for what more becomes known changes nothing for it,
/// and would be written into all of them.
pub(crate) fn sentence_of(engine: &Engine) -> Option<String> {
    let unknown = engine.ledger.missing().any(|missing| missing.proven).then(|| {
        "Clusters were given sets that this hub does not know of; tideline-hub history show names them.".to_owned()
    });
    say(engine.ledger.restored().map(|restored| restored.made.as_str()), unknown)
}

/// What the agent of this target claims, if anything.
pub(crate) fn claim_of(engine: &Engine, target: TargetId) -> Option<String> {
    let claimed = engine.ledger.claimed(target)?;
    Some(claim(&engine.target_name(target), claimed.version))
}

fn claim(target: &str, version: Version) -> String {
    format!(
        "its agent claims a set (at {version}) that this hub does not know of, and shows no word of this hub for it. Nothing is \
         rolled out to its cluster or removed there until this is settled; other clusters are not affected. If somebody \
         else may have its key: tideline-hub targets revoke {target}; if the agent is as it should be: tideline-hub history \
         accept, which makes approvals void everywhere"
    )
}

/// Unknown sets come with the revision up to which the histories are the same, and with who showed them.
fn say_unknown<'a>(unknown: impl Iterator<Item = (Version, Revision, &'a str)>) -> Option<String> {
    let (mut highest, mut count) = (Vec::new(), 0_usize);
    let mut since: Option<Revision> = None;
    for (version, after, target) in unknown {
        count += 1;
        since = Some(since.map_or(after, |since| since.min(after)));
        let place = highest.partition_point(|(higher, _)| *higher >= version);
        highest.insert(place, (version, target));
        highest.truncate(NAMED_MAX);
    }
    since.map(|since| {
        let mut known: Vec<_> = highest.iter().map(|(version, target)| format!("{target} (at {version})")).collect();
        if count > NAMED_MAX {
            known.push(format!("and {} more, shown by tideline-hub history show", count - NAMED_MAX));
        }
        format!("Clusters were given sets after revision {since} that this hub does not know of: {}.", known.join(", "))
    })
}

/// That the hub was restored from a backup of then, and what it does not know of.
fn say(restored: Option<&str>, unknown: Option<String>) -> Option<String> {
    let restored = restored.map(|made| format!("This hub was restored from a backup of {made}."));
    let what: Vec<_> = restored.into_iter().chain(unknown).collect();
    (!what.is_empty()).then(|| {
        format!(
            "{} Nothing is rolled out or removed until this is settled. If another directory or machine holds the newer \
             store, stop this hub and start it there; if it is lost: tideline-hub history accept",
            what.join(" ")
        )
    })
}

/// Reads why targets keep still. `root` is a client of the root space.
///
/// # Errors
///
/// The request failed, or an answer cannot be read.
pub async fn breaks(root: &Client) -> Result<Vec<HistoryBreak>, Error> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL);
    let all = Api::<DynamicObject>::all_with(root.clone(), &resource).list(&ListParams::default()).await;
    let all = all.map_err(|error| Error::Request { operation: "list the breaks of history", source: error.into() })?;
    all.items.into_iter().map(of_object).collect()
}

/// One that is left out would be none.
fn of_object(object: DynamicObject) -> Result<HistoryBreak, Error> {
    let name = object.name_any();
    HistoryBreak::deserialize(object.data).map_err(|source| Error::Unreadable { name, source })
}

/// Records that these are accepted and no others, and returns the names of the records.
///
/// # Errors
///
/// The request failed; what was recorded before stands.
pub async fn accept(root: &Client, breaks: &[HistoryBreak]) -> Result<Vec<String>, Error> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let shown: Vec<_> = breaks
        .iter()
        .filter_map(|found| match found {
            HistoryBreak::SetUnknown { segment, epoch, revision, .. } => {
                Some(ShownHistory { segment: segment.clone(), epoch: number(epoch.0), revision: number(revision.0) })
            }
            HistoryBreak::Restored { .. } => None,
        })
        .collect();
    let restored = breaks.iter().find_map(|found| match found {
        HistoryBreak::Restored { id, .. } => Some(id.clone()),
        HistoryBreak::SetUnknown { .. } => None,
    });
    let mut specs: Vec<_> = shown
        .chunks(HistoryAcceptanceSpec::SHOWN_MAX)
        .map(|part| HistoryAcceptanceSpec { shown: part.to_vec(), restored: None })
        .collect();
    match specs.first_mut() {
        Some(first) => first.restored = restored,
        None => specs.push(HistoryAcceptanceSpec { shown, restored }),
    }
    let mut names = Vec::new();
    for spec in specs {
        let mut object = HistoryAcceptance::new("", spec);
        object.metadata.name = None;
        object.metadata.generate_name = Some("history-".to_owned());
        let made = Api::<HistoryAcceptance>::all(root.clone()).create(&PostParams::default(), &object).await;
        let made = made.map_err(|error| Error::Request { operation: "record the acceptance", source: error.into() })?;
        names.push(made.name_any());
    }
    Ok(names)
}

/// What an acceptance says. What cannot be read of it accepts nothing.
pub(crate) fn read(spec: &HistoryAcceptanceSpec) -> Accepted {
    let HistoryAcceptanceSpec { shown, restored } = spec;
    let number = |number: i64| u64::try_from(number).ok();
    let shown = shown.iter().filter_map(|ShownHistory { segment, epoch, revision }| {
        let version = Version { epoch: Epoch(number(*epoch)?), revision: Revision(number(*revision)?) };
        Some((segment.parse().ok()?, version))
    });
    Accepted { shown: shown.collect(), restored: restored.clone(), ..Accepted::default() }
}

#[derive(Debug)]
struct Resource {
    shared: Shared,
}

/// For the root space.
pub(crate) fn resource(shared: &Shared) -> Arc<dyn VirtualResource> {
    Arc::new(Resource { shared: shared.clone() })
}

impl Resource {
    fn all(&self) -> Vec<HistoryBreak> {
        self.shared.read(HistoryBreak::all)
    }
}

impl VirtualResource for Resource {
    fn resource(&self) -> ResourceKind {
        virtual_resources::kind(KIND, PLURAL, false)
    }

    fn columns(&self) -> Vec<Column> {
        virtual_resources::columns(&[
            ("Cause", ".cause", "string", 0),
            ("Target", ".target", "string", 0),
            ("Epoch", ".epoch", "integer", 0),
            ("Revision", ".revision", "integer", 0),
            ("After", ".after", "integer", 0),
            ("Made", ".made", "string", 0),
        ])
    }

    fn list(&self, _space: &str, request: &PageRequest<'_>) -> Result<Page, UnknownKey> {
        Ok(Page::of_all(self.all().iter().map(HistoryBreak::object).collect(), request))
    }

    fn get(&self, _space: &str, _namespace: Option<&str>, name: &str) -> Option<Value> {
        self.all().iter().map(HistoryBreak::object).find(|object| object["metadata"]["name"] == name)
    }

    fn changes(&self, _space: &str) -> Option<watch::Receiver<u64>> {
        Some(self.shared.version())
    }
}

#[cfg(test)]
mod tests;
