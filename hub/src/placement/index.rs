use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tideline_api::Selector;
use tideline_common::{ApplyPolicy, Monotonic, ObjectKey, SpaceName, Uid};

use super::choice::Choice;
use super::form::Form;
use super::inventory::{Inventory, Target};
use super::listing::Listing;
use super::object::{State, Wanted};
use super::rule::{PlacementRule, SpaceRule, implied_policy};
use super::settling::Settle;
use super::space::Space;
use super::wants::Wants;
use super::{Assignment, Change, GroupResource, PlacementId, SourceId};
use crate::clean::{Labels, Refusal, Source, implied_namespace};

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
    draining: Option<Draining>,
    /// What was drained to its end before something was told.
    drained: Option<Vec<Change>>,
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
            draining: None,
            drained: None,
        }
    }

    /// Takes over what the ledger has, before anything else is told.
    pub fn restore(&mut self, assignments: impl IntoIterator<Item = Assignment>) {
        self.finish_drain();
        for assignment in assignments {
            let space = assignment.id.space.clone();
            self.space(&space).restore(assignment);
        }
    }

    /// Takes over what a Placement chose, before anything else is told.
    pub fn restore_choice(&mut self, placement: &PlacementId, chosen: RoaringBitmap) {
        self.finish_drain();
        match placement {
            PlacementId::Named { space, name } => {
                self.space(space).choices.insert(name.clone(), Choice::new(chosen));
            }
            PlacementId::Former { space, uid } => {
                self.space(space).former_choices.insert(uid.clone(), chosen);
            }
        }
    }

    /// `index` is the ledger's.
    pub fn apply_target(&mut self, index: u32, target: Target) {
        if self.inventory.targets.get(&index) == Some(&target) {
            self.inventory.target_list.saw(index);
            return;
        }
        self.finish_drain();
        self.note_all();
        self.inventory.apply_target(index, target);
    }

    /// The target is there, and cannot be read: what is known of it stands. Returns whether anything is.
    pub fn target_unreadable(&mut self, index: u32) -> bool {
        self.finish_drain();
        self.inventory.target_list.saw(index);
        self.inventory.targets.contains_key(&index)
    }

    /// The SyncTarget is gone: what was assigned to it is so no more, at once.
    pub fn delete_target(&mut self, index: u32) {
        self.finish_drain();
        self.note_all();
        self.inventory.delete_target(index);
    }

    /// Told with its labels and its selector. An unreadable Location leaves both as they were.
    pub fn apply_location(&mut self, name: &str, read: Result<(Labels, Selector), String>) {
        self.finish_drain();
        self.note_all();
        self.inventory.apply_location(name, read);
    }

    pub fn delete_location(&mut self, name: &str) {
        self.finish_drain();
        self.note_all();
        self.inventory.delete_location(name);
    }

    pub fn apply_space(&mut self, name: &SpaceName, rule: SpaceRule) {
        self.finish_drain();
        self.note(name);
        self.space_list.saw(name.clone());
        let space = self.space(name);
        if space.rule.as_deref() != Some(&rule) {
            space.rule = Some(Arc::new(rule));
            space.reach.forget();
            space.reaches_otherwise = true;
            space.all_dirty();
        }
    }

    /// The Space is there, and cannot be read: what it was allowed stays so.
    pub fn space_unreadable(&mut self, name: &SpaceName) {
        self.finish_drain();
        self.space_list.saw(name.clone());
    }

    /// The Space is gone from the root space. What was assigned from it stays as it is.
    pub fn delete_space(&mut self, name: &SpaceName) {
        self.finish_drain();
        self.note(name);
        self.space(name).lose_rule();
    }

    /// An unreadable Placement leaves its last good form in force.
    pub fn apply_placement(&mut self, space: &SpaceName, name: &str, uid: Uid, rule: Result<PlacementRule, String>) {
        // As it comes back whenever its status was written.
        let known = self.spaces.get_mut(space);
        if known.is_some_and(|space| space.saw_placement_again(name, &uid, &rule)) {
            return;
        }
        self.finish_drain();
        self.note(space);
        self.space(space).apply_placement(name, uid, rule);
    }

    /// The Placement is there, and nothing of it can be read but its name.
    pub fn placement_unreadable(&mut self, space: &SpaceName, name: &str, why: String) {
        self.finish_drain();
        self.note(space);
        self.space(space).placement_unreadable(name, why);
    }

    pub fn delete_placement(&mut self, space: &SpaceName, name: &str) {
        self.finish_drain();
        self.note(space);
        self.space(space).delete_placement(name);
    }

    /// An object as it is in its space. Namespaces are told like all others. Returns whether that may change anything.
    pub fn apply(&mut self, space: &SpaceName, resource: &GroupResource, source: Source) -> bool {
        // As it comes back whenever its status was written.
        if self.spaces.get_mut(space).is_some_and(|space| space.saw_again(resource, &source)) {
            return false;
        }
        self.finish_drain();
        self.note(space);
        self.space(space).apply(resource, source);
        true
    }

    /// An object is there, and nothing of it can be read but where it is: what is known of it stands.
    pub fn unreadable(&mut self, space: &SpaceName, resource: &GroupResource, key: &ObjectKey, refusal: Refusal) {
        self.finish_drain();
        self.note(space);
        self.space(space).unreadable(resource, key, refusal);
    }

    /// The object is gone from its space.
    pub fn delete(&mut self, space: &SpaceName, resource: &GroupResource, key: &ObjectKey) {
        self.finish_drain();
        self.note(space);
        self.space(space).delete(resource, key);
    }

    /// A source and its place, and what version its resource was last seen in, in the words that are kept anyway.
    pub fn known_as(&self, source: &SourceId, place: &ObjectKey) -> Option<(&SourceId, &ObjectKey, &Arc<str>)> {
        self.spaces.get(&source.space)?.known_as(source, place)
    }

    /// Which object is there, as far as that is known.
    pub fn source_at(&self, space: &SpaceName, resource: &GroupResource, key: &ObjectKey) -> Option<&SourceId> {
        self.spaces.get(space)?.source_at(resource, key)
    }

    /// Whether all that is in a space was read to the end in this run.
    pub fn is_read(&self, space: &SpaceName) -> bool {
        let Some(space) = self.spaces.get(space) else { return false };
        let objects = &space.listings;
        space.placement_list.is_whole() && !objects.is_empty() && objects.values().all(Listing::is_whole)
    }

    /// Something that a person has put into a space, if there is anything: a Placement first. Of these namespaces, that it has
    /// them says nothing.
    pub fn example_in(&self, space: &SpaceName, own_namespaces: &[&str]) -> Option<String> {
        let space = self.spaces.get(space)?;
        if let Some(name) = space.placements.keys().next().or(space.unknown_placements.first()) {
            return Some(format!("Placement {name}"));
        }
        let objects = space.objects.iter().flatten().filter(|object| !matches!(object.state, State::NeverPlaced));
        let mut keys = objects.map(|object| &object.key);
        keys.find(|key| !key.kind.is("", "Namespace") || !own_namespaces.contains(&&*key.name)).map(ToString::to_string)
    }

    /// The part is unreadable, or is read from the beginning: what is known of it stands, until [`Index::listed`].
    pub fn reset(&mut self, part: Part<'_>) {
        self.finish_drain();
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
        self.finish_drain();
        match part {
            Part::Targets | Part::Locations | Part::Spaces => self.note_all(),
            Part::Placements(space) | Part::Objects(space, _) => self.note(space),
        }
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

    /// The part was read to the end, but for what has a key that cannot be read: what was not told may be that. What it may
    /// decide about stays as it is, and all else goes on.
    pub fn unlisted(&mut self, part: Part<'_>) {
        self.finish_drain();
        match part {
            Part::Targets => self.inventory.target_list.finish_in_part(),
            Part::Locations => self.inventory.location_list.finish_in_part(),
            Part::Spaces => self.space_list.finish_in_part(),
            Part::Placements(space) => self.space(space).placement_list.finish_in_part(),
            Part::Objects(space, resource) => {
                self.space(space).listings.entry(resource.clone()).or_default().finish_in_part();
            }
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
        self.drain_some(now, usize::MAX).unwrap_or_default()
    }

    /// The same in parts of `most` objects: none while there is more to do. All of it is as the index was when it began, for
    /// whatever is told in between has it done to its end first.
    pub fn drain_some(&mut self, now: Monotonic, most: usize) -> Option<Vec<Change>> {
        if let Some(drained) = self.drained.take() {
            return Some(drained);
        }
        let mut drain = self.draining.take().unwrap_or_else(|| self.begin_drain(now));
        let mut room = most;
        let mut pass = Pass {
            wants: Wants { inventory: &self.inventory, direct_policy: &self.direct_policy },
            implied_policy: &self.implied_policy,
            settle: Settle::For(self.settle),
            now: drain.now,
            deadlines: &mut self.deadlines,
        };
        while let Some(name) = drain.spaces.last() {
            if let Some(space) = self.spaces.get_mut(name) {
                let unreadable = self.frozen || space.is_unreadable();
                pass.settle = if unreadable { Settle::Frozen } else { Settle::For(self.settle) };
                let resolves = drain.known && space.is_known();
                if !std::mem::replace(&mut drain.begun, true) {
                    drain.changes.append(&mut space.ready_changes);
                    if resolves {
                        pass.begin(space);
                    }
                }
                if resolves && !pass.resolve(space, &mut room, &mut drain.resolved) {
                    self.draining = Some(drain);
                    return None;
                }
                // Removals first: what is gone leaves its place to what was made again.
                let grace = self.settle.min(DELETION_GRACE);
                drain.changes.extend(space.leave(drain.now, grace, resolves, |deadline| {
                    pass.deadlines.entry(deadline).or_default();
                }));
                drain.changes.append(&mut drain.resolved);
                drain.changes.append(&mut space.ready_changes);
            }
            drain.spaces.pop();
            drain.begun = false;
        }
        Some(drain.changes)
    }

    fn begin_drain(&mut self, now: Monotonic) -> Draining {
        self.wake(now);
        let frozen = self.inventory.unreadable();
        let thawed = self.frozen && !frozen;
        self.frozen = frozen;
        self.spread_news();
        if thawed {
            self.spaces.values_mut().for_each(Space::all_dirty);
        }
        let known = self.inventory.listed() && self.space_list.complete();
        let spaces = self.spaces.keys().rev().cloned().collect();
        Draining { now, known, spaces, begun: false, changes: Vec::new(), resolved: Vec::new() }
    }

    /// Whether a drain was begun that was not handed out yet: what the index says of itself is of two moments.
    pub fn is_draining(&self) -> bool {
        self.draining.is_some() || self.drained.is_some()
    }

    /// Whether a drain was done to its end because something was told: what it hands out says nothing of that.
    pub fn is_late(&self) -> bool {
        self.drained.is_some()
    }

    /// Before anything is told: does to its end what was begun, for that is judged whole, by what was known then.
    fn finish_drain(&mut self) {
        if let Some(now) = self.draining.as_ref().map(|draining| draining.now) {
            self.drained = self.drain_some(now, usize::MAX);
        }
    }

    /// Before anything of a space changes: notes by which policies its objects are kept until then, for what is taken away
    /// leaves by the policy that was in force last, whether anybody was told of that or not.
    fn note(&mut self, name: &SpaceName) {
        self.spread_news();
        let known = self.inventory.listed() && self.space_list.complete();
        let wants = Wants { inventory: &self.inventory, direct_policy: &self.direct_policy };
        if let Some(space) = self.spaces.get_mut(name).filter(|space| known && space.is_known()) {
            wants.note(space);
        }
    }

    /// The same, before anything changes that concerns all spaces: where something was said since it was noted last. Who is
    /// selected says nothing of how objects are kept, so the labels of ten thousand targets may change for the price of one.
    fn note_all(&mut self) {
        if !self.inventory.listed() || !self.space_list.complete() {
            return;
        }
        self.spread_news();
        let wants = Wants { inventory: &self.inventory, direct_policy: &self.direct_policy };
        for space in self.spaces.values_mut().filter(|space| space.has_unsaid() && space.is_known()) {
            wants.note(space);
        }
    }

    fn spread_news(&mut self) {
        let news = std::mem::take(&mut self.inventory.news);
        if !news.is_empty() {
            self.spaces.values_mut().for_each(|space| space.news.add(&news));
        }
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

/// A drain that was begun.
#[derive(Clone, Debug)]
struct Draining {
    now: Monotonic,
    /// Whether all that decides about targets was read.
    known: bool,
    /// What is left of it, in reverse, and whether the last of that was begun.
    spaces: Vec<SpaceName>,
    begun: bool,
    changes: Vec<Change>,
    /// Of the space that was begun.
    resolved: Vec<Change>,
}

/// One drain.
struct Pass<'a> {
    wants: Wants<'a>,
    implied_policy: &'a Arc<ApplyPolicy>,
    settle: Settle,
    now: Monotonic,
    deadlines: &'a mut BTreeMap<Monotonic, BTreeSet<(SpaceName, u32)>>,
}

impl<'a> Pass<'a> {
    /// Takes up what is marked.
    fn begin(&mut self, space: &mut Space) {
        self.wants.refresh_where(space);
        self.wants.settle_choices(space, self.settle, self.now, |deadline| {
            self.deadlines.entry(deadline).or_default();
        });
        self.wants.hear_of_leaving(space);
        space.unsaid.clear();
        let is_namespace = |index: &u32| space.object(*index).is_some_and(|object| object.key.kind.is("", "Namespace"));
        let (later, first) = space.dirty.iter().partition(is_namespace);
        (space.dirty, space.unresolved) = (later, first);
    }

    /// Resolves what was taken up, as far as there is room: first all objects in namespaces, then the namespaces that they
    /// imply. Returns whether that was all.
    fn resolve(&mut self, space: &mut Space, room: &mut usize, changes: &mut Vec<Change>) -> bool {
        while let Some(index) = space.unresolved.min() {
            let Some(less) = room.checked_sub(1) else { return false };
            *room = less;
            space.unresolved.remove_smallest(1);
            self.resolve_object(space, index, changes);
        }
        for index in std::mem::take(&mut space.dirty) {
            self.resolve_object(space, index, changes);
        }
        space.resolved();
        true
    }

    fn resolve_object(&mut self, space: &mut Space, index: u32, changes: &mut Vec<Change>) {
        space.refresh_problems(index);
        let wanted = self.wanted(space, index);
        self.wants.hear(space, index, &wanted.explicit);
        let is_unlabelled = space.object(index).is_some_and(|object| space.is_unlabelled(&object.key.namespace));
        let (settle, now) = (if is_unlabelled { Settle::Frozen } else { self.settle }, self.now);
        let Some(object) = space.object_mut(index) else { return };
        let (assignment, deadline) = object.resolve(wanted, settle, now);
        if let Some(deadline) = deadline {
            let place = (object.id.space.clone(), index);
            self.deadlines.entry(deadline).or_default().insert(place);
        }
        let restated = std::mem::take(&mut object.restated);
        if assignment == object.emitted && !restated {
            return;
        }
        if restated && object.leaves_any(assignment.as_ref()) {
            changes.extend(object.emitted.clone().map(|said| Change::Assign(Box::new(said))));
        }
        changes.push(match &assignment {
            Some(assignment) => Change::Assign(Box::new(assignment.clone())),
            None => Change::Remove(object.id.clone()),
        });
        let before = object.emitted_by_destination();
        object.emitted = assignment;
        let after = object.emitted_by_destination();
        let namespace = object.key.namespace.clone();
        space.holders_changed(&namespace, &before, &after);
    }

    fn wanted(&self, space: &Space, index: u32) -> Wanted<'a> {
        let inventory = self.wants.inventory;
        let mut wanted = Wanted {
            explicit: BTreeMap::new(),
            implied: BTreeMap::new(),
            impersonate: space.rule.as_ref().and_then(|rule| rule.impersonate.clone()),
            existing: &inventory.existing,
            schedulable: &inventory.schedulable,
            held: RoaringBitmap::new(),
        };
        let Some(object) = space.object(index) else { return wanted };
        let outbound = match &object.state {
            State::Readable { outbound, .. } => Some(outbound),
            State::NeverPlaced => None,
            State::Restored => return wanted,
            State::Unreadable(_) => {
                wanted.explicit = self.wants.policies(space, object);
                return wanted;
            }
        };
        if let Some(outbound) = outbound {
            (wanted.explicit, wanted.held) = self.wants.explicit(space, object, outbound);
        }
        if object.key.kind.is("", "Namespace")
            && let Some(namespace) = space.namespaces.get(&object.key.name)
        {
            // Of those that every cluster has of its own only what is called otherwise is brought along.
            let implied = namespace.implied.iter().filter(|(at, _)| outbound.is_some() || at.is_some());
            for (destination, holders) in implied {
                let name = destination.as_deref().unwrap_or(&object.key.name);
                let input = implied_namespace(name, &object.labels);
                let form = Form { policy: self.implied_policy.clone(), input, targets: holders.targets().clone() };
                wanted.implied.insert(destination.clone(), form);
            }
        }
        wanted
    }
}
