use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use roaring::RoaringBitmap;
use tideline_common::{Capabilities, Digest, ObjectKey, Revision, TargetId, Tombstone, Uid, Version};

use super::batch::{Batch, Unwritten};
use super::broken;
use super::chunks::CHUNK_BYTES_MAX;
use super::claim::{Body, Claim, ClaimId};
use super::history::{Fresh, Occasion};
use super::missing_capabilities::MissingCapabilities;
use super::removals::{Known, Places};
use super::slot::{Difference, held_continuously, settle};
use super::tombstones::{self, Tombstones};
use super::{BodyUse, Happened, Ledger, SourceView, TargetIndex, first_of, holder, record};
use crate::placement::{Assignment, Change, PlacementId, SourceId};

mod happened;

impl Ledger {
    /// Works out what changes come to, all in one revision. Changes nothing.
    ///
    /// Where one source is changed twice the later change stands. Targets that are not registered are left out.
    pub fn plan(&self, fresh: Fresh, changes: impl IntoIterator<Item = Change>) -> Batch {
        self.plan_within(fresh, changes, u64::MAX)
    }

    /// What a start of the hub writes, before anybody is answered: a new segment of its history.
    pub fn begin_run(&self, fresh: Fresh) -> Batch {
        let mut draft = Draft::new(self, fresh, Occasion::Start);
        draft.broken.divide(self);
        draft.finish(u64::MAX)
    }

    /// The same, if it unassigns no more than `allowance` sources from targets, destination by destination. If more, none
    /// of them is: all else is done, and what nothing wants any more is kept as it is until it is wanted again, another
    /// source wants its place, or a person has approved that it goes ([`Change::Release`], [`Change::Retire`]).
    pub fn plan_within(&self, fresh: Fresh, changes: impl IntoIterator<Item = Change>, allowance: u64) -> Batch {
        let mut draft = Draft::new(self, fresh, Occasion::Other);
        changes.into_iter().for_each(|change| draft.take(change));
        // What was said before history was lost approves nothing; that all is to be let go of, it says still.
        draft.unexplained = draft.broken.leaving(self);
        draft.retired -= &draft.unexplained;
        draft.finish(allowance)
    }
}

/// Bytes by which the record of a claim grows while nothing new is said of its source: two bitmaps of 10,000 targets, and
/// those of its forms where targets are forgotten.
const CLAIM_GROWTH_BYTES: usize = 32 << 10;

/// What becomes of what nothing wants any more.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    Goes,
    IsKept,
}

/// A batch in the making.
struct Draft<'a> {
    ledger: &'a Ledger,
    fresh: Fresh,
    occasion: Occasion,
    next: Revision,
    admissions: u64,
    next_target: TargetIndex,
    /// Registered, as of this batch.
    valid: RoaringBitmap,
    registered: BTreeMap<TargetId, TargetIndex>,
    forgotten: BTreeMap<TargetId, TargetIndex>,
    broken: broken::Draft,
    /// What agents understand, where that changes, and all of it as of this batch.
    understands: BTreeMap<TargetIndex, (TargetId, Capabilities)>,
    missing_capabilities: Cow<'a, MissingCapabilities>,
    choices: BTreeMap<PlacementId, RoaringBitmap>,
    proposals: BTreeMap<ClaimId, Option<Claim>>,
    /// Proposals that later ones replaced, the first of them first: what was said in between, though it was never so.
    replaced: BTreeMap<ClaimId, Vec<Claim>>,
    /// The removals of every key touched.
    tombstones: Places<Tombstones>,
    /// What happened once, at every key touched.
    happened: Places<Happened>,
    news: BTreeMap<ObjectKey, RoaringBitmap>,
    claims: BTreeMap<ClaimId, Option<Arc<Claim>>>,
    slots: Vec<(ObjectKey, Vec<Arc<Claim>>, Difference)>,
    /// By the revision that kept it: what may go by now.
    released: BTreeSet<Revision>,
    /// What goes out of service: whatever leaves it goes.
    retired: RoaringBitmap,
    /// Those of them that keep what is there: whatever leaves them is to be let go of.
    let_go_of: RoaringBitmap,
    /// Those that keep from now on what they were told to delete.
    keeps: RoaringBitmap,
    /// Those that were to go out of service by what was said before history was lost: whatever leaves them is kept.
    unexplained: RoaringBitmap,
    /// Sources that go, and that are kept instead, as many as the targets that have them.
    unassigned: u64,
    kept: u64,
    /// Sources whose claims would be too large to be written.
    too_large: Vec<(SourceId, ObjectKey)>,
}

