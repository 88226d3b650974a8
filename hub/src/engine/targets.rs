use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{ClusterFacts, Decommission};
use tideline_common::{InstanceId, Monotonic, Reason, TargetId, Uid};

use crate::link::core::HolderRecord;
use crate::link::exchange::Silences;
use crate::placement::Target;

/// What the inventory says of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// The SyncTarget's name.
    pub name: String,
    /// The key its agent signs with.
    pub key: VerifyingKey,
    /// The cluster it enrolled from.
    pub cluster: Option<Uid>,
    /// Whether it goes out of service.
    pub decommission: Decommission,
    /// Which of several agents with its identity a person wants to hold it, and in what words that was said.
    pub accepted: Option<(InstanceId, String)>,
    /// In which words a person lets run what may have run there before history was lost.
    pub released: Option<String>,
    /// The deleted target whose agent it takes over.
    pub adopts: Option<TargetId>,
    /// Fields that say something else than by default, and have no effect yet.
    pub without_effect: Vec<&'static str>,
}

/// What is known of one target besides its set and its reports.
#[derive(Clone, Debug)]
pub struct TargetOutline {
    pub record: TargetRecord,
    pub facts: ClusterFacts,
    pub contact: Contact,
    /// What a person should know of it, until this hub restarts.
    pub problems: BTreeSet<Reason>,
}

/// What this process heard of a target last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contact {
    #[default]
    Never,
    /// Its own view of its cluster is complete and current.
    InSync,
    OutOfSync,
    /// Nothing within its deadline.
    Silent,
}

/// All targets of the inventory.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    known: BTreeMap<TargetId, TargetOutline>,
    /// What the SyncTarget of each is called, also of one that has no agent.
    names: BTreeMap<TargetId, String>,
    /// Who held each target last, whether or not the inventory shows it yet.
    holders: BTreeMap<TargetId, HolderRecord>,
    /// When the agent of each was heard from last, served or not.
    asked: BTreeMap<TargetId, Monotonic>,
    /// How often each fell silent, served or not.
    silences: BTreeMap<TargetId, Silences>,
    /// Those that are to leave service and how, whether or not an agent may speak for them at the moment.
    leaving: BTreeMap<TargetId, Decommission>,
    /// Seen, and not told to placement yet: they have no index.
    awaited: BTreeMap<TargetId, Target>,
    /// There, and not readable in this run yet.
    never_read: BTreeSet<TargetId>,
    /// There, and not readable now: nobody knows whether they are to leave service.
    unreadable_now: BTreeSet<TargetId>,
    /// The names of SyncTargets that are there and of which nothing is known, not even which targets they are.
    unknown: BTreeSet<String>,
    /// Those that were not seen, and may be one of these.
    perhaps_unknown: BTreeSet<TargetId>,
    /// While the inventory is read: what was seen of it. None when it is known whole.
    listing: Option<BTreeSet<TargetId>>,
    /// It was read to the end, and placement was not told so yet.
    listed: bool,
}

impl Targets {
    pub(super) fn new(holders: BTreeMap<TargetId, HolderRecord>) -> Self {
        Self { holders, listing: Some(BTreeSet::new()), ..Self::default() }
    }

    pub(super) fn begin_listing(&mut self) {
        self.listing = Some(BTreeSet::new());
        self.listed = false;
        self.unknown.clear();
        self.perhaps_unknown.clear();
    }

    /// One is there that may be any of those whose name nobody knows.
    pub(super) fn saw_unknown(&mut self, name: &str) {
        self.unknown.insert(name.to_owned());
    }

    /// Whether one is there that may be any of those whose name nobody knows.
    pub(super) fn any_is_unknown(&self) -> bool {
        !self.unknown.is_empty()
    }

    /// This one was not seen, and may be one of those.
    pub(super) fn is_perhaps_unknown(&mut self, target: TargetId) {
        self.perhaps_unknown.insert(target);
    }

    /// None of this name is there of which nobody knows which it is. Says which targets there is none for any more.
    pub(super) fn not_unknown(&mut self, name: &str) -> BTreeSet<TargetId> {
        if self.unknown.remove(name) && self.unknown.is_empty() {
            return std::mem::take(&mut self.perhaps_unknown);
        }
        BTreeSet::new()
    }

    /// Ends a listing, and says which of `all` are not there any more.
    pub(super) fn end_listing(&mut self, all: &BTreeSet<TargetId>) -> BTreeSet<TargetId> {
        let Some(seen) = self.listing.take() else { return BTreeSet::new() };
        self.listed = true;
        self.unreadable_now.retain(|target| seen.contains(target));
        all - &seen
    }

    /// Whether placement is to be told, now and once, that it knows every target.
    pub(super) fn take_complete(&mut self) -> bool {
        self.awaited.is_empty() && self.never_read.is_empty() && std::mem::take(&mut self.listed)
    }

    /// It is there, readable or not.
    fn is_there(&mut self, target: TargetId) {
        if let Some(seen) = &mut self.listing {
            seen.insert(target);
        }
    }

    /// It is there, and what it says now cannot be read.
    pub(super) fn unreadable(&mut self, target: TargetId) {
        self.is_there(target);
        self.unreadable_now.insert(target);
    }

