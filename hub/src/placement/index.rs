use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tideline_api::Selector;
use tideline_common::{ApplyPolicy, Monotonic, ObjectKey, SpaceName, Uid};

use super::inventory::{Inventory, Target, choose};
use super::listing::Listing;
use super::object::{Form, Object, Settle, State, Wanted, merged};
use super::rule::{PlacementRule, SpaceRule};
use super::space::{Space, either, implied_policy};
use super::{Assignment, Change, Destination, GroupResource, PlacementId};
use crate::clean::{Labels, Outbound, Source, implied_namespace, rendered};

/// How long a removal waits that a change of Placement, Location or labels causes.
pub const SETTLE: Duration = Duration::from_secs(10);

/// How long a source that is gone is waited for. `kubectl replace --force`, and whatever else deletes and creates at
/// once, makes it again well within that; its copies are then handed over, keeping their UIDs.
pub const DELETION_GRACE: Duration = Duration::from_secs(2);

/// Something that is listed and then watched. Completeness is judged for each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Targets,
    Locations,
    Spaces,
    Placements(&'a SpaceName),
    Objects(&'a SpaceName, &'a GroupResource),
}

/// What × where, kept up to date change by change.
///
/// Level-triggered: told how things are, in any order and however often, it says ([`Index::drain`]) how assignments are to
/// be. It reads no clock and does no I/O. Nothing of a space is resolved before the inventory, the space's own rule, its
/// Placements and its namespaces were each read to the end once; until then what the ledger has stands.
#[derive(Debug)]
pub struct Index {
    settle: Duration,
    pub(super) inventory: Inventory,
    space_list: Listing<SpaceName>,
    pub(super) spaces: BTreeMap<SpaceName, Space>,
    implied_policy: Arc<ApplyPolicy>,
    direct_policy: Arc<ApplyPolicy>,
    deadlines: BTreeMap<Monotonic, BTreeSet<(SpaceName, u32)>>,
    /// Whether a Location was unreadable when objects were last resolved.
    frozen: bool,
}

impl Default for Index {
    fn default() -> Self {
        Self::new(SETTLE)
    }
}

impl Index {
    pub fn new(settle: Duration) -> Self {
        Self {
            settle,
            inventory: Inventory::default(),
            space_list: Listing::default(),
            spaces: BTreeMap::new(),
            implied_policy: Arc::new(implied_policy()),
            direct_policy: Arc::new(ApplyPolicy::default()),
            deadlines: BTreeMap::new(),
            frozen: false,
        }
    }

    /// Takes over what the ledger has, before anything else is told.
    pub fn restore(&mut self, assignments: impl IntoIterator<Item = Assignment>) {
        for assignment in assignments {
            let space = assignment.id.space.clone();
            self.space(&space).restore(assignment);
        }
    }

    /// Takes over what a Placement chose, before anything else is told.
    pub fn restore_choice(&mut self, placement: &PlacementId, chosen: RoaringBitmap) {
        self.space(&placement.space).choices.insert(placement.uid.clone(), chosen);
    }

    /// `index` is the ledger's.
    pub fn apply_target(&mut self, index: u32, target: Target) {
        self.inventory.apply_target(index, target);
    }

    /// The SyncTarget is gone: what was assigned to it is so no more, at once.
    pub fn delete_target(&mut self, index: u32) {
        self.inventory.delete_target(index);
    }

    /// An unreadable selector leaves the last good one in force.
    pub fn apply_location(&mut self, name: &str, labels: Labels, selector: Result<Selector, String>) {
        self.inventory.apply_location(name, labels, selector);
    }

    pub fn delete_location(&mut self, name: &str) {
        self.inventory.delete_location(name);
    }

    pub fn apply_space(&mut self, name: &SpaceName, rule: SpaceRule) {
        self.space_list.saw(name.clone());
        let space = self.space(name);
        if space.rule.as_deref() != Some(&rule) {
            space.rule = Some(Arc::new(rule));
            space.reach.forget();
            space.all_dirty();
        }
    }

