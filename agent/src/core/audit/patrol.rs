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
//! That goes for what both lists show as older than it was seen, too: then the cluster was set back. What is suspect,
//! [`judgement`](super::judgement) says, and what becomes of a finding, [`findings`](super::findings). Nothing is ever deleted for
//! what a list says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::wire::v1::Progress;
use tideline_common::{EntryState, GroupKind, Monotonic, ObjectKey};

use super::judgement::{Finding, Judgement};
use crate::core::interface::effect::{Effect, Effects, ListId, PatrolTally, Timer};
use crate::core::jitter::Jitter;
use crate::core::model::Model;
use crate::core::model::kinds::View;
use crate::core::model::seen::Seen;
use crate::core::work::in_flight::{ReadFor, SeenVersion};
use crate::core::work::queue::Work;

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
    /// The list that was begun last.
    last: ListId,
    tally: PatrolTally,
}

/// What the patrol sees of the core, and what it acts by.
#[derive(Debug)]
pub(in crate::core) struct PatrolContext<'a> {
    pub(in crate::core) now: Monotonic,
    /// Between two patrols, about.
    pub(in crate::core) period: Duration,
    pub(in crate::core) model: &'a mut Model,
    pub(in crate::core) work: &'a mut Work,
    pub(in crate::core) jitter: &'a mut Jitter,
    pub(in crate::core) out: &'a mut Effects,
}

/// What was suspect in both lists.
#[derive(Debug)]
pub(super) struct Confirmed {
    pub(super) finding: Finding,
    /// As the second list shows it; none if it is not there.
    pub(super) listed: Option<Seen>,
    /// Everything of its kind had been listed before the first list.
    pub(super) kind_was_listed: bool,
    /// It is as it was before what had been seen: the cluster was set back.
    pub(super) set_back: bool,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    /// Everything is listed, kind by kind.
    First(Listing),
    Pause(Suspects),
    /// The kinds of the suspects are listed once more.
    Second(Listing),
    /// What was found is being corrected: these objects are not yet.
    Mending(BTreeSet<ObjectKey>),
}

type Suspects = BTreeMap<ObjectKey, Suspicion>;

/// One round of lists.
#[derive(Debug, Default)]
struct Listing {
    /// The list under way, and its kind.
    list: ListId,
    kind: Option<GroupKind>,
    /// Kinds that are still to be listed, each with the version by which it is.
    open: VecDeque<(GroupKind, Arc<str>)>,
    suspects: Suspects,
    /// Found in the second list, and to be corrected.
    mending: BTreeSet<ObjectKey>,
}

/// What the first list has shown of a suspect.
#[derive(Clone, Debug)]
struct Suspicion {
    /// The version in the list, if it was listed.
    version: Option<Arc<str>>,
    /// Everything of its kind was listed before that.
    kind_was_listed: bool,
    /// What was seen by then.
    seen: Option<SeenVersion>,
}

impl Patrol {
    /// Schedules the next patrol, and ends one that has nothing left to do.
    pub(super) fn goes_on(&mut self, context: PatrolContext<'_>) {
        match &self.stage {
            Stage::Mending(keys) if keys.is_empty() => self.end(context),
            Stage::Idle if self.at.is_none() => {
                // The first comes sooner, at a random time, so that agents that were started together do not patrol together.
                let wait = context.jitter.half(1, context.period, context.period);
                self.next_step(context.now + wait, context.out);
            }
            Stage::Idle | Stage::First(_) | Stage::Pause(_) | Stage::Second(_) | Stage::Mending(_) => {}
        }
    }

