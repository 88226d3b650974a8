use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use roaring::RoaringBitmap;
use tideline_common::{Capability, Digest, Epoch, ItemHash, ObjectKey, Revision, SetDigest, TargetId, Uid};

use super::batch::{Batch, Committed, StaleBatch};
use super::broken::{self, Concerned, Heeded};
use super::claim::{Claim, ClaimId};
use super::happened::Happened;
use super::log::{Left, LogEntry};
use super::removals::put_or_remove;
use super::slot::Difference;
use super::tombstones::Tombstones;
use super::{Ledger, Slot, Slots, TargetIndex, places};
use crate::limits::COMMIT_PLACES_MAX;
use crate::placement::SourceId;

/// One target's desired set, less the entries themselves.
#[derive(Clone, Debug)]
pub(super) struct TargetState {
    pub(super) id: TargetId,
    pub(super) epoch: Epoch,
    pub(super) revision: Revision,
    /// Of what was told before, no delta says how that differs from what is told now.
    pub(super) floor: Revision,
    pub(super) set: SetDigest,
    digest: OnceLock<Digest>,
    /// The numbers of the destination keys at which it has an entry.
    pub(super) slots: Arc<RoaringBitmap>,
}

/// An entry that a target is told in another way than before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Otherwise {
    slot: u32,
    lost: ItemHash,
    gained: ItemHash,
}

impl TargetState {
    pub(super) fn new(id: TargetId, epoch: Epoch, revision: Revision) -> Self {
        let (set, digest, slots) = (SetDigest::default(), OnceLock::new(), Arc::default());
        Self { id, epoch, revision, floor: Revision(0), set, digest, slots }
    }

    pub(super) fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| self.set.digest())
    }
}

impl Ledger {
    /// Makes a batch visible that was written whole.
    ///
    /// # Errors
    ///
    /// Another batch was committed after this one was planned. Nothing was changed.
    pub fn commit(&mut self, batch: Batch) -> Result<Committed, StaleBatch> {
        if batch.follows != self.sequence {
            return Err(StaleBatch { follows: batch.follows, at: self.sequence });
        }
        let is_empty = batch.is_empty();
        let destinations = self.destinations_of(&batch);
        let before = destinations.as_ref().and_then(|keys| self.copies_at(keys));
        let Batch {
            follows: _,
            revision,
            admissions,
            next_target,
            registered,
            forgotten,
            understands,
            retold,
            choices,
            claims,
            slots,
            tombstones,
            happened,
            bodies,
            news,
            history: advance,
            broken: broken::Draft { broken, voids, voided, heeded },
            unwritten: _,
            records: _,
            unassigned: _,
            kept: _,
            too_large: _,
        } = batch;
        self.sequence += 1;
        self.revision = revision;
        self.history.take(advance);
        self.admissions = admissions;
        self.next_target = next_target;
        if !is_empty {
            self.garbage.clear();
        }
        let mut affected = RoaringBitmap::new();
        let history = broken.and_then(|broken| {
            let concerned = broken.concerned(&self.broken);
            self.broken = broken;
            if self.targets.values().any(|target| target.epoch < self.broken.epoch) {
                for target in self.targets.values_mut().map(Arc::make_mut) {
                    target.epoch = target.epoch.max(self.broken.epoch);
                }
            }
            concerned.map(|concerned| match concerned {
                Concerned::All => self.registered.clone(),
                Concerned::Only(targets) => targets.into_iter().filter_map(|target| self.index_of(target)).collect(),
            })
        });
        if let Some(concerned) = &history {
            affected |= concerned;
        }
        for (approval, void) in voids {
            match void {
                Some(void) => self.voids.insert(approval, void),
                None => self.voids.remove(&approval),
            };
        }
        for (object, heeded) in heeded {
            match heeded {
                Heeded::Now => self.heeded.insert(object),
                Heeded::Forgotten => self.heeded.remove(&object),
            };
        }
        for &(id, index) in &registered {
            self.target_ids.insert(id, index);
            self.targets.insert(index, Arc::new(TargetState::new(id, Epoch(1).max(self.broken.epoch), revision)));
            self.registered.insert(index);
            affected.insert(index);
        }
        let touched: RoaringBitmap = slots.iter().filter_map(|(key, ..)| self.slots.by_key.get(key)).collect();
        let mut told_otherwise = Vec::new();
        for (index, (_, capabilities)) in understands {
            let lacked = self.missing_capabilities.of(index);
            self.missing_capabilities.set(index, &capabilities);
            affected.insert(index);
            if retold.contains(index) {
                told_otherwise.extend(self.retell(index, &lacked, &touched));
            }
        }
        let mut touched = Vec::new();
        for (key, claims, difference) in slots {
            touched.extend(self.happened.contains_key(&key).then(|| key.clone()));
            self.put_slot(&key, claims, &difference, &mut affected);
            self.log_difference(revision, &key, difference, &tombstones);
        }
        let told = news.values().fold(RoaringBitmap::new(), |all, targets| all | targets);
        self.each(&told, |_| ());
        affected |= told;
        for (key, targets) in news {
            self.log.push(LogEntry { revision, key, left: None, targets }, self.retention);
        }
        for &(id, index) in &forgotten {
            self.history.forget(index);
            self.target_ids.remove(&id);
            self.targets.remove(&index);
            self.registered.remove(index);
            self.missing_capabilities.forget(index);
            affected.insert(index);
        }
        for (place, tombstones) in tombstones {
            let tombstones = Some(tombstones).filter(|tombstones| !tombstones.is_empty());
            self.tombstones.put(place, tombstones);
        }
        for (place, happened) in happened {
            self.put_happened(place, happened);
        }
        for key in touched {
            for (source, happened) in self.happened.get(&key).cloned().unwrap_or_default() {
                self.put_happened((key.clone(), source), happened);
            }
        }
        for (placement, chosen) in choices {
            if chosen.is_empty() {
                self.choices.remove(&placement);
            } else {
                self.choices.insert(placement, chosen);
            }
        }
        for (input, usage) in bodies {
            if usage.variants == 0 {
                self.bodies.remove(&input);
            } else {
                self.bodies.insert(input, usage);
            }
        }
        let mut changed: Vec<_> = claims.keys().map(|id| id.source.clone()).chain(told_otherwise).collect();
        changed.sort();
        changed.dedup();
        for (id, claim) in claims {
            match claim {
                Some(claim) => self.put_claim(claim),
                None => self.drop_claim(&id),
            }
        }
        let after = destinations.as_ref().and_then(|keys| self.copies_at(keys));
        let places = before.zip(after).map(|(before, after)| places::changes(&before, &after));
        Ok(Committed { revision, affected, sources: changed, places, registered, forgotten, history, voided })
    }

