use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tideline_common::limits::DESIRED_PAGE_BYTES_MAX;
use tideline_common::wire::v1::{ReportedRequest, Terminal, TerminalFact};
use tideline_common::{
    ApplyPolicy, Capability, Digest, Entry, Epoch, ObjectKey, RevisionPoint, SetDigest, TargetId, Tombstone, Uid,
    Unassignment, Version,
};

use super::claim::{Body, Claim, Form};
use super::commit::TargetState;
use super::happened::outlives_assignment;
use super::log::Left;
use super::{Ledger, Slot, SourceView, TargetIndex};
use crate::summary::{Concern, Scope};

/// Part of a target's desired set, or of what changed in it: see [`DesiredRequest`](tideline_common::wire::v1::DesiredRequest).
#[derive(Clone, Debug, PartialEq)]
pub struct PageData {
    /// The version this page was read at.
    pub at: Version,
    /// Where in the history `at` is.
    pub point: RevisionPoint,
    /// Of the whole set at `at`.
    pub digest: Digest,
    /// Entries in the whole set at `at`.
    pub total: usize,
    pub snapshot: bool,
    pub entries: Vec<Arc<Entry>>,
    pub tombstones: Vec<Unassignment>,
    /// Those that `entries` name.
    pub policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
    /// The cursor of the next page; none on the last.
    pub next: Option<ObjectKey>,
}

/// Bytes of a key in a page beside its names: names of fields, a UID, a policy of removal and a revision.
const KEY_BYTES: usize = 200;
/// Bytes of an entry beside its key and the names of its source: names of fields, a space, a UID, two digests, and what it is
/// applied as.
const ENTRY_BYTES: usize = 400;

/// What a page has room for still.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) keys: usize,
    pub(super) bytes: usize,
}

impl Room {
    /// Takes the bytes of one more key, if they fit or it is the first of the page.
    fn takes(&mut self, bytes: usize, page: &PageData) -> bool {
        let fits = page.next.is_none() || bytes <= self.bytes;
        self.bytes = self.bytes.saturating_sub(bytes);
        fits
    }
}

/// One target's desired set as it is now.
#[derive(Clone, Copy, Debug)]
pub struct TargetView<'a> {
    ledger: &'a Ledger,
    index: TargetIndex,
    state: &'a TargetState,
}

impl<'a> TargetView<'a> {
    pub(super) fn new(ledger: &'a Ledger, index: TargetIndex, state: &'a TargetState) -> Self {
        Self { ledger, index, state }
    }

    pub fn id(&self) -> TargetId {
        self.state.id
    }

    pub fn index(&self) -> TargetIndex {
        self.index
    }

    pub fn epoch(&self) -> Epoch {
        self.state.epoch
    }

    pub fn version(&self) -> Version {
        Version { epoch: self.state.epoch, revision: self.state.revision }
    }

    /// Where in the history its revision was made.
    pub fn point(&self) -> RevisionPoint {
        self.ledger.history.point(self.state.revision)
    }

    pub fn digest(&self) -> Digest {
        self.state.digest()
    }

