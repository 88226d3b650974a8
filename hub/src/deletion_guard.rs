//! What of the root space is not deleted by a slip, such as `kubectl delete --all`.

use std::ops::Bound;

use tideline_apiserver::{Admission, Deletion, OWN_NAMESPACES};
use tideline_common::SpaceName;

use crate::agents;
use crate::engine::Engine;
use crate::shared::Shared;
use crate::sync_target::FORCE_ANNOTATION;

/// Keeps what is in use from being deleted by mistake.
#[derive(Debug)]
pub(crate) struct DeletionGuard {
    shared: Shared,
    /// The spaces that this hub serves: what is in others nobody reads.
    served: &'static [&'static str],
}

impl DeletionGuard {
    pub(crate) fn new(shared: &Shared, served: &'static [&'static str]) -> Self {
        Self { shared: shared.clone(), served }
    }

    /// Without its Space nothing in it would be placed any more, and nothing unplaced.
    fn deletes_space(&self, space: &SpaceName) -> Result<(), String> {
        let served = self.served.contains(&space.as_str());
        let Some(why) = self.shared.read(|engine| in_use(engine, space, served)) else { return Ok(()) };
        Err(format!(
            "the Space {space} is in use: {why}. Delete first what is in it, its Placements before all (what they placed is \
             removed as they say), or say that it is meant: kubectl annotate space {space} {FORCE_ANNOTATION}=$(kubectl get \
             space {space} -o jsonpath='{{.metadata.uid}}'); what is placed then stays as it is until the Space is made again"
        ))
    }
}

impl Admission for DeletionGuard {
    fn deletes(&self, deletion: &Deletion<'_>) -> Result<(), String> {
        if deletion.group != tideline_api::GROUP {
            return Ok(());
        }
        let metadata = &deletion.object["metadata"];
        let forced = metadata["annotations"][FORCE_ANNOTATION] == metadata["uid"];
        match deletion.resource {
            "synctargets" => agents::deletes_target(&self.shared, deletion, forced),
            "spaces" if !forced => {
                let name = metadata["name"].as_str().and_then(|name| name.parse().ok());
                name.map_or(Ok(()), |space| self.deletes_space(&space))
            }
            _ => Ok(()),
        }
    }
}

/// Why a Space counts as in use, if it does. What was not read is not taken for empty.
fn in_use(engine: &Engine, space: &SpaceName, served: bool) -> Option<String> {
    if let Some(place) = engine.ledger.next_place(space, Bound::Unbounded) {
        return Some(format!("{place} is placed from it"));
    }
    let unread = served && !engine.index.is_read(space);
    let holds = engine.index.example_in(space, &OWN_NAMESPACES).map(|example| format!("it holds {example}"));
    holds.or_else(|| unread.then(|| "what is in it was not read to the end yet, or cannot be".to_owned()))
}

#[cfg(test)]
mod tests;