impl<'a> Draft<'a> {
    fn new(ledger: &'a Ledger, fresh: Fresh, occasion: Occasion) -> Self {
        Self {
            ledger,
            fresh,
            occasion,
            next: ledger.revision.next(),
            admissions: ledger.admissions,
            next_target: ledger.next_target,
            valid: ledger.registered.clone(),
            registered: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            broken: broken::Draft::default(),
            understands: BTreeMap::new(),
            missing_capabilities: Cow::Borrowed(&ledger.missing_capabilities),
            choices: BTreeMap::new(),
            proposals: BTreeMap::new(),
            replaced: BTreeMap::new(),
            tombstones: Places::new(),
            happened: Places::new(),
            news: BTreeMap::new(),
            claims: BTreeMap::new(),
            slots: Vec::new(),
            released: BTreeSet::new(),
            retired: RoaringBitmap::new(),
            let_go_of: RoaringBitmap::new(),
            keeps: RoaringBitmap::new(),
            unexplained: RoaringBitmap::new(),
            unassigned: 0,
            kept: 0,
            too_large: Vec::new(),
        }
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Assign(assignment) => self.assign(&assignment),
            Change::Remove(source) => {
                for id in self.claims_of(&source) {
                    self.propose(id, None);
                }
            }
            Change::Choose { placement, chosen } => {
                self.choices.insert(placement, chosen);
            }
            Change::Register(target) => self.register(target),
            Change::Forget(target) => self.forget(target),
            Change::Confirm(target, accepted, tombstone) => self.confirm(target, accepted, tombstone),
            Change::Overtaken(target, accepted, tombstone) => self.overtaken(target, accepted, tombstone),
            Change::Happened(target, fact) => self.happened(target, fact, false),
            Change::Inherit(target, facts) => facts.into_iter().for_each(|fact| self.happened(target, fact, true)),
            Change::LetRun(target, word) => self.let_run(target, &word),
            Change::Release(revision) => {
                self.released.insert(revision);
            }
            Change::Retire(target, how) => {
                let index = self.ledger.index_of(target);
                self.retired.extend(index);
                self.let_go_of.extend(index.filter(|_| how.keeps()));
            }
            Change::LetGo(target) => self.keeps.extend(self.ledger.index_of(target)),
            Change::Understands(target, capabilities) => self.understands(target, capabilities),
            Change::History(change) => {
                if self.broken.take(self.ledger, change) {
                    self.doubt_what_ran();
                    for key in self.ledger.tombstones.places().keys() {
                        let kept = held_continuously(self.ledger.slots.claims(key));
                        for tombstones in
                            staged(&mut self.tombstones, self.ledger.tombstones.places(), key).values_mut()
                        {
                            tombstones.restrict(&kept);
                        }
                    }
                }
            }
        }
    }

    fn assign(&mut self, assignment: &Assignment) {
        let mut former = self.claims_of(&assignment.id);
        for destination in assignment.targets_by_destination().into_keys() {
            let id = ClaimId { source: assignment.id.clone(), destination };
            former.remove(&id);
            self.claim(id, assignment);
        }
        for id in former {
            self.propose(id, None);
        }
    }

    fn propose(&mut self, id: ClaimId, claim: Option<Claim>) {
        if let Some(Some(former)) = self.proposals.insert(id.clone(), claim) {
            self.replaced.entry(id).or_default().push(former);
        }
    }

    fn claim(&mut self, id: ClaimId, assignment: &Assignment) {
        let former = self.ledger.claims.get(&id);
        let admitted = match (former, self.proposals.get(&id)) {
            (Some(former), _) => former.admitted,
            (None, Some(Some(proposed))) => proposed.admitted,
            (None, _) => {
                self.admissions += 1;
                self.admissions
            }
        };
        let claim = Claim::of(assignment, id.destination.clone(), admitted, former.map(|claim| &**claim));
        self.propose(id, (!claim.forms.is_empty()).then_some(claim));
    }

    /// The claims that a source has, or was to have by a change before.
    fn claims_of(&self, source: &SourceId) -> BTreeSet<ClaimId> {
        let proposed = self.proposals.range(first_of(source)..).map(|(id, _)| id);
        let proposed = proposed.take_while(|id| id.source == *source).cloned();
        self.ledger.claims_of(source).map(|claim| claim.id.clone()).chain(proposed).collect()
    }

    fn register(&mut self, target: TargetId) {
        if self.ledger.target_ids.contains_key(&target) || self.registered.contains_key(&target) {
            return;
        }
        self.registered.insert(target, self.next_target);
        self.valid.insert(self.next_target);
        self.next_target += 1;
    }

    fn forget(&mut self, target: TargetId) {
        // What was accepted of it is known without an index, too.
        self.broken.forget(self.ledger, target);
        let Some(index) = self.ledger.index_of(target) else { return };
        self.forgotten.insert(target, index);
        self.valid.remove(index);
        // Nobody gets its index again: what is known of other targets, too, need not be written for it.
        let remains = |happened: &Happened| happened.at(index).is_none() || happened.is_known_at(&self.valid);
        for (key, _) in self.ledger.happened.iter().filter(|(_, there)| !there.values().all(remains)) {
            let there = staged(&mut self.happened, &self.ledger.happened, key);
            there.values_mut().filter(|happened| !remains(happened)).for_each(|it| *it = Happened::default());
        }
        for (key, by_source) in self.ledger.tombstones.places() {
            if by_source.values().any(|tombstones| tombstones.at(index).is_some()) {
                for tombstones in staged(&mut self.tombstones, self.ledger.tombstones.places(), key).values_mut() {
                    tombstones.remove(&RoaringBitmap::from_iter([index]));
                }
            }
        }
    }

    /// Whoever had not accepted a set that says so speaks of an earlier removal of the same source.
    fn confirm(&mut self, target: TargetId, accepted: Version, tombstone: Tombstone) {
        let Some(index) = self.ledger.index_of(target) else { return };
        let Tombstone { key, source } = tombstone;
        let known = self.ledger.tombstones.get(&key, &source);
        let told = |(_, at)| accepted >= Version { epoch: self.ledger.targets[&index].epoch, revision: at };
        if known.is_some_and(|tombstones| tombstones.at(index).is_some_and(told))
            && let Some(tombstones) =
                staged(&mut self.tombstones, self.ledger.tombstones.places(), &key).get_mut(&source)
        {
            let here = RoaringBitmap::from_iter([index]);
            tombstones.remove(&here);
            self.forget_started(&key, &source, &here);
        } else if known.is_none_or(|tombstones| tombstones.at(index).is_none()) {
            self.forget_inherited(&key, &source, index);
        }
    }

    /// Only where something is assigned: if that is not so any more, there is another tombstone by now.
    fn overtaken(&mut self, target: TargetId, accepted: Version, tombstone: Tombstone) {
        let index = self.ledger.index_of(target);
        if index.is_some_and(|index| holder(self.ledger.slots.claims(&tombstone.key), index).is_some()) {
            self.confirm(target, accepted, tombstone);
        }
    }

    /// Whatever needs what the agent did not understand before, or does not now, is told it otherwise.
    fn understands(&mut self, target: TargetId, capabilities: Capabilities) {
        let Some(index) = self.ledger.index_of(target) else { return };
        if !self.missing_capabilities.is_told_to(index, &capabilities) {
            self.missing_capabilities.to_mut().set(index, &capabilities);
            self.understands.insert(index, (target, capabilities));
        }
    }

    /// The targets whose agents are told otherwise than before of what does not change.
    fn retold(&self) -> RoaringBitmap {
        let retold = |index: &TargetIndex| {
            let (lacked, lacks) = (self.ledger.missing_capabilities.of(*index), self.missing_capabilities.of(*index));
            self.ledger.told_otherwise(*index, (&lacked, &lacks)).next().is_some()
        };
        self.understands.keys().copied().filter(retold).collect()
    }

    /// The keys at which anything may change.
    fn touched(&self) -> BTreeSet<ObjectKey> {
        let mut keys = BTreeSet::new();
        for (id, proposal) in &self.proposals {
            keys.extend(self.ledger.claims.get(id).map(|claim| claim.key.clone()));
            keys.extend(proposal.as_ref().map(|claim| claim.key.clone()));
        }
        let freed = |source: &SourceView<'_>| {
            self.released.contains(&source.kept_at()) || !source.kept().is_disjoint(&self.retired)
        };
        if !self.released.is_empty() || !self.retired.is_empty() {
            keys.extend(self.ledger.kept().filter(freed).map(|source| source.key().clone()));
        }
        for index in self.forgotten.values() {
            let slots = &self.ledger.targets[index].slots;
            keys.extend(slots.iter().map(|slot| self.ledger.slots.get(slot).key.clone()));
        }
        keys
    }

    fn finish(mut self, allowance: u64) -> Batch {
        self.let_go();
        let touched = self.touched();
        let staged = (self.tombstones.clone(), self.happened.clone());
        let mut leaving = Leaving::Goes;
        loop {
            self.resolve_all(&touched, leaving);
            if self.unassigned > allowance {
                leaving = Leaving::IsKept;
            } else if !self.leave_too_large() {
                return self.into_batch();
            }
            (self.tombstones, self.happened) = staged.clone();
            (self.claims, self.slots) = (BTreeMap::new(), Vec::new());
            (self.unassigned, self.kept) = (0, 0);
        }
    }

    /// Leaves as they are those sources of which a claim's record would be more than the store takes. Returns whether there
    /// are any.
    fn leave_too_large(&mut self) -> bool {
        let is_too_large = |claim: &&Arc<Claim>| {
            // What is said later of who holds it, and of what is kept, has room.
            let is_new = matches!(self.proposals.get(&claim.id), Some(Some(_)));
            let most = if is_new { CHUNK_BYTES_MAX - CLAIM_GROWTH_BYTES } else { CHUNK_BYTES_MAX };
            claim.bytes_at_most() > most && record::claim(claim).bytes() > most
        };
        let claims = self.claims.values().flatten().filter(is_too_large);
        let too_large: Vec<_> = claims.map(|claim| (claim.id.clone(), claim.place())).collect();
        let mut left = false;
        for (id, place) in too_large {
            if self.proposals.contains_key(&id) {
                self.proposals.retain(|other, _| other.source != id.source);
                self.replaced.retain(|other, _| other.source != id.source);
                left = true;
            }
            self.too_large.push((id.source, place));
        }
        left
    }

    fn resolve_all(&mut self, touched: &BTreeSet<ObjectKey>, leaving: Leaving) {
        let mut arrivals: BTreeMap<ObjectKey, Vec<Claim>> = BTreeMap::new();
        for claim in self.proposals.values().flatten() {
            arrivals.entry(claim.key.clone()).or_default().push(claim.clone());
        }
        for key in touched {
            let proposed = arrivals.remove(key).unwrap_or_default();
            self.resolve(key.clone(), proposed, leaving);
        }
    }

    /// Settles one destination key.
    fn resolve(&mut self, key: ObjectKey, proposed: Vec<Claim>, leaving: Leaving) {
        let before = self.ledger.slots.claims(&key);
        let said: Vec<_> = before.iter().map(|claim| self.said_last(claim)).collect();
        let mut claims = proposed;
        for old in before {
            if let Some(same) = claims.iter_mut().find(|claim| claim.id == old.id) {
                same.held.clone_from(&old.held);
            } else if !self.proposals.contains_key(&old.id) {
                claims.extend(old.wanted());
            }
        }
        inherit(&mut claims, before);
        for claim in &mut claims {
            claim.restrict(&self.valid);
        }
        claims.retain(|claim| !claim.forms.is_empty());
        claims.sort_by_key(|claim| claim.admitted);
        settle(&mut claims);
        self.keep(&mut claims, &said, leaving);
        let mut after: Vec<_> = claims.into_iter().map(|claim| self.keep_or_stamp(claim, before)).collect();
        // Collected in place it has the room of the claims themselves.
        after.shrink_to_fit();
        for old in before {
            if !after.iter().any(|claim| claim.id == old.id) {
                self.claims.entry(old.id.clone()).or_insert(None);
            }
        }
        let difference =
            Difference::between((before, &self.ledger.missing_capabilities), (&after, &self.missing_capabilities));
        self.note_removals(&key, &said, &difference);
        self.forget_what_happened(&key, &difference);
        let same = before.len() == after.len() && before.iter().zip(&after).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            self.slots.push((key, after, difference));
        }
    }

    /// A claim in the forms that were said last: by it, or in this batch until a later change replaced that. What leaves a
    /// target leaves so, and what is kept is kept so.
    fn said_last(&self, claim: &Arc<Claim>) -> Arc<Claim> {
        let mut said = claim.clone();
        for later in self.replaced.get(&claim.id).into_iter().flatten() {
            Arc::make_mut(&mut said).restate(later);
        }
        said
    }

    /// Where nothing holds the destination any more: what was kept stays so until it is released, and what is new is
    /// counted, and kept if it is to be.
    fn keep(&mut self, claims: &mut Vec<Claim>, before: &[Arc<Claim>], leaving: Leaving) {
        let held = claims.iter().fold(RoaringBitmap::new(), |all, claim| all | &claim.held);
        for old in before {
            let left = (&old.held - &held) & &self.valid;
            if left.is_empty() {
                continue;
            }
            let mut kept = RoaringBitmap::new();
            if !self.released.contains(&old.kept_at) {
                kept |= (&left & &old.kept) - &self.retired;
            }
            let (mut at, news) = (old.kept_at, &left - &old.kept);
            let unexplained = &news & &self.unexplained & old.placed();
            let asking = (news & old.asking()) - &self.retired - &unexplained;
            let stays = match leaving {
                Leaving::Goes => {
                    self.unassigned += asking.len();
                    unexplained
                }
                Leaving::IsKept => {
                    self.kept += asking.len();
                    asking | unexplained
                }
            };
            if !stays.is_empty() {
                (kept, at) = (kept | stays, self.next);
            }
            if kept.is_empty() {
                continue;
            }
            if let Some(claim) = claims.iter_mut().find(|claim| claim.id == old.id) {
                claim.keep(old, kept, at);
            } else {
                let mut claim = (**old).clone();
                claim.restrict(&kept);
                (claim.kept, claim.kept_at) = (kept, at);
                claims.push(claim);
            }
        }
        claims.sort_by_key(|claim| claim.admitted);
    }

    /// Returns the claim as it was if it says the same, else notes that it is to be written.
    fn keep_or_stamp(&mut self, mut claim: Claim, before: &[Arc<Claim>]) -> Arc<Claim> {
        if let Some(old) = before.iter().find(|old| old.id == claim.id && old.says_the_same(&claim)) {
            return old.clone();
        }
        claim.changed = self.next;
        claim.fit();
        let claim = Arc::new(claim);
        self.claims.insert(claim.id.clone(), Some(claim.clone()));
        claim
    }

    /// Notes what targets must remove.
    fn note_removals(&mut self, key: &ObjectKey, before: &[Arc<Claim>], difference: &Difference) {
        if difference.left.is_empty() {
            return;
        }
        let by_source = staged(&mut self.tombstones, self.ledger.tombstones.places(), key);
        for (source, targets) in &difference.left {
            let claims: Vec<_> = before.iter().filter(|claim| claim.id.source.uid == *source).collect();
            let origin = claims.first().map(|claim| claim.source.clone());
            let targets = targets & &self.valid;
            let by_policy = &targets - &self.let_go_of;
            if !by_policy.is_empty() {
                let forms = claims.iter().flat_map(|claim| &claim.forms);
                tombstones::record_removal(by_source, (source, &by_policy), forms, (self.next, origin.clone()));
            }
            let let_go_of = targets & &self.let_go_of;
            if !let_go_of.is_empty() {
                tombstones::record_removal(by_source, (source, &let_go_of), [], (self.next, origin));
            }
        }
    }

    fn into_batch(mut self) -> Batch {
        self.forget_the_departed();
        let retold = self.retold();
        let tombstones = changed(self.ledger.tombstones.places(), self.tombstones, |before, after| {
            // With its revision: what left again in the same way is a removal of its own, of which deltas tell.
            before.map_or(after.is_empty(), |before| before == after)
        });
        let happened = changed(&self.ledger.happened, self.happened, |before, after| {
            before.map_or(after.is_empty(), |before| before == after)
        });
        let choices = self.choices.into_iter().filter(|(placement, chosen)| {
            self.ledger.choices.get(placement).map_or(!chosen.is_empty(), |known| known != chosen)
        });
        let (bodies, new_bodies) = body_uses(self.ledger, &self.claims);
        let made = !self.slots.is_empty() || !self.news.is_empty() || !retold.is_empty();
        let revision = if made { self.next } else { self.ledger.revision };
        let occasion = if made { Occasion::Commit(revision) } else { self.occasion };
        let used = || self.ledger.targets.values().map(|target| target.revision).collect();
        let Ledger { history, revision: present, retention, .. } = self.ledger;
        let history = history.advance(self.fresh, *present, occasion, *retention, used);
        let mut batch = Batch {
            follows: self.ledger.sequence,
            revision,
            admissions: self.admissions,
            next_target: self.next_target,
            registered: self.registered.into_iter().collect(),
            forgotten: self.forgotten.into_iter().collect(),
            understands: self.understands,
            retold,
            choices: choices.collect(),
            claims: self.claims,
            slots: self.slots,
            tombstones,
            happened,
            bodies,
            news: self.news,
            history,
            broken: self.broken.settle(self.ledger),
            unwritten: Unwritten::default(),
            records: OnceLock::new(),
            unassigned: self.unassigned,
            kept: self.kept,
            too_large: self.too_large,
        };
        batch.unwritten = Unwritten::of(self.ledger, &batch, new_bodies);
        if batch.is_empty() {
            batch.admissions = self.ledger.admissions;
        }
        batch
    }
}