    /// For comparing bucket by bucket.
    pub fn buckets(&self) -> &'a SetDigest {
        &self.state.set
    }

    /// Entries in the set.
    pub fn len(&self) -> usize {
        usize::try_from(self.state.slots.len()).expect("slots are numbered by u32")
    }

    pub fn is_empty(&self) -> bool {
        self.state.slots.is_empty()
    }

    /// The entry at a destination key, as it is told.
    pub fn entry(&self, key: &ObjectKey) -> Option<&'a Arc<Entry>> {
        self.held(key).map(|(_, form)| self.told(form).0)
    }

    /// The source that holds a destination key.
    pub fn source(&self, key: &ObjectKey) -> Option<SourceView<'a>> {
        self.held(key).map(|(claim, _)| SourceView { claim })
    }

    /// What is known to have happened once to what it has at `key`, or may have happened.
    pub fn happened(&self, key: &ObjectKey) -> Option<TerminalFact> {
        let source = &self.held(key)?.0.id.source.uid;
        let fact = self.ledger.happened.get(key)?.get(source)?.at(self.index)?;
        Some(TerminalFact { key: key.clone(), source_uid: source.clone(), fact })
    }

    /// All that happened once there, as it counts: first what is known for longer than the assignment, of what is assigned
    /// before what left, the last to leave first.
    pub fn facts(&self) -> Vec<TerminalFact> {
        let all = self.ledger.happened.iter().flat_map(|(key, there)| there.iter().map(move |it| (key, it)));
        let mut ranked: Vec<_> = all
            .filter_map(|(key, (source, happened))| {
                let fact = happened.at(self.index)?;
                let assigned = self.held(key).is_some_and(|(claim, _)| claim.id.source.uid == *source);
                let rank = (!outlives_assignment(fact), !assigned, Reverse(happened.left));
                Some((rank, TerminalFact { key: key.clone(), source_uid: source.clone(), fact }))
            })
            .collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, fact)| fact).collect()
    }

    /// What a report says happened once, where that is not known yet.
    pub fn news(&self, report: &ReportedRequest) -> impl Iterator<Item = TerminalFact> {
        let standing = report.objects.iter().filter_map(|report| {
            let fact = report.terminal?;
            Some(TerminalFact { key: report.key.clone(), source_uid: report.source_uid.clone(), fact })
        });
        let news = |TerminalFact { key, source_uid, fact }: &TerminalFact| {
            let concerns = match self.concern(key, source_uid) {
                Concern::Assigned => fact.happened(),
                Concern::Leaving => *fact == Terminal::Finished,
                Concern::Nothing => false,
            };
            let known = self.ledger.happened.get(key).and_then(|by_source| by_source.get(source_uid)?.at(self.index));
            concerns && fact.is_news_after(known)
        };
        standing.chain(report.terminal.iter().cloned()).filter(news)
    }

    /// The body that the set names at `key`, if that is still `input`, and is told.
    pub fn body(&self, key: &ObjectKey, input: Digest) -> Option<&'a Arc<Body>> {
        let (_, form) = self.held(key)?;
        let told = Arc::ptr_eq(self.told(form).0, &form.entry);
        Some(&form.body).filter(|body| told && body.input == input)
    }

    /// The destinations at which it has an entry.
    pub fn keys(&self) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        let (ledger, slots) = (self.ledger, self.state.slots.iter());
        slots.map(move |slot| &ledger.slots.get(slot).key)
    }

    /// Every entry as it is told, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.entries_with_policies().map(|(entry, _)| entry)
    }

    /// The same with the policy that each names.
    pub fn entries_with_policies(&self) -> impl Iterator<Item = (&'a Arc<Entry>, &'a Arc<ApplyPolicy>)> + use<'a> {
        let (view, slots) = (*self, self.state.slots.iter());
        let forms = slots.filter_map(move |slot| view.ledger.slots.get(slot).holder(view.index));
        forms.map(move |(_, form)| view.told(form))
    }

    /// Every removal that the target has not confirmed, in key order; not those of places where it has something again.
    pub fn tombstones(&self) -> impl Iterator<Item = Unassignment> + use<'a> {
        let view = *self;
        self.tombstones_after(None).filter(move |unassigned| view.held(&unassigned.tombstone.key).is_none())
    }

    /// Every removal that it has not confirmed, in key order.
    fn tombstones_after(&self, after: Option<&ObjectKey>) -> impl Iterator<Item = Unassignment> + use<'a> {
        let Self { ledger, index, .. } = *self;
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tombstones = ledger.tombstones.places().range_from(after);
        tombstones.filter_map(move |(key, _)| ledger.tombstone_at(index, key))
    }

    /// Whether this is one of them.
    pub fn is_leaving(&self, key: &ObjectKey, source: &Uid) -> bool {
        let tombstones = self.ledger.tombstones.get(key, source);
        tombstones.is_some_and(|tombstones| tombstones.at(self.index).is_some())
    }

    /// Reads at most `limit` keys after `after`, and no more than [`DESIRED_PAGE_BYTES_MAX`]: of the whole set, or of what
    /// changed since `since`.
    ///
    /// None means that no delta can be had from there: another epoch, a revision above the present one, one from before its
    /// agent understood what it does now, or one that the log does not reach back to.
    pub fn page(&self, since: Option<Version>, after: Option<&ObjectKey>, limit: usize) -> Option<PageData> {
        self.page_within(since, after, Room { keys: limit, bytes: DESIRED_PAGE_BYTES_MAX })
    }

    pub(super) fn page_within(
        &self,
        since: Option<Version>,
        after: Option<&ObjectKey>,
        room: Room,
    ) -> Option<PageData> {
        match since {
            None => Some(self.snapshot_page(after, room)),
            Some(since) if since.epoch != self.state.epoch || since.revision > self.state.revision => None,
            Some(since) if since.revision < self.state.floor => None,
            Some(since) => self.delta_page(since, after, room),
        }
    }

    fn snapshot_page(&self, after: Option<&ObjectKey>, mut room: Room) -> PageData {
        let limit = room.keys;
        let slots = self.first_slots(after, limit.saturating_add(1));
        let more = slots.len() > limit;
        let mut page = self.empty_page(true);
        let mut tombstones = self.tombstones_after(after).take(limit + 1).peekable();
        let mut slots = slots.into_iter().take(limit).peekable();
        for _ in 0..limit {
            let removed = tombstones.peek().map(|unassigned| &unassigned.tombstone.key);
            let Some(key) = slots.peek().map(|slot| &slot.key).into_iter().chain(removed).min().cloned() else { break };
            if !room.takes(self.bytes(&page, &key), &page) {
                return page;
            }
            page.tombstones.extend(tombstones.next_if(|unassigned| unassigned.tombstone.key == key));
            if let Some((_, form)) = slots.next_if(|slot| slot.key == key).and_then(|slot| slot.holder(self.index)) {
                page.take(self.told(form));
            }
            page.next = Some(key);
        }
        if !more && slots.peek().is_none() && tombstones.peek().is_none() {
            page.next = None;
        }
        page
    }

    /// Its first slots after a key, in key order, at most so many.
    fn first_slots(&self, after: Option<&ObjectKey>, most: usize) -> Vec<&'a Slot> {
        let (own, all) = (self.state.slots.len(), self.ledger.slots.slots.len() as u64);
        // A walk through the keys of all targets passes so many of them, to find as many of its own.
        let passed = (most as u64).saturating_mul(all) / own.max(1);
        if passed < own
            && let Some(slots) = self.first_slots_by_key(after, most, own)
        {
            return slots;
        }
        let slots = self.state.slots.iter().map(|slot| self.ledger.slots.get(slot));
        let mut slots: Vec<_> = slots.filter(|slot| after.is_none_or(|after| slot.key > *after)).collect();
        if slots.len() > most {
            slots.select_nth_unstable_by(most, |a, b| a.key.cmp(&b.key));
            slots.truncate(most);
        }
        slots.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        slots
    }

    /// The same by a walk through the keys of all targets; none if that passes more than so many of others.
    fn first_slots_by_key(&self, after: Option<&ObjectKey>, most: usize, passed: u64) -> Option<Vec<&'a Slot>> {
        let (mut first, mut others) = (Vec::new(), 0);
        for (_, slot) in self.ledger.slots.by_key.range_from(after.map_or(Bound::Unbounded, Bound::Excluded)) {
            if first.len() == most || others > passed {
                break;
            }
            if self.state.slots.contains(*slot) {
                first.push(self.ledger.slots.get(*slot));
            } else {
                others += 1;
            }
        }
        (others <= passed).then_some(first)
    }

    fn delta_page(&self, since: Version, after: Option<&ObjectKey>, mut room: Room) -> Option<PageData> {
        let mut page = self.empty_page(false);
        if since.revision == self.state.revision {
            return Some(page);
        }
        let changes = self.ledger.log.changes(self.index, since.revision, after, room.keys.saturating_add(1))?;
        let more = changes.len() > room.keys;
        for (key, left) in changes.into_iter().take(room.keys) {
            if !room.takes(self.bytes(&page, key), &page) {
                return Some(page);
            }
            if let Some((_, form)) = self.held(key) {
                page.take(self.told(form));
                page.tombstones.extend(self.ledger.tombstone_at(self.index, key));
            } else if let Some(said_anew) = self.ledger.tombstone_at(self.index, key) {
                page.tombstones.push(said_anew);
            } else if let Some(Left { source, policy, at }) = left {
                let tombstone = Tombstone { key: key.clone(), source: source.clone() };
                page.tombstones.push(tombstone.under(*policy, *at));
            }
            page.next = Some(key.clone());
        }
        if !more {
            page.next = None;
        }
        Some(page)
    }

    /// About what telling of a key adds to a page: its entry, its policy if the page has not told that yet, what happened once
    /// there, and a removal.
    fn bytes(&self, page: &PageData, key: &ObjectKey) -> usize {
        let names = |namespace: &str, name: &str| namespace.len() + name.len();
        let place = KEY_BYTES + key.kind.group.len() + key.kind.kind.len() + names(&key.namespace, &key.name);
        let Some((_, form)) = self.held(key) else { return place };
        let (entry, policy) = self.told(form);
        let is_told = page.policies.contains_key(&entry.policy);
        let policy = if is_told { 0 } else { serde_json::to_vec(&**policy).map_or(0, |json| json.len()) };
        let fact = if self.ledger.happened.contains_key(key) { place } else { 0 };
        place + ENTRY_BYTES + names(&entry.source.namespace, &entry.source.name) + policy + fact
    }

    fn empty_page(&self, snapshot: bool) -> PageData {
        PageData {
            at: self.version(),
            point: self.point(),
            digest: self.digest(),
            total: self.len(),
            snapshot,
            entries: Vec::new(),
            tombstones: Vec::new(),
            policies: BTreeMap::new(),
            next: None,
        }
    }

    /// What is told of a form: the same, or that it is withheld.
    fn told(&self, form: &'a Form) -> (&'a Arc<Entry>, &'a Arc<ApplyPolicy>) {
        match &form.needing {
            Some(needing) if self.ledger.missing_capabilities.lacks(self.index, &needing.needs) => {
                let instead = form.instead(needing);
                (&instead.entry, &instead.policy)
            }
            Some(_) | None => (&form.entry, &form.policy),
        }
    }

    /// How many entries are withheld because its agent does not understand what they need, and what that is.
    pub fn too_old_for(&self) -> (usize, BTreeSet<Capability>) {
        let lacks = self.ledger.missing_capabilities.of(self.index);
        let (mut entries, mut missing) = (0, BTreeSet::new());
        for slot in self.ledger.slots.needing(&lacks) & &*self.state.slots {
            let needing = self.ledger.slots.get(slot).holder(self.index).and_then(|(_, form)| form.needing.as_ref());
            if let Some(needing) = needing.filter(|needing| !needing.needs.is_disjoint(&lacks)) {
                entries += 1;
                missing.extend(needing.needs.intersection(&lacks));
            }
        }
        (entries, missing)
    }

    /// Whether its agent understands this, as far as it has said.
    pub fn understands(&self, capability: Capability) -> bool {
        !self.ledger.missing_capabilities.of(self.index).contains(&capability)
    }

    fn held(&self, key: &ObjectKey) -> Option<(&'a Claim, &'a Form)> {
        super::holder(self.ledger.slots.claims(key), self.index)
    }
}

impl Ledger {
    /// The removal that a target has not confirmed at one place.
    fn tombstone_at(&self, target: TargetIndex, key: &ObjectKey) -> Option<Unassignment> {
        let (source, (policy, at)) =
            self.tombstones.at(key)?.iter().find_map(|(source, tombstones)| Some((source, tombstones.at(target)?)))?;
        Some(Tombstone { key: key.clone(), source: source.clone() }.under(policy, at))
    }
}

impl PageData {
    fn take(&mut self, (entry, policy): (&Arc<Entry>, &Arc<ApplyPolicy>)) {
        self.policies.entry(entry.policy).or_insert_with(|| policy.clone());
        self.entries.push(entry.clone());
    }
}

impl Scope for TargetView<'_> {
    fn assigned(&self) -> usize {
        self.len()
    }

    fn concern(&self, key: &ObjectKey, source: &Uid) -> Concern {
        if self.entry(key).is_some_and(|entry| entry.source.uid == *source) {
            Concern::Assigned
        } else if self.is_leaving(key, source) {
            Concern::Leaving
        } else {
            Concern::Nothing
        }
    }
}
