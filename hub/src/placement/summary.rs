use std::collections::BTreeMap;

use tideline_api::PlacementStatus;
use tideline_common::{ObjectKey, Reason, SpaceName};

use super::SourceId;
use super::index::Index;
use super::object::State;
use super::space::{Placing, Space};

/// Problems kept for one Placement; they are counted beyond.
pub const PROBLEMS_MAX: usize = PlacementStatus::PROBLEMS_MAX;

/// What one Placement selects, and what of it cannot be as it asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementSummary {
    pub targets: u64,
    /// What it selects, whether that can be placed or not.
    pub objects: u64,
    /// The first [`PROBLEMS_MAX`], those of the Placement itself before those of its objects.
    pub problems: Vec<PlacementProblem>,
    /// All problems, by reason.
    pub counts: BTreeMap<Reason, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementProblem {
    pub reason: Reason,
    /// None for the Placement itself.
    pub object: Option<ObjectKey>,
    pub message: String,
}

impl PlacementSummary {
    fn add(&mut self, reason: Reason, object: Option<&ObjectKey>, message: impl FnOnce() -> String) {
        *self.counts.entry(reason).or_default() += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(PlacementProblem { reason, object: object.cloned(), message: message() });
        }
    }
}

impl Index {
    /// Describes one Placement as of the last drain; none if it is not known. What other sources hold is the ledger's
    /// to say, see [`Index::placement_sources`].
    pub fn placement_status(&self, space: &SpaceName, name: &str) -> Option<PlacementSummary> {
        let space = self.spaces.get(space)?;
        let placing = space.placements.get(name)?;
        let mut summary =
            PlacementSummary { targets: placing.targets.len(), objects: placing.objects.len(), ..Default::default() };
        if let Some(problem) = &placing.problem {
            summary.add(Reason::Undecodable, None, || match placing.rule {
                Some(_) => format!("{problem}; its last good form stays in force"),
                None => format!("{problem}; until it can be read nothing is taken from any target of this space"),
            });
        }
        for index in &placing.objects {
            object_problems(space, placing, name, index, &mut summary);
        }
        Some(summary)
    }

    /// How many targets a Location selects, and why its selector cannot be read, if it cannot; none if it is not known.
    pub fn location_status(&self, name: &str) -> Option<(u64, Option<&str>)> {
        let location = self.inventory.locations.get(name)?;
        Some((location.targets.len(), location.problem.as_deref()))
    }

    /// The names of all Locations.
    pub fn locations(&self) -> impl Iterator<Item = &str> {
        self.inventory.locations.keys().map(|name| &**name)
    }

    /// The names of a space's Placements.
    pub fn placements<'a>(&'a self, space: &SpaceName) -> impl Iterator<Item = &'a str> + use<'a> {
        self.spaces.get(space).into_iter().flat_map(|space| space.placements.keys().map(|name| &**name))
    }

    /// The sources that a Placement selects.
    pub fn placement_sources<'a>(
        &'a self,
        space: &SpaceName,
        name: &str,
    ) -> impl Iterator<Item = &'a SourceId> + use<'a> {
        let space = self.spaces.get(space);
        let placing = space.and_then(|space| space.placements.get(name));
        let objects = placing.into_iter().flat_map(|placing| &placing.objects);
        objects.filter_map(move |index| Some(&space?.object(index)?.id))
    }

    /// The Placements that select a source.
    pub fn placements_of(&self, source: &SourceId) -> Vec<&str> {
        let Some(space) = self.spaces.get(&source.space) else { return Vec::new() };
        let object = space.objects.iter().flatten().find(|object| object.id == *source);
        object.into_iter().flat_map(|object| object.matches.keys().map(|name| &**name)).collect()
    }
}

fn object_problems(space: &Space, placing: &Placing, name: &str, index: u32, summary: &mut PlacementSummary) {
    let Some(object) = space.object(index) else { return };
    match &object.state {
        State::Readable { problem: Some(refusal), .. } => {
            summary.add(refusal.reason, Some(&object.key), || {
                format!("{}; its last good form stays in force", refusal.message)
            });
        }
        State::Unreadable(refusal) => summary.add(refusal.reason, Some(&object.key), || refusal.message.clone()),
        State::Restored | State::NeverPlaced | State::Readable { problem: None, .. } => {}
    }
    if space.rule.as_ref().is_some_and(|rule| !rule.allows(&object.key.kind)) {
        summary.add(Reason::NotAllowed, Some(&object.key), || {
            format!("the space may not place {}; see spec.allow.kinds of its Space", object.key.kind)
        });
    }
    let Some(policy) = object.matches.get(name) else { return };
    for (other, _) in object.matches.iter().filter(|(_, other)| *other != policy) {
        let shared = space.placements.get(other).is_some_and(|other| !other.targets.is_disjoint(&placing.targets));
        if shared {
            summary.add(Reason::Conflict, Some(&object.key), || {
                format!("Placement {other:?} asks for it otherwise; where both assign it the least destructive holds")
            });
        }
    }
}