/// What is known of a key as this batch leaves it so far.
fn staged<'s, T: Clone>(staged: &'s mut Places<T>, known: &Known<T>, key: &ObjectKey) -> &'s mut BTreeMap<Uid, T> {
    staged.entry(key.clone()).or_insert_with(|| known.get(key).cloned().unwrap_or_default())
}

/// Gives a source that was recreated in its place what the former one held, and its turn.
fn inherit(claims: &mut [Claim], before: &[Arc<Claim>]) {
    for old in before {
        if claims.iter().any(|claim| claim.id == old.id) {
            continue;
        }
        let heir = claims.iter_mut().find(|claim| {
            claim.held.is_empty()
                && !before.iter().any(|known| known.id == claim.id)
                && claim.id.source.space == old.id.source.space
                && claim.id.source.resource == old.id.source.resource
                && claim.source.namespace == old.source.namespace
                && claim.source.name == old.source.name
        });
        if let Some(heir) = heir {
            heir.admitted = old.admitted;
            heir.held.clone_from(&old.held);
        }
    }
}

/// What is not the same as it was.
fn changed<T: Clone>(
    known: &Known<T>,
    staged: Places<T>,
    same: impl Fn(Option<&T>, &T) -> bool,
) -> BTreeMap<(ObjectKey, Uid), T> {
    let mut changed = BTreeMap::new();
    for (key, by_source) in staged {
        let known = known.get(&key);
        for (source, value) in by_source {
            if !same(known.and_then(|by_source| by_source.get(&source)), &value) {
                changed.insert((key.clone(), source), value);
            }
        }
    }
    changed
}