    /// It is time for its next step.
    pub(super) fn due(&mut self, context: PatrolContext<'_>) {
        self.at = None;
        match std::mem::take(&mut self.stage) {
            Stage::Idle => {
                self.tally = PatrolTally::default();
                self.stage = Stage::First(Listing::of(patrolled(context.model), Suspects::new()));
                self.next_list(context);
            }
            Stage::Pause(suspects) => {
                let kinds: BTreeSet<GroupKind> = suspects.keys().map(|key| key.kind.clone()).collect();
                let open = patrolled(context.model).into_iter().filter(|(kind, _)| kinds.contains(kind));
                self.stage = Stage::Second(Listing::of(open, suspects));
                self.next_list(context);
            }
            Stage::Mending(_) => self.end(context),
            listing @ (Stage::First(_) | Stage::Second(_)) => self.stage = listing,
        }
    }

    fn next_step(&mut self, at: Monotonic, out: &mut Effects) {
        self.at = Some(at);
        out.push(Effect::SetTimer { timer: Timer::Patrol, at });
    }

    /// Lists the next kind, or ends this round of lists.
    pub(super) fn next_list(&mut self, context: PatrolContext<'_>) {
        let second = self.is_second();
        loop {
            let id = ListId(self.last.0 + 1);
            let Some(listing) = self.listing() else { return };
            let Some((kind, version)) = listing.open.pop_front() else { break };
            listing.kind = Some(kind.clone());
            listing.list = id;
            self.last = id;
            if context.model.kinds.view_of(&kind) != View::Missing {
                return context.out.push(Effect::ListMetadata { id, kind, version });
            }
            // There is nothing to list, and that has been reported. Whether it is not served for good, so that what was restored
            // is gone, no list tells.
            if !second {
                self.count_failing(context.model, &kind);
                for key in context.model.restored.of_kind(&kind) {
                    context.work.read(key, ReadFor::Write);
                }
            }
        }
        match std::mem::take(&mut self.stage) {
            Stage::First(listing) if listing.suspects.is_empty() => self.end(context),
            Stage::First(listing) => {
                self.stage = Stage::Pause(listing.suspects);
                self.next_step(context.now + STRIKE_AFTER, context.out);
            }
            Stage::Second(listing) => {
                self.stage = Stage::Mending(listing.mending);
                self.next_step(context.now + MENDING_MAX, context.out);
            }
            other @ (Stage::Idle | Stage::Pause(_) | Stage::Mending(_)) => self.stage = other,
        }
    }

    fn end(&mut self, context: PatrolContext<'_>) {
        let PatrolContext { now, period, model, work: _, jitter, out } = context;
        self.stage = Stage::Idle;
        self.tally.held += model.removals.values().filter(|removal| removal.is_held()).count() as u64;
        out.push(Effect::Patrolled(self.tally));
        // A tenth sooner or later.
        let wait = period * 9 / 10 + jitter.full(1, period / 5, period / 5);
        self.next_step(now + wait, out);
    }

    /// Whether this is the list that is under way.
    pub(super) fn lists(&mut self, list: ListId) -> bool {
        self.listing().is_some_and(|listing| listing.list == list)
    }

    /// The list under way has ended: which kind it was of, if it is the one.
    pub(super) fn take_listed_kind(&mut self, list: ListId) -> Option<GroupKind> {
        self.listing().filter(|listing| listing.list == list)?.kind.take()
    }

    /// A kind could not be listed: nothing follows.
    pub(super) fn list_failed(&mut self, model: &Model, kind: &GroupKind) {
        let second = self.is_second();
        if let Some(listing) = self.listing() {
            listing.suspects.retain(|key, _| key.kind != *kind);
        }
        if !second {
            let (applied, withheld) = count_assigned(model, kind);
            self.tally.unknown += applied;
            self.tally.withheld += withheld;
        }
    }

    fn count_failing(&mut self, model: &Model, kind: &GroupKind) {
        let (applied, withheld) = count_assigned(model, kind);
        self.tally.checked += applied;
        self.tally.failing += applied;
        self.tally.withheld += withheld;
    }