    /// The destinations of which something becomes by a batch that is not committed yet. None for any: of what agents
    /// understand it depends what is told of all that they have, and of more than so many nobody reads one by one.
    fn destinations_of(&self, batch: &Batch) -> Option<BTreeSet<ObjectKey>> {
        let Batch { claims, slots, tombstones, understands, forgotten, .. } = batch;
        let many = claims.len().max(slots.len()).max(tombstones.len()) > COMMIT_PLACES_MAX;
        if many || !understands.is_empty() || !forgotten.is_empty() {
            return None;
        }
        let former = claims.keys().filter_map(|id| self.claims.get(id)).map(|claim| claim.key.clone());
        let next = claims.values().flatten().map(|claim| claim.key.clone());
        let slots = slots.iter().map(|(key, ..)| key.clone());
        let removed = tombstones.keys().map(|(key, _)| key.clone());
        Some(former.chain(next).chain(slots).chain(removed).collect())
    }

    /// An agent that lacked this is told otherwise of what it has from now on: of these sources. What is `touched` says so with
    /// its own change.
    fn retell(&mut self, index: TargetIndex, lacked: &BTreeSet<Capability>, touched: &RoaringBitmap) -> Vec<SourceId> {
        let otherwise: Vec<_> = self.told_otherwise(index, (lacked, &self.missing_capabilities.of(index))).collect();
        let Some(target) = self.targets.get_mut(&index).map(Arc::make_mut) else { return Vec::new() };
        for Otherwise { slot: _, lost, gained } in otherwise.iter().filter(|it| !touched.contains(it.slot)) {
            target.set.remove(*lost);
            target.set.add(*gained);
        }
        (target.revision, target.floor, target.digest) = (self.revision, self.revision, OnceLock::new());
        let holders = otherwise.iter().filter_map(|it| self.slots.get(it.slot).holder(index));
        holders.map(|(claim, _)| claim.id.source.clone()).collect()
    }