    /// The Space is gone from the root space. What was assigned from it stays as it is.
    pub fn delete_space(&mut self, name: &SpaceName) {
        self.space(name).rule = None;
    }

    /// An unreadable Placement leaves its last good form in force.
    pub fn apply_placement(&mut self, space: &SpaceName, name: &str, uid: Uid, rule: Result<PlacementRule, String>) {
        self.space(space).apply_placement(name, uid, rule);
    }

    pub fn delete_placement(&mut self, space: &SpaceName, name: &str) {
        self.space(space).delete_placement(name);
    }

    /// An object as it is in its space. Namespaces are told like all others.
    pub fn apply(&mut self, space: &SpaceName, resource: &GroupResource, source: Source) {
        self.space(space).apply(resource, source);
    }

    /// The object is gone from its space.
    pub fn delete(&mut self, space: &SpaceName, resource: &GroupResource, key: &ObjectKey) {
        self.space(space).delete(resource, key);
    }

    /// The part is unreadable, or is read from the beginning: what is known of it stands, until [`Index::listed`].
    pub fn reset(&mut self, part: Part<'_>) {
        match part {
            Part::Targets => self.inventory.target_list.reset(),
            Part::Locations => self.inventory.location_list.reset(),
            Part::Spaces => self.space_list.reset(),
            Part::Placements(space) => self.space(space).placement_list.reset(),
            Part::Objects(space, resource) => self.space(space).reset(resource),
        }
    }

    /// The part was read to the end: what was not told since the reading began is gone.
    ///
    /// To be told also of a resource that a space verifiably no longer has, after a reset.
    pub fn listed(&mut self, part: Part<'_>) {
        match part {
            Part::Targets => {
                let known: Vec<_> = self.inventory.targets.keys().copied().collect();
                for index in self.inventory.target_list.finish(known) {
                    self.inventory.delete_target(index);
                }
            }
            Part::Locations => {
                let known: Vec<_> = self.inventory.locations.keys().cloned().collect();
                for name in self.inventory.location_list.finish(known) {
                    self.inventory.delete_location(&name);
                }
            }
            Part::Spaces => {
                let known: Vec<_> = self.spaces.keys().cloned().collect();
                for name in self.space_list.finish(known) {
                    self.delete_space(&name);
                }
            }
            Part::Placements(space) => self.space(space).placements_listed(),
            Part::Objects(space, resource) => self.space(space).listed(resource),
        }
    }

    /// When to drain even if nothing is told.
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.deadlines.keys().next().copied()
    }

    /// Assignments that end soon unless what is gone comes back.
    pub fn leaving(&self) -> u64 {
        self.spaces.values().map(Space::leaving).sum()
    }

    /// The spaces that are known in the root space.
    pub fn spaces(&self) -> impl Iterator<Item = &SpaceName> {
        self.spaces.iter().filter(|(_, space)| space.rule.is_some()).map(|(name, _)| name)
    }

    /// Everything that is to be otherwise than the ledger was last told. What is returned counts as told.
    pub fn drain(&mut self, now: Monotonic) -> Vec<Change> {
        self.wake(now);
        let frozen = self.inventory.unreadable();
        let thawed = self.frozen && !frozen;
        self.frozen = frozen;
        let news = std::mem::take(&mut self.inventory.news);
        let known = self.inventory.listed() && self.space_list.complete();
        let mut changes = Vec::new();
        let mut pass = Pass {
            inventory: &self.inventory,
            implied_policy: &self.implied_policy,
            direct_policy: &self.direct_policy,
            settle: Settle::For(self.settle),
            now,
            deadlines: &mut self.deadlines,
        };
        for space in self.spaces.values_mut() {
            space.news.add(&news);
            if thawed {
                space.all_dirty();
            }
            changes.append(&mut space.ready_changes);
            let unreadable = frozen || space.is_unreadable();
            pass.settle = if unreadable { Settle::Frozen } else { Settle::For(self.settle) };
            let mut resolved = Vec::new();
            let resolves = known && space.is_known();
            if resolves {
                pass.refresh_where(space);
                pass.resolve(space, &mut resolved);
            }
            // Removals first: what is gone leaves its place to what was made again.
            let grace = self.settle.min(DELETION_GRACE);
            changes.extend(space.leave(now, grace, resolves, |deadline| {
                pass.deadlines.entry(deadline).or_default();
            }));
            changes.append(&mut resolved);
            changes.append(&mut space.ready_changes);
        }
        changes
    }

    /// Marks what has settled.
    fn wake(&mut self, now: Monotonic) {
        let later = self.deadlines.split_off(&(now + Duration::from_millis(1)));
        for (name, index) in std::mem::replace(&mut self.deadlines, later).into_values().flatten() {
            if let Some(space) = self.spaces.get_mut(&name) {
                space.dirty.insert(index);
            }
        }
    }

    fn space(&mut self, name: &SpaceName) -> &mut Space {
        self.spaces.entry(name.clone()).or_insert_with(|| Space::new(name.clone()))
    }
}

