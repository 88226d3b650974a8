//! The patrol: now and then lists the metadata of everything, whatever the watches say.
//!
//! ```text
//!  resting ──period──▶ first look ──nothing suspect──────────────────────────────▶ resting
//!                        kind by kind       │ suspects                               ▲
//!                                           ▼                                        │
//!                                         pause ──▶ second look ──▶ mending ─────────┘
//!                                                   suspects only   until all is mended, or its time is over
//! ```
//!
//! Two strikes: what is suspect in both lists is a finding, is counted and acted on; what is suspect once was in transition.
//! That goes for what both lists show as older than it was seen, too: then the cluster was set back. A finding enters the core
//! as if a watch had shown it, so the patrol decides nothing by itself: it asks
//! [`plan`](crate::core::decide::plan) what it would do about the listed object, and anything but nothing is suspect. Nothing
//! is ever deleted for what a list says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::wire::v1::Progress;
use tideline_common::{Entry, EntryState, GroupKind, Monotonic, ObjectKey, Ownership, Reason};

use crate::core::decide::plan;
use crate::core::decide::plan::{Decision, NoAction, Situation};
use crate::core::interface::effect::{Effect, Effects, ListId, PatrolTally, Timer};
use crate::core::interface::event::ListFailure;
use crate::core::interface::observed::ListedItem;
use crate::core::model::Model;
use crate::core::model::kinds::View;
use crate::core::model::object::{Me, Object};
use crate::core::model::seen::Seen;
use crate::core::work::in_flight::{ReadFor, SeenVersion};
use crate::core::{Core, Phase};

/// Between the two lists: longer than a watch event or an operation takes.
const STRIKE_AFTER: Duration = Duration::from_secs(10);
/// Time for corrections of the findings before the patrol ends without them.
const MENDING_MAX: Duration = Duration::from_mins(2);
/// Suspects kept from the first list to the second, of some 300 bytes each: 3 MiB. The others are left to the next patrol.
const SUSPECTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(in crate::core) struct Patrol {
    /// When the next step is due, as the timer was set.
    at: Option<Monotonic>,
    stage: Stage,
    last: ListId,
    tally: PatrolTally,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    First(Listing),
    Pause(Suspects),
    Second(Listing),
    Mending(BTreeSet<ObjectKey>),
}

type Suspects = BTreeMap<ObjectKey, Suspicion>;

#[derive(Debug, Default)]
struct Listing {
    list: ListId,
    kind: Option<GroupKind>,
    open: VecDeque<(GroupKind, Arc<str>)>,
    suspects: Suspects,
    /// Found in the second list, and to be corrected.
    mending: BTreeSet<ObjectKey>,
}

#[derive(Clone, Debug)]
struct Suspicion {
    /// The version in the list, if it was listed.
    version: Option<Arc<str>>,
    /// Everything of its kind was listed before that.
    listed: bool,
    /// What was seen by then.
    seen: Option<SeenVersion>,
}

/// The state of an object, as the patrol judges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matter {
    Nothing,
    /// Something is under way: what was seen proves nothing.
    Busy,
    Withheld,
    Failing,
    Held,
    /// Like what is held, and beyond what an account is kept of.
    TooMany,
    /// Known and reported.
    Foreign,
    Suspect(Finding),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Missing,
    /// To be corrected.
    Drifted,
    /// To be reported only.
    Differs,
    Orphaned,
    Foreign,
    Unseen,
}

impl Patrol {
    /// An entry was tried, with or without success.
    pub(in crate::core) fn concluded(&mut self, key: &ObjectKey, progress: Progress) {
        let mending = match &mut self.stage {
            Stage::Second(listing) => &mut listing.mending,
            Stage::Mending(keys) => keys,
            Stage::Idle | Stage::First(_) | Stage::Pause(_) => return,
        };
        if progress != Progress::Pending && mending.remove(key) {
            self.tally.repaired += u64::from(progress == Progress::Applied);
        }
    }

    fn listing(&mut self) -> Option<&mut Listing> {
        match &mut self.stage {
            Stage::First(listing) | Stage::Second(listing) => Some(listing),
            Stage::Idle | Stage::Pause(_) | Stage::Mending(_) => None,
        }
    }

    #[cfg(test)]
    pub(in crate::core) fn pauses(&self) -> bool {
        matches!(self.stage, Stage::Pause(_))
    }

    fn is_second(&self) -> bool {
        matches!(self.stage, Stage::Second(_))
    }
}