    /// Takes what was judged of an object that was listed, or is not there, and returns what is suspect for the second time.
    /// `listed` is what the list says of it if something is the matter.
    pub(super) fn judged(
        &mut self,
        model: &Model,
        key: &ObjectKey,
        listed: Option<Seen>,
        judgement: Judgement,
    ) -> Option<Confirmed> {
        match &mut self.stage {
            Stage::First(listing) => {
                count(&mut self.tally, model.desired.get(key).is_some(), judgement);
                if matches!(judgement, Judgement::Suspect(_)) && listing.suspects.len() < SUSPECTS_MAX {
                    let version = listed.map(|listed| listed.resource_version);
                    let kind_was_listed = model.restored.has_listed(&key.kind);
                    let object = model.objects.get(key);
                    let seen = object.and_then(|object| object.seen().map(SeenVersion::from));
                    listing.suspects.insert(key.clone(), Suspicion { version, kind_was_listed, seen });
                }
                None
            }
            Stage::Second(listing) => {
                let suspicion = listing.suspects.remove(key)?;
                let Judgement::Suspect(finding) = judgement else { return None };
                self.found(model, key, suspicion, listed, finding)
            }
            Stage::Idle | Stage::Pause(_) | Stage::Mending(_) => None,
        }
    }

    /// The second strike.
    fn found(
        &mut self,
        model: &Model,
        key: &ObjectKey,
        suspicion: Suspicion,
        listed: Option<Seen>,
        finding: Finding,
    ) -> Option<Confirmed> {
        let Suspicion { version, kind_was_listed, seen } = suspicion;
        // The second list was asked for long after that was seen, and is not late.
        let set_back = seen.as_ref().zip(listed.as_ref()).is_some_and(|(seen, now)| seen.is_after(now));
        match finding {
            Finding::Missing => self.tally.missing += 1,
            Finding::Drifted | Finding::Differs => self.tally.drifted += 1,
            Finding::Unassigned => self.tally.unassigned += 1,
            Finding::Foreign => self.tally.foreign += 1,
            Finding::Unseen => {
                // Its status may change all the time: only what the watch has not shown since the first list counts.
                let object = model.objects.get(key);
                let seen = object.as_ref().and_then(|object| object.seen());
                if let (Some(seen), Some(first)) = (seen, &version)
                    && !seen.is_before(first)
                    && !set_back
                {
                    return None;
                }
                self.tally.unseen += 1;
            }
        }
        Some(Confirmed { finding, listed, kind_was_listed, set_back })
    }

    /// This was found, and is going to be corrected.
    pub(super) fn mends(&mut self, key: &ObjectKey) {
        if let Some(listing) = self.listing() {
            listing.mending.insert(key.clone());
        }
    }

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

/// Counts what the first list shows. What is suspect counts once it is found.
fn count(tally: &mut PatrolTally, assigned: bool, judgement: Judgement) {
    tally.checked += u64::from(assigned && judgement != Judgement::Withheld);
    match judgement {
        Judgement::Nothing | Judgement::Busy | Judgement::Suspect(_) => {}
        Judgement::Withheld => tally.withheld += 1,
        Judgement::Failing => tally.failing += 1,
        Judgement::Held | Judgement::TooMany => tally.held += 1,
        Judgement::Foreign => tally.foreign += 1,
    }
}

/// The kinds that are assigned, and those of which an object may have been restored.
fn patrolled(model: &Model) -> BTreeMap<GroupKind, Arc<str>> {
    model.restored.kinds().chain(model.kinds.needed()).collect()
}

/// Assigned objects of a kind: those to be applied, and the others.
fn count_assigned(model: &Model, kind: &GroupKind) -> (u64, u64) {
    let entries = model.keys_of(kind);
    let entries = entries.iter().filter_map(|key| model.desired.get(key));
    entries.fold((0, 0), |(applied, withheld), entry| match entry.state {
        EntryState::Apply => (applied + 1, withheld),
        EntryState::Hold(_) | EntryState::Withheld(_) => (applied, withheld + 1),
    })
}

#[cfg(test)]
mod tests;