    /// What a target is told otherwise of what it has, when its agent lacks the second and not the first any more.
    pub(super) fn told_otherwise<'l>(
        &'l self,
        index: TargetIndex,
        (lacked, lacks): (&'l BTreeSet<Capability>, &'l BTreeSet<Capability>),
    ) -> impl Iterator<Item = Otherwise> + use<'l> {
        let slots = self.targets.get(&index).map(|target| &target.slots);
        let needing = slots.map(|slots| self.slots.needing(&(lacked ^ lacks)) & &**slots).unwrap_or_default();
        needing.into_iter().filter_map(move |slot| {
            let (_, form) = self.slots.get(slot).holder(index)?;
            let needing = form.needing.as_ref()?;
            match (needing.needs.is_disjoint(lacked), needing.needs.is_disjoint(lacks)) {
                (true, false) => Some(Otherwise { slot, lost: form.hash, gained: form.instead(needing).hash }),
                (false, true) => Some(Otherwise { slot, lost: form.instead(needing).hash, gained: form.hash }),
                (true, true) | (false, false) => None,
            }
        })
    }

    /// Claims come first: they say whether a source is assigned still.
    pub(super) fn put_happened(&mut self, (key, source): (ObjectKey, Uid), mut happened: Happened) {
        if let Some(former) = self.happened.get(&key).and_then(|by_source| by_source.get(&source)) {
            self.departed.remove(&(former.left, key.clone(), source.clone()));
        }
        let assigned = self.slots.claims(&key).iter().any(|claim| claim.id.source.uid == source);
        if !assigned && !happened.is_empty() {
            happened.optimize();
            self.departed.insert((happened.left, key.clone(), source.clone()), ());
        }
        let happened = Some(happened).filter(|happened| !happened.is_empty());
        put_or_remove(&mut self.happened, (key, source), happened);
    }

    pub(super) fn put_claim(&mut self, claim: Arc<Claim>) {
        self.drop_claim(&claim.id);
        self.assigned += claim.explicit().len();
        if !claim.kept.is_empty() {
            self.kept.insert(claim.id.clone(), ());
        }
        let place = (claim.source.space.clone(), claim.place());
        if claim.id.destination.is_some() {
            match self.mapped.get_mut(&place) {
                Some(there) => _ = there.insert(claim.id.clone()),
                None => _ = self.mapped.insert(place.clone(), [claim.id.clone()].into()),
            }
        }
        let claims = self.places.get(&place).copied().unwrap_or_default();
        self.places.insert(place, claims + 1);
        self.claims.insert(claim.id.clone(), claim);
    }

    fn drop_claim(&mut self, id: &ClaimId) {
        let Some(claim) = self.claims.remove(id) else { return };
        self.assigned -= claim.explicit().len();
        self.kept.remove(id);
        let place = (claim.source.space.clone(), claim.place());
        if let Some(there) = self.mapped.get_mut(&place) {
            there.remove(id);
            if there.is_empty() {
                self.mapped.remove(&place);
            }
        }
        if let Some(claims) = self.places.get_mut(&place) {
            *claims -= 1;
            if *claims == 0 {
                self.places.remove(&place);
            }
        }
    }

    pub(super) fn put_slot(
        &mut self,
        key: &ObjectKey,
        claims: Vec<Arc<Claim>>,
        difference: &Difference,
        affected: &mut RoaringBitmap,
    ) {
        let slot = self.slots.put(key, claims);
        for (hash, targets) in &difference.lost {
            self.each(targets, |target| target.set.remove(*hash));
        }
        for (hash, targets) in &difference.gained {
            self.each(targets, |target| target.set.add(*hash));
        }
        self.each(&difference.joined, |target| {
            Arc::make_mut(&mut target.slots).insert(slot);
        });
        for (_, targets) in &difference.left {
            self.each(targets, |target| {
                Arc::make_mut(&mut target.slots).remove(slot);
            });
            *affected |= targets;
        }
        *affected |= &difference.updated;
    }

    fn log_difference(
        &mut self,
        revision: Revision,
        key: &ObjectKey,
        difference: Difference,
        tombstones: &BTreeMap<(ObjectKey, Uid), Tombstones>,
    ) {
        let Difference { left, updated, .. } = difference;
        for (source, targets) in left {
            let policies = tombstones.get(&(key.clone(), source.clone())).into_iter().flat_map(Tombstones::policies);
            for ((policy, at), of) in policies {
                let left = Some(Left { source: source.clone(), policy, at });
                self.log_change(LogEntry { revision, key: key.clone(), left, targets: &targets & of });
            }
        }
        self.log_change(LogEntry { revision, key: key.clone(), left: None, targets: updated });
    }

    fn log_change(&mut self, change: LogEntry) {
        if !change.targets.is_empty() {
            self.log.push(change, self.retention);
        }
    }

    fn each(&mut self, targets: &RoaringBitmap, mut change: impl FnMut(&mut TargetState)) {
        for index in targets {
            if let Some(target) = self.targets.get_mut(&index).map(Arc::make_mut) {
                change(target);
                target.revision = self.revision;
                target.digest = OnceLock::new();
            }
        }
    }
}

impl Slots {
    /// Puts the claims of a key in place of the former ones and returns the key's number, which is free again if there
    /// are none.
    fn put(&mut self, key: &ObjectKey, claims: Vec<Arc<Claim>>) -> u32 {
        let index = self.by_key.get(key).copied().unwrap_or_else(|| self.allocate(key));
        if claims.is_empty() {
            self.by_key.remove(key);
            self.free.push(index);
        }
        for capability in self.slots[&index].needs().collect::<BTreeSet<_>>() {
            if let Some(slots) = self.needing.get_mut(&capability) {
                slots.remove(index);
            }
        }
        self.slots.get_mut(&index).expect("a number names a slot").claims = claims;
        for capability in self.slots[&index].needs().collect::<BTreeSet<_>>() {
            self.needing.entry(capability).or_default().insert(index);
        }
        index
    }

    fn allocate(&mut self, key: &ObjectKey) -> u32 {
        let slot = Slot { key: key.clone(), claims: Vec::new() };
        let index = if let Some(index) = self.free.pop() {
            index
        } else {
            u32::try_from(self.slots.len()).expect("memory ends before four billion destination keys")
        };
        self.slots.insert(index, slot);
        self.by_key.insert(key.clone(), index);
        index
    }
}
