//! Which places of spaces show otherwise than before: what readers of rollups and reports have to read again.

use std::collections::BTreeMap;
use std::ops::Bound;

use tideline_common::{ObjectKey, SpaceName, TargetId};

use super::Engine;
use crate::ledger::{Place, PlaceChange};
use crate::limits::{TARGET_PLACES_MAX, VIEW_CHANGES_MAX};

/// The last changes of what virtual resources show, each place once. A number rises by two with each.
#[derive(Clone, Debug, Default)]
pub struct ViewChanges {
    number: u64,
    /// Of what changed until then it is not known where that was.
    forgotten: u64,
    /// The same of copies that may have gone.
    diminished: u64,
    by_number: BTreeMap<u64, Place>,
    places: BTreeMap<Place, Last>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    changed: u64,
    /// When copies of it may have gone; zero for never.
    diminished: u64,
}

/// A place that shows otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedPlace {
    /// The number of its last change.
    pub at: u64,
    pub place: ObjectKey,
    /// The most that became of it since what was asked for.
    pub change: PlaceChange,
}

/// What changed since a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedPlaces {
    /// Any place, until this number at the latest.
    Any { until: u64, change: PlaceChange },
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
    fn anywhere(&mut self, change: PlaceChange) {
        self.number += 2;
        self.forgotten = self.number;
        let known = self.places.values().map(|last| last.diminished).max().unwrap_or_default();
        self.diminished = if change == PlaceChange::Diminished { self.number } else { self.diminished.max(known) };
        self.by_number.clear();
        self.places.clear();
    }

    fn at(&mut self, place: Place, change: PlaceChange) {
        self.number += 2;
        let last = self.places.entry(place.clone()).or_default();
        self.by_number.remove(&last.changed);
        last.changed = self.number;
        if change == PlaceChange::Diminished {
            last.diminished = self.number;
        }
        self.by_number.insert(self.number, place);
        if self.by_number.len() > VIEW_CHANGES_MAX
            && let Some((number, place)) = self.by_number.pop_first()
        {
            self.forgotten = number;
            let last = self.places.remove(&place).unwrap_or_default();
            self.diminished = self.diminished.max(last.diminished);
        }
    }

    /// What changed in a space since a number that was current once.
    pub fn since(&self, space: &SpaceName, number: u64) -> ChangedPlaces {
        if number < self.forgotten {
            let diminished = self.diminished > number || self.places.values().any(|last| last.diminished > number);
            let change = if diminished { PlaceChange::Diminished } else { PlaceChange::Reads };
            return ChangedPlaces::Any { until: self.forgotten, change };
        }
        let later = self.by_number.range((Bound::Excluded(number), Bound::Unbounded));
        let here = later.filter(|(_, (of, _))| of == space).map(|(at, place)| {
            let diminished = self.places.get(place).is_some_and(|last| last.diminished > number);
            let change = if diminished { PlaceChange::Diminished } else { PlaceChange::Reads };
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

    /// Any rollup and report may show otherwise.
    pub(super) fn moved_anywhere(&mut self, change: PlaceChange) {
        self.view_changes.anywhere(change);
    }

    /// These places show otherwise; none for any.
    pub(super) fn moved(&mut self, places: Option<BTreeMap<Place, PlaceChange>>) {
        let Some(places) = places else { return self.moved_anywhere(PlaceChange::Diminished) };
        if places.is_empty() {
            return self.moved_elsewhere();
        }
        for (place, change) in places {
            self.view_changes.at(place, change);
        }
    }

    /// What is shown of these destinations reads otherwise.
    pub(super) fn reads_otherwise<'k>(&mut self, destinations: impl ExactSizeIterator<Item = &'k ObjectKey>) {
        if destinations.len() > TARGET_PLACES_MAX {
            return self.moved_anywhere(PlaceChange::Reads);
        }
        let places: Option<Vec<_>> = destinations.map(|key| self.ledger.places_at(key)).collect();
        match places {
            None => self.moved_anywhere(PlaceChange::Reads),
            Some(places) => {
                let places = places.into_iter().flatten().map(|place| (place, PlaceChange::Reads));
                self.moved(Some(places.collect()));
            }
        }
    }

    /// What is shown of everything that a target has reads otherwise.
    pub(super) fn target_reads_otherwise(&mut self, target: TargetId) {
        let Some(view) = self.ledger.target(target) else { return self.moved_elsewhere() };
        if view.len() > TARGET_PLACES_MAX {
            return self.moved_anywhere(PlaceChange::Reads);
        }
        let keys: Vec<_> = view.keys().cloned().collect();
        self.reads_otherwise(keys.iter());
    }

    /// A source that is not placed shows where an older hub did not say whose removals it began.
    pub(super) fn moved_with_a_source(&mut self) {
        if self.ledger.removals_unnamed().next().is_some() {
            self.moved_anywhere(PlaceChange::Diminished);
        } else {
            self.moved_elsewhere();
        }
    }
}

#[cfg(test)]
mod tests;