impl Listing {
    fn of(open: impl IntoIterator<Item = (GroupKind, Arc<str>)>, suspects: Suspects) -> Self {
        Self { open: open.into_iter().collect(), suspects, ..Self::default() }
    }
}

impl Core {
    /// Schedules the next patrol, and ends one that has nothing left to do.
    pub(in crate::core) fn patrol(&mut self, now: Monotonic, out: &mut Effects) {
        if self.phase != Phase::Running || self.sync.sets.current().is_none() || self.model.me().is_none() {
            return;
        }
        if matches!(&self.audit.patrol.stage, Stage::Mending(keys) if keys.is_empty()) {
            self.patrol_ends(now, out);
        } else if matches!(self.audit.patrol.stage, Stage::Idle) && self.audit.patrol.at.is_none() {
            // The first comes sooner, at a random time, so that agents that were started together do not patrol together.
            let wait = self.jitter.half(1, self.config.patrol, self.config.patrol);
            self.patrol_next(now + wait, out);
        }
    }

    fn patrol_next(&mut self, at: Monotonic, out: &mut Effects) {
        self.audit.patrol.at = Some(at);
        out.push(Effect::SetTimer { timer: Timer::Patrol, at });
    }

    pub(in crate::core) fn patrol_due(&mut self, now: Monotonic, out: &mut Effects) {
        if self.phase != Phase::Running {
            return;
        }
        self.audit.patrol.at = None;
        match std::mem::take(&mut self.audit.patrol.stage) {
            Stage::Idle => {
                self.audit.patrol.tally = PatrolTally::default();
                self.audit.patrol.stage = Stage::First(Listing::of(self.patrolled(), Suspects::new()));
                self.next_list(now, out);
            }
            Stage::Pause(suspects) => {
                let kinds: BTreeSet<GroupKind> = suspects.keys().map(|key| key.kind.clone()).collect();
                let open = self.patrolled().into_iter().filter(|(kind, _)| kinds.contains(kind));
                self.audit.patrol.stage = Stage::Second(Listing::of(open, suspects));
                self.next_list(now, out);
            }
            Stage::Mending(_) => self.patrol_ends(now, out),
            listing @ (Stage::First(_) | Stage::Second(_)) => self.audit.patrol.stage = listing,
        }
    }

    /// The kinds that are assigned, and those of which an object may have been restored.
    fn patrolled(&self) -> BTreeMap<GroupKind, Arc<str>> {
        self.model.restored.kinds().chain(self.model.kinds.needed()).collect()
    }

    /// Lists the next kind, or ends this round of lists.
    fn next_list(&mut self, now: Monotonic, out: &mut Effects) {
        let second = self.audit.patrol.is_second();
        loop {
            let id = ListId(self.audit.patrol.last.0 + 1);
            let Some(listing) = self.audit.patrol.listing() else { return };
            let Some((kind, version)) = listing.open.pop_front() else { break };
            listing.kind = Some(kind.clone());
            listing.list = id;
            self.audit.patrol.last = id;
            if self.model.kinds.view_of(&kind) != View::Missing {
                return out.push(Effect::ListMetadata { id, kind, version });
            }
            // There is nothing to list, and that has been reported. Whether it is not served for good, so that what was restored
            // is gone, no list tells.
            if !second {
                self.count_failing(&kind);
                for key in self.model.restored.of_kind(&kind) {
                    self.work.read(key, ReadFor::Write);
                }
            }
        }
        match std::mem::take(&mut self.audit.patrol.stage) {
            Stage::First(listing) if listing.suspects.is_empty() => self.patrol_ends(now, out),
            Stage::First(listing) => {
                self.audit.patrol.stage = Stage::Pause(listing.suspects);
                self.patrol_next(now + STRIKE_AFTER, out);
            }
            Stage::Second(listing) => {
                self.audit.patrol.stage = Stage::Mending(listing.mending);
                self.patrol_next(now + MENDING_MAX, out);
            }
            other @ (Stage::Idle | Stage::Pause(_) | Stage::Mending(_)) => self.audit.patrol.stage = other,
        }
    }

    fn patrol_ends(&mut self, now: Monotonic, out: &mut Effects) {
        self.audit.patrol.stage = Stage::Idle;
        let held = self.model.removals.values().filter(|removal| removal.is_held());
        self.audit.patrol.tally.held += held.count() as u64;
        out.push(Effect::Patrolled(self.audit.patrol.tally));
        // A tenth sooner or later.
        let period = self.config.patrol;
        let wait = period * 9 / 10 + self.jitter.full(1, period / 5, period / 5);
        self.patrol_next(now + wait, out);
    }