/// One drain.
struct Pass<'a> {
    inventory: &'a Inventory,
    implied_policy: &'a Arc<ApplyPolicy>,
    direct_policy: &'a Arc<ApplyPolicy>,
    settle: Settle,
    now: Monotonic,
    deadlines: &'a mut BTreeMap<Monotonic, BTreeSet<(SpaceName, u32)>>,
}

impl Pass<'_> {
    /// Brings the targets of the space's Placements up to date, and marks the objects of those that changed.
    fn refresh_where(&self, space: &mut Space) {
        let news = std::mem::take(&mut space.news);
        let Some(rule) = space.rule.clone() else { return };
        let rule_changed = !space.reach.is_fresh();
        if rule_changed || !news.is_empty() {
            space.allowed = space.reach.refresh(&rule.reach, self.inventory, &news);
            space.dirty |= &space.direct;
        }
        let names: Vec<_> = space.placements.keys().cloned().collect();
        for name in names {
            let Some(placing) = space.placements.get_mut(&name) else { continue };
            let Some(placement) = placing.rule.clone() else { continue };
            if placing.reach.is_fresh() && news.is_empty() && !rule_changed {
                continue;
            }
            let eligible = placing.reach.refresh(&placement.reach, self.inventory, &news) & &space.allowed;
            let uid = placing.uid.clone();
            let nothing = RoaringBitmap::new();
            let chosen = space.choices.get(&uid).unwrap_or(&nothing);
            let (targets, chosen) = match placement.number_of_targets {
                Some(number) => {
                    let chosen = choose(&uid, number, &eligible, chosen, self.inventory);
                    (chosen.clone(), chosen)
                }
                None => (eligible, nothing),
            };
            if targets != placing.targets || !targets.is_disjoint(&news.targets) {
                placing.targets = targets;
                space.dirty |= &placing.objects;
            }
            space.set_choice(&uid, chosen);
        }
    }

    /// Resolves what is marked: first all objects in namespaces, then the namespaces that they imply.
    fn resolve(&mut self, space: &mut Space, changes: &mut Vec<Change>) {
        let is_namespace =
            |space: &Space, index: u32| space.object(index).is_some_and(|object| object.key.kind.is("", "Namespace"));
        let (later, first): (Vec<u32>, Vec<u32>) =
            std::mem::take(&mut space.dirty).into_iter().partition(|index| is_namespace(space, *index));
        for index in first {
            self.resolve_object(space, index, changes);
        }
        let namespaces: BTreeSet<u32> = std::mem::take(&mut space.dirty).into_iter().chain(later).collect();
        for index in namespaces {
            self.resolve_object(space, index, changes);
        }
    }

    fn resolve_object(&mut self, space: &mut Space, index: u32, changes: &mut Vec<Change>) {
        space.refresh_problems(index);
        let wanted = self.wanted(space, index);
        let (settle, now) = (self.settle, self.now);
        let Some(object) = space.object_mut(index) else { return };
        let (assignment, deadline) = object.resolve(wanted, settle, now);
        if let Some(deadline) = deadline {
            let place = (object.id.space.clone(), index);
            self.deadlines.entry(deadline).or_default().insert(place);
        }
        if assignment == object.emitted {
            return;
        }
        changes.push(match &assignment {
            Some(assignment) => Change::Assign(Box::new(assignment.clone())),
            None => Change::Remove(object.id.clone()),
        });
        let before = object.emitted_by_destination();
        object.emitted = assignment;
        let after = object.emitted_by_destination();
        let namespace = object.key.namespace.clone();
        if before.iter().all(|(at, targets)| after.get(at).is_some_and(|after| targets.is_subset(after))) {
            if let Some(known) = space.namespaces.get(&namespace) {
                let implied = either(known.implied.clone(), after);
                space.set_implied(&namespace, implied);
            }
        } else {
            space.refresh_implied(&namespace);
        }
    }

    fn wanted(&self, space: &Space, index: u32) -> Wanted {
        let mut wanted = Wanted {
            explicit: BTreeMap::new(),
            implied: BTreeMap::new(),
            impersonate: space.rule.as_ref().and_then(|rule| rule.impersonate.clone()),
            existing: self.inventory.existing.clone(),
            schedulable: self.inventory.schedulable.clone(),
            held: RoaringBitmap::new(),
        };
        let Some(object) = space.object(index) else { return wanted };
        let outbound = match &object.state {
            State::Readable { outbound, .. } => Some(outbound),
            State::NeverPlaced => None,
            State::Restored | State::Unreadable(_) => return wanted,
        };
        if let Some(outbound) = outbound {
            self.want_explicit(space, object, outbound, &mut wanted);
        }
        if object.key.kind.is("", "Namespace")
            && let Some(namespace) = space.namespaces.get(&object.key.name)
        {
            // Of those that every cluster has of its own only what is called otherwise is brought along.
            let implied = namespace.implied.iter().filter(|(at, _)| outbound.is_some() || at.is_some());
            for (destination, targets) in implied {
                let name = destination.as_deref().unwrap_or(&object.key.name);
                let input = implied_namespace(name, &object.labels);
                let form = Form { policy: self.implied_policy.clone(), input, targets: targets.clone() };
                wanted.implied.insert(destination.clone(), form);
            }
        }
        wanted
    }

    /// What Placements and the annotation want, by destination.
    fn want_explicit(&self, space: &Space, object: &Object, outbound: &Outbound, wanted: &mut Wanted) {
        let Some(rule) = space.rule.as_ref().filter(|rule| rule.allows(&object.key.kind)) else { return };
        let mut wants: BTreeMap<Destination, Vec<Form>> = BTreeMap::new();
        for (name, policy) in &object.matches {
            let Some((placing, placement)) =
                space.placements.get(name).and_then(|placing| Some((placing, placing.rule.as_ref()?)))
            else {
                continue;
            };
            match placement.mapping.destination(&object.key) {
                Ok(destination) => {
                    let input = rendered(&outbound.input, &object.key, &destination, &placement.mapping);
                    let form = Form { policy: policy.clone(), input, targets: placing.targets.clone() };
                    wants.entry(destination).or_default().push(form);
                }
                Err(_) => wanted.held |= &placing.targets,
            }
        }
        let asked = outbound.assigned_locations.iter().filter(|_| rule.annotation_assignment);
        let direct = self.inventory.targets_of(asked.map(String::as_str)) & &space.allowed;
        if !direct.is_empty() {
            let form = Form { policy: self.direct_policy.clone(), input: outbound.input.clone(), targets: direct };
            wants.entry(None).or_default().push(form);
        }
        wanted.explicit = wants.into_iter().map(|(destination, wants)| (destination, merged(wants))).collect();
    }
}