/// How often each body is used after the batch, where that changes, and the bodies that are used for the first time.
fn body_uses(
    ledger: &Ledger,
    claims: &BTreeMap<ClaimId, Option<Arc<Claim>>>,
) -> (BTreeMap<Digest, BodyUse>, Vec<Arc<Body>>) {
    let mut uses: BTreeMap<Digest, BodyUse> = BTreeMap::new();
    let mut texts: BTreeMap<Digest, Arc<Body>> = BTreeMap::new();
    for claim in claims.values().flatten() {
        for form in &claim.forms {
            entry(&mut uses, ledger, &form.body).variants += 1;
            texts.entry(form.body.input).or_insert_with(|| form.body.clone());
        }
    }
    for id in claims.keys() {
        for form in ledger.claims.get(id).iter().flat_map(|claim| &claim.forms) {
            entry(&mut uses, ledger, &form.body).variants -= 1;
        }
    }
    let used_first = |input: &Digest| !ledger.bodies.contains_key(input) && uses[input].variants > 0;
    texts.retain(|input, _| used_first(input));
    (uses, texts.into_values().collect())
}

fn entry<'u>(uses: &'u mut BTreeMap<Digest, BodyUse>, ledger: &Ledger, body: &Body) -> &'u mut BodyUse {
    uses.entry(body.input).or_insert_with(|| {
        let unused = BodyUse { variants: 0, parts: record::parts(&body.text) };
        ledger.bodies.get(&body.input).copied().unwrap_or(unused)
    })
}