    /// A page of a list.
    pub(in crate::core) fn list_page(&mut self, now: Monotonic, list: ListId, objects: &[ListedItem]) {
        let Some(me) = self.model.me() else { return };
        if self.audit.patrol.listing().is_none_or(|listing| listing.list != list) {
            return;
        }
        for item in objects {
            if !item.labelled {
                self.copy_listed(me, list, item);
                continue;
            }
            let assigned = self.model.desired.get(&item.key);
            if assigned.is_some_and(|entry| self.model.objects.listed_again(list, item, entry)) {
                self.judge(now, &item.key, None, Matter::Nothing);
                continue;
            }
            if let Some(object) = self.model.objects.get_mut(&item.key) {
                object.listed_in = list;
            }
            let listed = Seen::of_listed(item);
            // Nothing follows from an item that cannot be read.
            let matter = listed.as_ref().map_or(Matter::Busy, |seen| matter(&self.model, me, &item.key, Some(seen)));
            if matter == Matter::TooMany {
                self.audit.unexplained.listed_in(&item.key, list);
            }
            self.judge(now, &item.key, listed, matter);
            self.model.compact_if_many();
        }
    }

    /// It carries the label of another target. What has a key of ours is reported with the entry of that key.
    fn copy_listed(&mut self, me: Me, list: ListId, item: &ListedItem) {
        let key = &item.key;
        let mark = item.details().and_then(|details| details.mark.as_deref());
        let ownership = mark.map(|mark| mark.ownership(me, key));
        if ownership == Some(Ownership::Copy) && self.model.desired.get(key).is_none() {
            self.audit.copies.listed_in(key, list);
        }
    }

    /// Every page was seen: what was on none of them does not exist.
    pub(in crate::core) fn list_ended(
        &mut self,
        now: Monotonic,
        list: ListId,
        result: &Result<(), ListFailure>,
        out: &mut Effects,
    ) {
        let Some(me) = self.model.me() else { return };
        let Some(listing) = self.audit.patrol.listing().filter(|listing| listing.list == list) else { return };
        let Some(kind) = listing.kind.take() else { return };
        if result.is_ok() {
            self.audit.copies.list_ended(&kind, list);
            self.audit.unexplained.list_ended(&kind, list);
            self.model.restored.listed(&kind);
            for key in self.model.keys_of(&kind) {
                if self.model.objects.last_listed_in(&key).is_some_and(|last| last != list) {
                    let matter = matter(&self.model, me, &key, None);
                    self.judge(now, &key, None, matter);
                }
            }
        } else {
            if result.as_ref().is_err_and(|failure| failure.reason == Reason::KindMissing) {
                self.model.restored.not_served(&kind);
            }
            listing.suspects.retain(|key, _| key.kind != kind);
            if !self.audit.patrol.is_second() {
                self.count_unknown(&kind);
            }
        }
        self.next_list(now, out);
    }

    /// Judges a listed object. `listed` is what the list says of it if something is the matter.
    fn judge(&mut self, now: Monotonic, key: &ObjectKey, listed: Option<Seen>, matter: Matter) {
        let assigned = self.model.desired.get(key).is_some();
        let tally = &mut self.audit.patrol.tally;
        match &mut self.audit.patrol.stage {
            Stage::First(listing) => {
                tally.checked += u64::from(assigned && matter != Matter::Withheld);
                match matter {
                    Matter::Nothing | Matter::Busy => {}
                    Matter::Withheld => tally.withheld += 1,
                    Matter::Failing => tally.failing += 1,
                    Matter::Held | Matter::TooMany => tally.held += 1,
                    Matter::Foreign => tally.foreign += 1,
                    Matter::Suspect(_) => {
                        if listing.suspects.len() < SUSPECTS_MAX {
                            let version = listed.map(|listed| listed.resource_version);
                            let listed = self.model.restored.has_listed(&key.kind);
                            let object = self.model.objects.get(key);
                            let seen = object.and_then(|object| object.seen().map(SeenVersion::from));
                            listing.suspects.insert(key.clone(), Suspicion { version, listed, seen });
                        }
                    }
                }
            }
            Stage::Second(listing) => {
                let Some(suspicion) = listing.suspects.remove(key) else { return };
                if let Matter::Suspect(finding) = matter {
                    self.found(now, key, &suspicion, listed, finding);
                }
            }
            Stage::Idle | Stage::Pause(_) | Stage::Mending(_) => {}
        }
    }

