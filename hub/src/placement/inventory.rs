use std::collections::BTreeMap;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_api::Selector;
use tideline_common::TargetId;
use tideline_common::wire::v1::Decommission;

use super::listing::Listing;
use super::rule::{ReachRule, TargetRule};
use crate::clean::Labels;

/// A SyncTarget, as far as placement looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub id: TargetId,
    /// Of the SyncTarget.
    pub name: Arc<str>,
    pub labels: Labels,
    /// Gets nothing new; what it has stays.
    pub unschedulable: bool,
    /// One that goes out of service is selected by no rule, whatever its labels.
    pub decommission: Decommission,
}

impl Target {
    /// One in service, without a label.
    #[cfg(test)]
    pub(crate) fn plain(id: TargetId) -> Self {
        let name = "target".into();
        Self { id, name, labels: Labels::new(), unschedulable: false, decommission: Decommission::No }
    }

    fn is_selected_by(&self, rule: &TargetRule) -> bool {
        let TargetRule { names, labels } = rule;
        (names.is_empty() || names.contains(&*self.name)) && self.is_labelled(labels)
    }

    fn is_labelled(&self, selector: &Selector) -> bool {
        self.decommission == Decommission::No && selector.matches(&self.labels)
    }
}

/// The targets and Locations of the root space.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) targets: BTreeMap<u32, Target>,
    pub(super) locations: BTreeMap<Arc<str>, Location>,
    pub(super) target_list: Listing<u32>,
    pub(super) location_list: Listing<Arc<str>>,
    /// The indexes in `targets`.
    pub(super) existing: RoaringBitmap,
    pub(super) schedulable: RoaringBitmap,
    /// What changed since this was last taken.
    pub(super) news: News,
}

#[derive(Debug)]
pub(super) struct Location {
    labels: Labels,
    /// None while it was never readable: nobody knows what it selects.
    selector: Option<Selector>,
    pub(super) problem: Option<String>,
    pub(super) targets: RoaringBitmap,
    pub(super) generation: i64,
}

impl Location {
    /// Whether it could be read at least once.
    pub(super) fn is_readable(&self) -> bool {
        self.selector.is_some()
    }
}

/// What may be resolved differently than before.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    pub(super) targets: RoaringBitmap,
    pub(super) locations: bool,
}

impl News {
    pub(super) fn add(&mut self, other: &Self) {
        self.targets |= &other.targets;
        self.locations |= other.locations;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty() && !self.locations
    }
}

impl Inventory {
    pub(super) fn listed(&self) -> bool {
        self.target_list.complete() && self.location_list.complete()
    }

    /// Whether a Location was never readable, so that nothing may be taken from any target.
    pub(super) fn unreadable(&self) -> bool {
        self.location_list.is_in_part() || self.locations.values().any(|location| location.selector.is_none())
    }

    pub(super) fn apply_target(&mut self, index: u32, target: Target) {
        self.target_list.saw(index);
        self.existing.insert(index);
        if target.unschedulable {
            self.schedulable.remove(index);
        } else {
            self.schedulable.insert(index);
        }
        for location in self.locations.values_mut() {
            let selected = location.selector.as_ref().is_some_and(|selector| target.is_labelled(selector));
            set(&mut location.targets, index, selected);
        }
        self.targets.insert(index, target);
        self.news.targets.insert(index);
    }

    /// Whether it is there, and nobody takes it out of service.
    pub(super) fn is_in_service(&self, index: u32) -> bool {
        self.targets.get(&index).is_some_and(|target| target.decommission == Decommission::No)
    }

    pub(super) fn delete_target(&mut self, index: u32) {
        self.targets.remove(&index);
        self.existing.remove(index);
        self.schedulable.remove(index);
        for location in self.locations.values_mut() {
            location.targets.remove(index);
        }
        self.news.targets.insert(index);
    }

    pub(super) fn apply_location(&mut self, name: &str, read: Result<(Labels, Selector), String>) {
        let name: Arc<str> = name.into();
        self.location_list.saw(name.clone());
        let former = self.locations.remove(&name);
        let (labels, selector, problem) = match read {
            Ok((labels, selector)) => (labels, Some(selector), None),
            Err(problem) => {
                let good = former.as_ref().map(|former| (former.labels.clone(), former.selector.clone()));
                let (labels, selector) = good.unwrap_or_default();
                (labels, selector, Some(problem))
            }
        };
        let same = former.as_ref().is_some_and(|former| former.labels == labels && former.selector == selector);
        let generation = former.as_ref().map_or(0, |former| former.generation);
        let targets = match former {
            Some(former) if same => former.targets,
            Some(_) | None => self.those(|target| selector.as_ref().is_some_and(|by| target.is_labelled(by))),
        };
        self.locations.insert(name, Location { labels, selector, problem, targets, generation });
        self.news.locations |= !same;
    }

    pub(super) fn delete_location(&mut self, name: &str) {
        self.news.locations |= self.locations.remove(name).is_some();
    }

    pub(super) fn targets_of<'n>(&self, locations: impl IntoIterator<Item = &'n str>) -> RoaringBitmap {
        let known = locations.into_iter().filter_map(|name| self.locations.get(name));
        known.fold(RoaringBitmap::new(), |all, location| all | &location.targets)
    }

    fn those(&self, are: impl Fn(&Target) -> bool) -> RoaringBitmap {
        self.targets.iter().filter(|(_, target)| are(target)).map(|(index, _)| *index).collect()
    }
}

/// What a [`ReachRule`] selects, kept up to date target by target.
#[derive(Debug, Default)]
pub(super) struct Reach {
    locations: Vec<Arc<str>>,
    /// By the selectors over targets.
    direct: RoaringBitmap,
    /// Whether the rule was resolved at all.
    fresh: bool,
}

impl Reach {
    /// To be called when the rule is another.
    pub(super) fn forget(&mut self) {
        self.fresh = false;
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    pub(super) fn refresh(&mut self, rule: &ReachRule, inventory: &Inventory, news: &News) -> RoaringBitmap {
        let selected = |target: &Target| rule.targets.iter().any(|by| target.is_selected_by(by));
        if self.fresh {
            for index in &news.targets {
                set(&mut self.direct, index, inventory.targets.get(&index).is_some_and(selected));
            }
        } else {
            self.direct = inventory.those(selected);
        }
        if news.locations || !self.fresh {
            let selected = |location: &Location| rule.locations.iter().any(|by| by.matches(&location.labels));
            let locations = inventory.locations.iter().filter(|(_, location)| selected(location));
            self.locations = locations.map(|(name, _)| name.clone()).collect();
        }
        self.fresh = true;
        self.targets(inventory)
    }

    /// What the rule selected when it was last refreshed.
    pub(super) fn targets(&self, inventory: &Inventory) -> RoaringBitmap {
        inventory.targets_of(self.locations.iter().map(|name| &**name)) | &self.direct
    }

    /// The Locations that the rule selected then.
    pub(super) fn locations(&self) -> &[Arc<str>] {
        &self.locations
    }
}

pub(super) fn set(bits: &mut RoaringBitmap, index: u32, value: bool) {
    if value {
        bits.insert(index);
    } else {
        bits.remove(index);
    }
}
