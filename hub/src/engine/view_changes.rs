//! Which places of spaces show otherwise than before: what readers of rollups and reports have to read again.

use std::collections::BTreeMap;
use std::ops::Bound;

use tideline_common::{ObjectKey, SpaceName, TargetId};

use super::Engine;
use crate::limits::{TARGET_PLACES_MAX, VIEW_CHANGES_MAX};

/// A place in a space.
type Place = (SpaceName, ObjectKey);

/// The last changes of what virtual resources show, each place once. A number rises by two with each.
#[derive(Clone, Debug, Default)]
pub struct ViewChanges {
    number: u64,
    /// Of what changed until then it is not known where that was.
    forgotten: u64,
    by_number: BTreeMap<u64, Place>,
    places: BTreeMap<Place, Last>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    changed: u64,
    /// When copies of it may have gone; zero for never.
    diminished: u64,
}

/// What may have become of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewChange {
    /// What there is of it may read otherwise.
    Reads,
    /// Copies may be gone, or all of it.
    Diminished,
}

/// A place that shows otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedPlace {
    /// The number of its last change.
    pub at: u64,
    pub place: ObjectKey,
    /// The most that became of it since what was asked for.
    pub change: ViewChange,
}

/// What changed since a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedPlaces {
    /// Any place, until this number at the latest.
    Any { until: u64 },
    /// These alone, in the order of their last changes.
    These(Vec<ChangedPlace>),
}

impl ViewChanges {
    /// Moves with whatever virtual resources show.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Something moved that is shown at no place.
    fn elsewhere(&mut self) {
        self.number += 2;
    }

    /// Any place may show otherwise.
    fn anywhere(&mut self) {
        self.number += 2;
        self.forgotten = self.number;
        self.by_number.clear();
        self.places.clear();
    }

    fn at(&mut self, place: Place, change: ViewChange) {
        self.number += 2;
        let last = self.places.entry(place.clone()).or_default();
        self.by_number.remove(&last.changed);
        last.changed = self.number;
        if change == ViewChange::Diminished {
            last.diminished = self.number;
        }
        self.by_number.insert(self.number, place);
        if self.by_number.len() > VIEW_CHANGES_MAX
            && let Some((number, place)) = self.by_number.pop_first()
        {
            self.forgotten = number;
            self.places.remove(&place);
        }
    }

    /// What changed in a space since a number that was current once.
    pub fn since(&self, space: &SpaceName, number: u64) -> ChangedPlaces {
        if number < self.forgotten {
            return ChangedPlaces::Any { until: self.forgotten };
        }
        let later = self.by_number.range((Bound::Excluded(number), Bound::Unbounded));
        let here = later.filter(|(_, (of, _))| of == space).map(|(at, place)| {
            let diminished = self.places.get(place).is_some_and(|last| last.diminished > number);
            let change = if diminished { ViewChange::Diminished } else { ViewChange::Reads };
            ChangedPlace { at: *at, place: place.1.clone(), change }
        });
        ChangedPlaces::These(here.collect())
    }
}

impl Engine {
    /// Something moved that neither rollups nor reports show.
    pub(super) fn moved_elsewhere(&mut self) {
        self.view_changes.elsewhere();
    }

    /// Any rollup and report may read otherwise.
    pub(super) fn moved_anywhere(&mut self) {
        self.view_changes.anywhere();
    }

    /// These places may show otherwise; none for any.
    pub(super) fn moved(&mut self, places: Option<impl IntoIterator<Item = Place>>, change: ViewChange) {
        let Some(places) = places else { return self.moved_anywhere() };
        let before = self.view_changes.number();
        for place in places {
            self.view_changes.at(place, change);
        }
        if self.view_changes.number() == before {
            self.moved_elsewhere();
        }
    }

    /// What is shown of these destinations reads otherwise.
    pub(super) fn reads_otherwise<'k>(&mut self, destinations: impl IntoIterator<Item = &'k ObjectKey>) {
        let places: Option<Vec<_>> = destinations.into_iter().map(|key| self.ledger.places_at(key)).collect();
        self.moved(places.map(|places| places.into_iter().flatten()), ViewChange::Reads);
    }

    /// What is shown of everything that a target has reads otherwise.
    pub(super) fn target_reads_otherwise(&mut self, target: TargetId) {
        let Some(view) = self.ledger.target(target) else { return self.moved_elsewhere() };
        if view.len() > TARGET_PLACES_MAX {
            return self.moved_anywhere();
        }
        let keys: Vec<_> = view.keys().cloned().collect();
        self.reads_otherwise(&keys);
    }
}

#[cfg(test)]
mod tests;