    /// The second strike.
    fn found(
        &mut self,
        now: Monotonic,
        key: &ObjectKey,
        suspicion: &Suspicion,
        listed: Option<Seen>,
        finding: Finding,
    ) {
        // The second list was asked for long after that was seen, and is not late.
        let set_back = suspicion.seen.as_ref().zip(listed.as_ref()).is_some_and(|(seen, now)| seen.is_after(now));
        let tally = &mut self.audit.patrol.tally;
        match finding {
            Finding::Missing => tally.missing += 1,
            Finding::Drifted | Finding::Differs => tally.drifted += 1,
            Finding::Orphaned => tally.orphaned += 1,
            Finding::Foreign => tally.foreign += 1,
            Finding::Unseen => {
                // Its status may change all the time: only what the watch has not shown since the first list counts.
                let object = self.model.objects.get(key);
                let seen = object.as_ref().and_then(|object| object.seen());
                if let (Some(seen), Some(first)) = (seen, &suspicion.version)
                    && !seen.is_before(first)
                    && !set_back
                {
                    return;
                }
                tally.unseen += 1;
            }
        }
        let is_there = listed.is_some();
        // What came meanwhile may have taken the last place.
        if is_there && !self.model.objects.contains_key(key) && !self.model.has_room_for_unexplained() {
            return;
        }
        if let Some(listed) = listed {
            self.may_have_come_back(key, &listed.uid, listed.mark.as_deref(), suspicion.listed);
            self.take_listed(key, listed);
        } else {
            // Missing by its label at least. The creation finds out whether it only lost that.
            if let Some(object) = self.model.objects.get_mut(key) {
                object.doubt();
            }
            self.guards.gates.update(&self.model, key);
        }
        if finding == Finding::Unseen && is_there && (set_back || self.model.kinds.has_status(&key.kind)) {
            self.work.read(key.clone(), ReadFor::Status);
        }
        self.dirty(key, now);
        self.enqueue(key);
        if matches!(finding, Finding::Missing | Finding::Drifted)
            && let Some(listing) = self.audit.patrol.listing()
        {
            listing.mending.insert(key.clone());
        }
        self.forget_if_empty(key);
    }

    fn take_listed(&mut self, key: &ObjectKey, mut seen: Seen) {
        let object = self.model.objects.at(key);
        match object.seen() {
            Some(former) if seen.is_older_than(former) => object.set_back(),
            Some(former) if former.uid == seen.uid => seen.observed_generation = former.observed_generation,
            Some(_) | None => object.unsee(),
        }
        object.presence.list(seen);
    }

    fn count_failing(&mut self, kind: &GroupKind) {
        let (applied, withheld) = self.count_assigned(kind);
        self.audit.patrol.tally.checked += applied;
        self.audit.patrol.tally.failing += applied;
        self.audit.patrol.tally.withheld += withheld;
    }

    fn count_unknown(&mut self, kind: &GroupKind) {
        let (applied, withheld) = self.count_assigned(kind);
        self.audit.patrol.tally.unknown += applied;
        self.audit.patrol.tally.withheld += withheld;
    }

    /// Assigned objects of a kind: those to be applied, and the others.
    fn count_assigned(&self, kind: &GroupKind) -> (u64, u64) {
        let entries = self.model.keys_of(kind);
        let entries = entries.iter().filter_map(|key| self.model.desired.get(key));
        entries.fold((0, 0), |(applied, withheld), entry| match entry.state {
            EntryState::Apply => (applied + 1, withheld),
            EntryState::Hold(_) | EntryState::Withheld(_) => (applied, withheld + 1),
        })
    }
}

/// Whether something is under way, or planned, that the patrol must not interfere with.
fn is_busy(object: &Object) -> bool {
    object.work.is_busy() || object.unrecorded > 0
}

/// The state of an object that is listed like this, or is not listed.
fn matter(model: &Model, me: Me, key: &ObjectKey, listed: Option<&Seen>) -> Matter {
    let object = model.objects.get(key);
    match (model.desired.get(key), object.as_deref(), listed) {
        (Some(entry), Some(object), listed) => matter_of_assigned(model, me, entry, object, listed),
        // What is not assigned is gone, and the watch did not tell.
        (None, Some(object), None) if object.seen().is_some() && !is_busy(object) => Matter::Suspect(Finding::Unseen),
        // Every entry has an object.
        (Some(_), None, _) | (None, _, None) => Matter::Nothing,
        (None, object, Some(listed)) => matter_of_other(model, me, key, object, listed),
    }
}

