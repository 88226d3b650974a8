//! What a batch writes, record by record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::{Epoch, ObjectKey, Revision};

use super::batch::{Batch, Unwritten};
use super::chunks::{Chunks, Write, chunked, is_chunk};
use super::claim::Body;
use super::codec::SCHEMA;
use super::{Ledger, broken, record};

impl Unwritten {
    pub(super) fn of(ledger: &Ledger, batch: &Batch, bodies: Vec<Arc<Body>>) -> Self {
        let dropped = batch.bodies.iter().filter(|(_, usage)| usage.variants == 0);
        let gone = batch.claims.iter().filter(|(_, claim)| claim.is_none());
        // That something was accepted or released comes after what follows from it: until then it is done again.
        let mut small = broken::records::writes(&batch.broken, &ledger.broken);
        let stays = |id| !batch.forgotten.iter().any(|(forgotten, _)| forgotten == id);
        for (index, (id, capabilities)) in batch.understands.iter().filter(|(_, (id, _))| stays(id)) {
            if let Some(target) = ledger.targets.get(index) {
                let floor = if batch.retold.contains(*index) { batch.revision } else { target.floor };
                small.push(record::target(*id, *index, (target.epoch, floor), Some(capabilities.clone())));
            }
        }
        Self {
            follows: ledger.revision,
            bodies,
            dropped_bodies: dropped.filter_map(|(input, _)| Some((*input, ledger.bodies.get(input)?.parts))).collect(),
            gone: gone.filter_map(|(id, _)| Some((ledger.claims.get(id)?.key.clone(), id.clone()))).collect(),
            small,
            garbage: ledger.garbage.clone(),
        }
    }
}

impl Batch {
    /// The records to write: each chunk at once, one after the other, all of them before [`Ledger::commit`]. After a
    /// failure the whole batch may be written again; until it is written and committed, nothing else may be.
    ///
    /// [`Ledger::commit`]: super::Ledger::commit
    pub fn chunks(&self) -> &[Vec<Write>] {
        &self.records().all
    }

    /// The same, in stages: the chunks of one may be written at once or in any order, a stage after the one before it.
    pub fn stages(&self) -> impl Iterator<Item = &[Vec<Write>]> {
        self.records().stages()
    }

    fn records(&self) -> &Chunks {
        self.records.get_or_init(|| self.write())
    }

    /// The records, in the order that makes a crash between chunks harmless.
    fn write(&self) -> Chunks {
        if self.is_empty() {
            return Chunks::default();
        }
        let Unwritten { follows, bodies, dropped_bodies, small, garbage, gone: _ } = &self.unwritten;
        // First: whatever is written in part under a revision, that has its id.
        let (history, mut deletions) = record::history(&self.history);
        let mut needed: Vec<Write> = bodies.iter().flat_map(|body| record::body(body)).collect();
        let target = |&(id, index): &_| record::target(id, index, (Epoch(1), Revision(0)), None);
        needed.extend(self.registered.iter().map(target));
        needed.extend(self.choices.iter().map(|(placement, chosen)| record::choice(placement, chosen)));
        let (following, small_deletions): (Vec<_>, Vec<_>) =
            small.iter().cloned().partition(|write| write.value.is_some());
        deletions.extend(small_deletions);
        for (input, parts) in dropped_bodies {
            deletions.extend((0..*parts).map(|part| Write { key: record::body_key(*input, part), value: None }));
        }
        deletions.extend(self.forgotten.iter().map(|(id, _)| Write { key: record::target_key(*id), value: None }));
        let places = self.places();
        if !garbage.is_empty() {
            let before =
                history.iter().chain(&needed).chain(places.iter().flatten()).chain(&following).chain(&deletions);
            let mentioned: BTreeSet<&[u8]> = before.map(|write| &*write.key).collect();
            let garbage = garbage.iter().filter(|key| !mentioned.contains(&***key));
            let garbage: Vec<_> = garbage.map(|key| Write { key: key.clone(), value: None }).collect();
            deletions.extend(garbage);
        }
        let head = |revision| {
            record::head(&record::Head {
                schema: SCHEMA,
                revision,
                announced: self.revision,
                admissions: self.admissions,
                next_target: self.next_target,
            })
        };
        let apart = |writes: Vec<Write>| writes.into_iter().map(|write| vec![write]).collect::<Vec<_>>();
        let one_by_one = |writes| chunked(apart(writes)).into_iter().map(|chunk| vec![chunk]);
        // What a chunk cannot hold whole is written in its order.
        let (places, large): (Vec<_>, Vec<_>) = places.into_iter().partition(|place| is_chunk(place));
        let stages = [apart(history), apart(needed), places].into_iter();
        let stages = stages.chain(large.into_iter().flat_map(one_by_one)).chain(one_by_one(following));
        Chunks::of(head(*follows), stages.chain([apart(deletions)]), head(self.revision))
    }

    /// What changes at each place: what is to be removed there, what happened once, and what is assigned. Of one without the
    /// others a start would make something else: a removal that replaces an earlier one, which was not confirmed, says what that
    /// spared.
    fn places(&self) -> Vec<Vec<Write>> {
        let mut places: BTreeMap<&ObjectKey, Vec<Write>> = BTreeMap::new();
        for ((key, source), tombstones) in &self.tombstones {
            places.entry(key).or_default().push(record::tombstones(key, source, tombstones));
        }
        for ((key, source), happened) in &self.happened {
            places.entry(key).or_default().push(record::happened(key, source, happened));
        }
        for claim in self.claims.values().flatten() {
            places.entry(&claim.key).or_default().push(record::claim(claim));
        }
        for (key, id) in &self.unwritten.gone {
            places.entry(key).or_default().push(Write { key: record::claim_key(id), value: None });
        }
        places.into_values().collect()
    }
}