    pub(super) fn is_unreadable(&self, target: TargetId) -> bool {
        self.unreadable_now.contains(&target)
    }

    /// Placement does not know every target before this one can be read.
    pub(super) fn wait_for(&mut self, target: TargetId) {
        self.never_read.insert(target);
    }

    pub(super) fn awaited(&mut self, target: Target) {
        self.is_there(target.id);
        self.never_read.remove(&target.id);
        self.unreadable_now.remove(&target.id);
        if target.decommission == Decommission::No {
            self.leaving.remove(&target.id);
        } else {
            self.leaving.insert(target.id, target.decommission);
        }
        self.awaited.insert(target.id, target);
    }

    pub(super) fn placed(&mut self, target: TargetId) -> Option<Target> {
        self.awaited.remove(&target)
    }

    /// Whether the inventory was read to the end: a target that is not here is none.
    pub fn is_known(&self) -> bool {
        self.listing.is_none()
    }

    pub fn get(&self, target: TargetId) -> Option<&TargetOutline> {
        self.known.get(&target)
    }

    pub fn iter(&self) -> impl Iterator<Item = (TargetId, &TargetOutline)> {
        self.known.iter().map(|(id, outline)| (*id, outline))
    }

    /// The same from one on, which may be there no more.
    pub(super) fn iter_from(&self, first: Option<TargetId>) -> impl Iterator<Item = (TargetId, &TargetOutline)> {
        let first = first.map_or(Bound::Unbounded, Bound::Included);
        self.known.range((first, Bound::Unbounded)).map(|(id, outline)| (*id, outline))
    }

    /// Those that are to leave service and how, also where no agent has a key for them.
    pub fn leaving(&self) -> &BTreeMap<TargetId, Decommission> {
        &self.leaving
    }

    /// Those that may have been told to leave service by now, as far as anybody knows.
    pub(super) fn perhaps_leaving(&self) -> BTreeSet<TargetId> {
        self.leaving.keys().chain(&self.unreadable_now).copied().collect()
    }

    /// Who held it last.
    pub(super) fn holder(&self, target: TargetId) -> HolderRecord {
        self.holders.get(&target).cloned().unwrap_or_default()
    }

    pub(super) fn seen(&mut self, target: TargetId, record: TargetRecord) {
        let outline = self.known.entry(target).or_insert_with(|| TargetOutline {
            record: record.clone(),
            facts: ClusterFacts::default(),
            contact: Contact::Never,
            problems: BTreeSet::new(),
        });
        self.names.insert(target, record.name.clone());
        outline.record = record;
    }

    /// Says whether that is news.
    pub(super) fn named(&mut self, target: TargetId, name: &str) -> bool {
        self.perhaps_unknown.remove(&target);
        let known = self.names.insert(target, name.to_owned());
        known.as_deref() != Some(name)
    }

    pub(super) fn name(&self, target: TargetId) -> Option<&String> {
        self.names.get(&target)
    }

    pub(super) fn gone(&mut self, target: TargetId) {
        self.known.remove(&target);
        self.names.remove(&target);
        self.awaited.remove(&target);
        self.never_read.remove(&target);
        self.perhaps_unknown.remove(&target);
        self.unreadable_now.remove(&target);
        self.leaving.remove(&target);
    }

    /// No agent may speak for it any more. What was placed stays so.
    pub(super) fn closed(&mut self, target: TargetId) {
        self.known.remove(&target);
    }

    pub(super) fn held(&mut self, target: TargetId, record: HolderRecord) {
        self.holders.insert(target, record);
    }

    pub(super) fn asked(&mut self, target: TargetId, now: Monotonic) {
        self.asked.insert(target, now);
    }

    /// When its agent was heard from last, in this run.
    pub fn last_asked(&self, target: TargetId) -> Option<Monotonic> {
        self.asked.get(&target).copied()
    }

    /// What is heard of it from now on is to have been said from now on.
    pub(super) fn fell_silent(&mut self, target: TargetId) {
        self.silences.entry(target).or_default().0 += 1;
    }

    /// How often it fell silent or was closed, in this run.
    pub fn silences(&self, target: TargetId) -> Silences {
        self.silences.get(&target).copied().unwrap_or_default()
    }

    pub(super) fn facts(&mut self, target: TargetId, facts: ClusterFacts) {
        self.with(target, |outline| outline.facts = facts);
    }

    pub(super) fn problem(&mut self, target: TargetId, problem: Reason) {
        self.with(target, |outline| {
            outline.problems.insert(problem);
        });
    }

    pub(super) fn solved(&mut self, target: TargetId, problem: Reason) {
        self.with(target, |outline| {
            outline.problems.remove(&problem);
        });
    }

    /// Says whether that is news.
    pub(super) fn heard(&mut self, target: TargetId, contact: Contact) -> bool {
        let Some(outline) = self.known.get_mut(&target) else { return false };
        let former = std::mem::replace(&mut outline.contact, contact);
        former != contact
    }

    fn with(&mut self, target: TargetId, change: impl FnOnce(&mut TargetOutline)) {
        if let Some(outline) = self.known.get_mut(&target) {
            change(outline);
        }
    }
}