fn matter_of_assigned(model: &Model, me: Me, entry: &Entry, object: &Object, listed: Option<&Seen>) -> Matter {
    if entry.state != EntryState::Apply || model.kinds.view(&entry.key) == View::NamespaceExcluded {
        return Matter::Withheld;
    }
    // It waits for another object to be gone, and the watch may have missed just that.
    let in_the_way =
        |reason| matches!(reason, Reason::Conflict | Reason::Copy | Reason::Unmanaged | Reason::AgentTooOld);
    let awaited = object.seen().filter(|seen| match object.outcome.reason {
        Some(Reason::Finalizing) => true,
        // A list shows only of objects with our label that they are gone.
        Some(reason) => in_the_way(reason) && seen.labelled,
        None => false,
    });
    if let Some(leaving) = awaited
        && !object.work.is_in_flight()
        && listed.is_none_or(|listed| listed.uid != leaving.uid)
    {
        return Matter::Suspect(Finding::Unseen);
    }
    match object.outcome.progress {
        Progress::Applied => {}
        _ if object.outcome.reason.is_some_and(in_the_way) => return Matter::Foreign,
        Progress::Failed | Progress::Pending if object.outcome.reason.is_some() => return Matter::Failing,
        Progress::Pending
        | Progress::Failed
        | Progress::Withheld
        | Progress::Deleting
        | Progress::DeletionHeld
        | Progress::Unknown => return Matter::Busy,
    }
    let labelled = object.seen().is_some_and(|seen| seen.labelled);
    if listed.is_none() && entry.implied && !labelled {
        // It is not ours, so that no list of ours shows whether it exists.
        return Matter::Nothing;
    }
    let overtaken = |listed: &Seen| object.seen().is_some_and(|seen| listed.is_older_than(seen));
    if is_busy(object) {
        return Matter::Busy;
    }
    // The list is late, or the cluster was set back.
    if listed.is_some_and(overtaken) {
        return Matter::Suspect(Finding::Unseen);
    }
    let policy = model.policies.get(&entry.policy).map(|policy| &**policy);
    let situation = Situation::of(model, me, entry, policy, object, listed, View::Current);
    match plan::plan(situation) {
        Decision::Nothing(NoAction::Drifted) => Matter::Suspect(Finding::Differs),
        Decision::Nothing(NoAction::Unchanged | NoAction::Terminal)
        | Decision::Record { .. }
        | Decision::UpdateRecord => {
            let told = match (object.seen(), listed) {
                (Some(seen), Some(listed)) => !seen.is_older_than(listed) && seen.uid == listed.uid,
                (_, None) => true,
                (None, Some(_)) => false,
            };
            if told { Matter::Nothing } else { Matter::Suspect(Finding::Unseen) }
        }
        Decision::Create | Decision::RunAnew(_) | Decision::Withhold(Reason::Vanished) => {
            Matter::Suspect(Finding::Missing)
        }
        Decision::Apply { .. } | Decision::TransferOwnership { .. } => Matter::Suspect(Finding::Drifted),
        Decision::Wait(_) | Decision::Verify { .. } => Matter::Busy,
        Decision::Withhold(_) => Matter::Withheld,
        Decision::Skip(..) => Matter::Suspect(Finding::Foreign),
        Decision::Fail(..) => Matter::Failing,
    }
}

/// It carries our label, and is not assigned.
fn matter_of_other(model: &Model, me: Me, key: &ObjectKey, object: Option<&Object>, listed: &Seen) -> Matter {
    let mut removals = model.removals_of(key).peekable();
    if removals.peek().is_some() {
        // Held removals are counted apart.
        return Matter::Busy;
    }
    let known = object.is_some_and(|object| object.seen().is_some_and(|seen| seen.uid == listed.uid));
    let recorded = object.is_some_and(|object| object.record.as_ref().is_some_and(|it| it.uid == listed.uid));
    match listed.mark.as_ref().map(|mark| mark.ownership(me, key)) {
        _ if listed.deleting || object.is_some_and(is_busy) => Matter::Busy,
        Some(Ownership::Ours) if known => Matter::Held,
        Some(Ownership::Ours) if object.is_none() && !model.has_room_for_unexplained() => Matter::TooMany,
        Some(Ownership::Ours) => Matter::Suspect(Finding::Orphaned),
        Some(Ownership::Copy | Ownership::Foreign) | None if recorded => Matter::Held,
        Some(Ownership::Copy | Ownership::Foreign) | None => Matter::Foreign,
    }
}

#[cfg(test)]
mod tests;
