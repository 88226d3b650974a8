//! `historybreaks`: what clusters know of and this hub does not, read as Kubernetes objects of the root space; and the
//! acceptance of it, from wherever an administrator's kubeconfig is.

use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use tideline_api::{HistoryAcceptance, HistoryAcceptanceSpec, ShownHistory};
use tideline_common::{Epoch, Monotonic, Revision, Version};

use crate::engine::Engine;
use crate::history_break::HistoryBreak;
use crate::history_change::Accepted;
use crate::kubeconfig::RequestError;
use crate::ledger::{Missing, Restored};
use crate::virtual_resources::{ColumnText, GROUP, RootKind, VERSION};

const KIND: &str = "HistoryBreak";
const PLURAL: &str = "historybreaks";
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {operation}")]
    Request { operation: &'static str, source: RequestError },
    #[error("cannot read the break of history {name}; use the tideline-hub of the hub's version")]
    Unreadable { name: String, source: serde_json::Error },
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

    fn name(&self) -> String {
        match self {
            Self::SetUnknown { segment, target, proven: false, .. } => format!("{segment}.{target}"),
            Self::SetUnknown { segment, .. } => segment.clone(),
            Self::Restored { id, .. } => format!("restored-{id}"),
        }
    }
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
pub(crate) struct HistoryBreaks;

impl RootKind for HistoryBreaks {
    const KIND: &'static str = KIND;
    const PLURAL: &'static str = PLURAL;
    const COLUMNS: &'static [ColumnText] = &[
        ("Cause", ".cause", "string", 0),
        ("Target", ".target", "string", 0),
        ("Epoch", ".epoch", "integer", 0),
        ("Revision", ".revision", "integer", 0),
        ("After", ".after", "integer", 0),
        ("Made", ".made", "string", 0),
    ];

    /// The name: there are few.
    type Position = String;
    type Row = HistoryBreak;

    fn rows(engine: &Engine, _now: Monotonic, after: Option<&String>, most: usize) -> Vec<(String, HistoryBreak)> {
        let all = HistoryBreak::all(engine).into_iter().map(|found| (found.name(), found));
        let mut rows: Vec<_> = all.filter(|(name, _)| after.is_none_or(|after| name > after)).collect();
        rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        rows.truncate(most);
        rows
    }

    fn name(row: &HistoryBreak) -> String {
        row.name()
    }
}

#[cfg(test)]
mod tests;
