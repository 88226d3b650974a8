//! The layout of what is persisted, and reading it back.
//!
//! | key, after [`KEY_PREFIX`] | value |
//! |---|---|
//! | `head` | JSON: schema, revision, announced revision, counters |
//! | `target/<target id>` | JSON: dense index, epoch, what its agent understands, and the last revision in which that changed what it is told |
//! | `source/<space>/<group>/<resource>/<uid>`, and `/<namespace>` where that is called otherwise | frame: the claim with its forms; bitmaps: held, one per form, and kept if there are any |
//! | `body/<input digest>/<part>` | text, in parts that fit a store commit |
//! | `tombstone/<digest of key and source>` | frame: destination key, source UID, revision, prune policies; one bitmap per policy: targets |
//! | `happened/<digest of key and source>` | frame: destination key, source UID, facts; one bitmap per fact: targets |
//! | `chosen/<space>/<placement name>` | bitmap |
//! | `choice/<space>/<placement uid>` | bitmap; only deleted, since the sixth layout |
//! | `segment/<first revision>/<id>` | JSON: the id |
//! | `revision/<number>` | the 16 bytes of its id |
//! | `broken` | JSON: epoch and revision of the last accept, and the highest epoch that was proven |
//! | `seen/<segment id>` | JSON: up to where a segment of another history was proven, by whom, and what of it is accepted |
//! | `claimed/<target id>` | JSON: what a target claims of another history, and whether that is accepted |
//! | `leaving/<target id>` | JSON: true, of each target whose leaving was said before the last accept |
//! | `released/<target id>` | JSON: SHA-256 of the words in which a person last let run what may have run there |
//! | `accepted-restore` | JSON: the last restore that was accepted |
//! | `restored` | JSON: which backup the store was restored from last; written by `restore` alone |
//! | `void/<approval UID>` | JSON: what it does not approve any more |
//! | `heeded/<acceptance UID>` | JSON: true. It was heeded, and is not again |
//! | `told/<number>` | for up to 4,096 targets: index, revision handed, revision confirmed, big endian |
//!
//! A frame is a JSON header and then bitmaps (the portable roaring format), each preceded by its length (u32, big endian).

mod bodies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tideline_common::wire::v1::Terminal;
use tideline_common::{
    ApplyPolicy, Capabilities, Digest, Entry, Epoch, Hasher, ObjectKey, PrunePolicy, Revision, RevisionId, SegmentId,
    SourceRef, TargetId, Tombstone, Uid,
};

use super::broken::{self, Broken, Restored, Voids};
use super::chunks::{CHUNK_BYTES_MAX, Write};
use super::claim::{Body, Claim, ClaimId, Form};
use super::codec::{Error, KEY_PREFIX, Reader, SCHEMA, bitmap, frame, json, key, put};
use super::commit::TargetState;
use super::history::{Advance, History, TOLD_PER_RECORD, Told};
use super::log::{Left, LogEntry};
use super::retention::Retention;
use super::slot::{Difference, all_held, held_continuously, settle};
use super::tombstones::Tombstones;
use super::{BodyUse, Happened, Ledger, TargetIndex};
use crate::clean::{Destination, Input};
use crate::placement::{PlacementId, SourceId};

use bodies::Bodies;

/// Bytes of one body record: two fit a chunk with their keys.
pub const BODY_PART_BYTES_MAX: usize = 500 << 10;
const _: () = assert!(2 * BODY_PART_BYTES_MAX < CHUNK_BYTES_MAX);
/// Bytes of what one target was told: its index and two revisions.
const TOLD_BYTES: usize = 4 + 8 + 8;
const _: () = assert!(TOLD_PER_RECORD as usize * TOLD_BYTES < CHUNK_BYTES_MAX / 2);

/// Of the head, what every version reads.
#[derive(Deserialize)]
struct Written {
    schema: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head {
    pub(super) schema: u32,
    pub(super) revision: Revision,
    /// Above `revision` while a batch of several chunks is being written.
    pub(super) announced: Revision,
    pub(super) admissions: u64,
    pub(super) next_target: TargetIndex,
}

#[derive(Serialize, Deserialize)]
struct TargetRecord {
    index: TargetIndex,
    epoch: Epoch,
    /// What its agent understands. Absent where none has said so, to whom nothing is told before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    understands: Option<Capabilities>,
    /// There is no delta from before. What an older hub gives instead has another digest, upon which the agent begins anew.
    #[serde(default, skip_serializing_if = "is_default")]
    floor: Revision,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Serialize, Deserialize)]
struct ClaimRecord {
    id: SourceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    destination: Destination,
    source: SourceRef,
    key: ObjectKey,
    admitted: u64,
    changed: Revision,
    /// There is one more bitmap, of what is kept since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept_at: Option<Revision>,
    forms: Vec<FormRecord>,
}

#[derive(Serialize, Deserialize)]
struct FormRecord {
    entry: Arc<Entry>,
    policy: Arc<ApplyPolicy>,
}

#[derive(Serialize, Deserialize)]
struct TombstonesRecord {
    tombstone: Tombstone,
    /// Of records that do not say it of each policy.
    #[serde(default)]
    at: Revision,
    /// What was removed, for people. Records of older hubs lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<SourceRef>,
    /// One bitmap each.
    #[serde(default = "least")]
    policies: Vec<PrunePolicy>,
    /// The revision of each.
    #[serde(default)]
    revisions: Vec<Revision>,
}

/// Of a removal that an older hub wrote nobody knows what was said last.
fn least() -> Vec<PrunePolicy> {
    vec![PrunePolicy::LEAST]
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HappenedRecord {
    #[serde(flatten)]
    key: ObjectKey,
    source_uid: Uid,
    /// One bitmap each.
    facts: Vec<Terminal>,
    /// When it left a target last.
    #[serde(default)]
    left: Revision,
}

pub(super) fn head(head: &Head) -> Write {
    put(key("head"), json(head))
}

pub(super) fn target_key(id: TargetId) -> Vec<u8> {
    key(&format!("target/{id}"))
}

pub(super) fn target(
    id: TargetId,
    index: TargetIndex,
    (epoch, floor): (Epoch, Revision),
    understands: Option<Capabilities>,
) -> Write {
    put(target_key(id), json(&TargetRecord { index, epoch, understands, floor }))
}

pub(super) fn claim_key(id: &ClaimId) -> Vec<u8> {
    let ClaimId { source: SourceId { space, resource, uid }, destination } = id;
    let slash = if destination.is_some() { "/" } else { "" };
    let destination = destination.as_deref().unwrap_or_default();
    key(&format!("source/{space}/{}/{}/{uid}{slash}{destination}", resource.group, resource.resource))
}

pub(super) fn claim(claim: &Claim) -> Write {
    let Claim { id, source, key, admitted, changed, forms, held, kept, kept_at } = claim;
    let header = ClaimRecord {
        id: id.source.clone(),
        destination: id.destination.clone(),
        source: source.clone(),
        key: key.clone(),
        admitted: *admitted,
        changed: *changed,
        kept_at: (!kept.is_empty()).then_some(*kept_at),
        forms: forms.iter().map(|form| FormRecord { entry: form.entry.clone(), policy: form.policy.clone() }).collect(),
    };
    let bitmaps = std::iter::once(held).chain(forms.iter().map(|form| &form.targets));
    put(claim_key(id), frame(&header, bitmaps.chain(Some(kept).filter(|kept| !kept.is_empty()))))
}

pub(super) fn parts(text: &str) -> usize {
    text.len().div_ceil(BODY_PART_BYTES_MAX).max(1)
}

pub(super) fn body_key(input: Digest, part: usize) -> Vec<u8> {
    key(&format!("body/{input}/{part:04}"))
}

pub(super) fn body(body: &Body) -> Vec<Write> {
    let bytes = body.text.as_bytes();
    let part = |part: usize| {
        let start = part * BODY_PART_BYTES_MAX;
        let end = bytes.len().min(start + BODY_PART_BYTES_MAX);
        put(body_key(body.input, part), bytes[start..end].to_vec())
    };
    (0..parts(&body.text)).map(part).collect()
}

/// A removal without targets is deleted.
pub(super) fn tombstones(destination: &ObjectKey, source: &Uid, tombstones: &Tombstones) -> Write {
    let key = key(&format!("tombstone/{}", digest(destination, source)));
    if tombstones.is_empty() {
        return Write { key, value: None };
    }
    let tombstone = Tombstone { key: destination.clone(), source: source.clone() };
    let (policies, revisions): (Vec<_>, Vec<_>) = tombstones.policies().map(|(policy, _)| policy).unzip();
    let at = revisions.iter().copied().max().unwrap_or_default();
    let header = TombstonesRecord { tombstone, at, origin: tombstones.origin.clone(), policies, revisions };
    put(key, frame(&header, tombstones.policies().map(|(_, targets)| targets)))
}

/// That nothing happened is deleted.
pub(super) fn happened(destination: &ObjectKey, source: &Uid, happened: &Happened) -> Write {
    let key = key(&format!("happened/{}", digest(destination, source)));
    if happened.is_empty() {
        return Write { key, value: None };
    }
    let facts = happened.iter().map(|(fact, _)| fact).collect();
    let header = HappenedRecord { key: destination.clone(), source_uid: source.clone(), facts, left: happened.left };
    put(key, frame(&header, happened.iter().map(|(_, targets)| targets)))
}

/// Names a source at a destination in as many bytes whatever they are called.
fn digest(destination: &ObjectKey, source: &Uid) -> Digest {
    let mut hasher = Hasher::new("tideline/tombstone/v1");
    for text in [
        &*destination.kind.group,
        &*destination.kind.kind,
        &*destination.namespace,
        &*destination.name,
        &*source.text(),
    ] {
        hasher.field(text.as_bytes());
    }
    hasher.finish()
}

/// What is to be written first, and what is to be deleted.
pub(super) fn history(advance: &Advance) -> (Vec<Write>, Vec<Write>) {
    let Advance { segment, replaced, ids, dropped, told, .. } = advance;
    let segment_key = |&(first, id): &(Revision, SegmentId)| key(&format!("segment/{:020}/{id}", first.0));
    let revision_key = |revision: &Revision| key(&format!("revision/{:020}", revision.0));
    let delete = |key| Write { key, value: None };
    // Together, at the beginning of one chunk.
    let mut writes: Vec<_> = replaced.iter().map(|replaced| delete(segment_key(replaced))).collect();
    writes.extend(segment.iter().map(|segment| put(segment_key(segment), json(&segment.1))));
    writes.extend(ids.iter().map(|(revision, id)| put(revision_key(revision), id.as_bytes().to_vec())));
    for (chunk, targets) in told {
        let mut value = Vec::with_capacity(targets.len() * TOLD_BYTES);
        for (target, Told { handed, confirmed }) in targets {
            value.extend(target.to_be_bytes());
            value.extend(handed.0.to_be_bytes());
            value.extend(confirmed.0.to_be_bytes());
        }
        writes.push(put(key(&format!("told/{chunk:06}")), value));
    }
    (writes, dropped.iter().map(|revision| delete(revision_key(revision))).collect())
}

/// What a restore writes into the store that it makes, so that the hub says so when it starts on it.
pub fn restored(restored: &Restored) -> Write {
    put(key("restored"), json(restored))
}

/// A choice of nothing is deleted.
pub(super) fn choice(placement: &PlacementId, chosen: &RoaringBitmap) -> Write {
    let key = match placement {
        PlacementId::Named { space, name } => key(&format!("chosen/{space}/{name}")),
        PlacementId::Former { space, uid } => key(&format!("choice/{space}/{uid}")),
    };
    if chosen.is_empty() {
        return Write { key, value: None };
    }
    put(key, bitmap(chosen))
}

/// Records read, before they are put together.
#[derive(Default)]
struct Loading {
    head: Option<Head>,
    targets: Vec<(TargetId, TargetRecord)>,
    claims: Vec<(ClaimRecord, Vec<RoaringBitmap>)>,
    /// By input, the parts in order.
    bodies: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    tombstones: Vec<(ObjectKey, Uid, Tombstones)>,
    happened: Vec<(ObjectKey, Uid, Happened)>,
    choices: BTreeMap<PlacementId, RoaringBitmap>,
    history: History,
    broken: Broken,
    restored: Option<Restored>,
    voids: Voids,
    heeded: BTreeSet<Uid>,
    any: bool,
}

impl Ledger {
    /// Puts a ledger together from its records, in any order. No records are an empty ledger.
    ///
    /// # Errors
    ///
    /// A record cannot be read, or contradicts another.
    pub fn load<K, V>(records: impl IntoIterator<Item = (K, V)>, retention: Retention) -> Result<Self, Error>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut loading = Loading::default();
        let records: Vec<(K, V)> = records.into_iter().collect();
        // First, for what another schema wrote may look like damage.
        if let Some((_, head)) =
            records.iter().find(|(key, _)| key.as_ref().strip_prefix(KEY_PREFIX.as_bytes()) == Some(b"head"))
            && let Ok(Written { schema }) = serde_json::from_slice(head.as_ref())
            && !(1..=SCHEMA).contains(&schema)
        {
            return Err(Error::Schema { found: schema });
        }
        for (key, value) in records {
            let key = String::from_utf8_lossy(key.as_ref());
            loading.take(&key, value.as_ref())?;
        }
        loading.finish(retention)
    }
}

impl Loading {
    fn take(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        let mut reader = Reader { key, rest: value };
        let Some(path) = key.strip_prefix(KEY_PREFIX) else { return Err(reader.damaged("it is not the ledger's")) };
        self.any = true;
        let (kind, rest) = path.split_once('/').unwrap_or((path, ""));
        match kind {
            "head" => {
                let head: Head = reader.json(value)?;
                self.head = Some(head);
            }
            "target" => {
                let id = rest.parse().map_err(|_| reader.damaged("its key names no target"))?;
                self.targets.push((id, reader.json(value)?));
            }
            "source" => {
                let header = reader.piece()?;
                let header: ClaimRecord = reader.json(header)?;
                let count = 1 + header.forms.len() + usize::from(header.kept_at.is_some());
                let bitmaps = (0..count).map(|_| reader.next_bitmap()).collect::<Result<_, _>>()?;
                self.claims.push((header, bitmaps));
            }
            "body" => {
                let (input, part) = rest.split_once('/').ok_or_else(|| reader.damaged("its key has no part"))?;
                self.bodies.entry(input.to_owned()).or_default().insert(part.to_owned(), value.to_vec());
            }
            "tombstone" => {
                let header = reader.piece()?;
                let header: TombstonesRecord = reader.json(header)?;
                let TombstonesRecord { tombstone: Tombstone { key, source }, at, origin, policies, revisions } = header;
                let mut tombstones = Tombstones::new(origin);
                let revisions = revisions.into_iter().chain(std::iter::repeat(at));
                for policy in policies.into_iter().zip(revisions) {
                    tombstones.put(policy, reader.next_bitmap()?);
                }
                self.tombstones.push((key, source, tombstones));
            }
            "happened" => {
                let header = reader.piece()?;
                let HappenedRecord { key, source_uid, facts, left } = reader.json(header)?;
                let facts: Vec<_> =
                    facts.into_iter().map(|fact| Ok((fact, reader.next_bitmap()?))).collect::<Result<_, Error>>()?;
                self.happened.push((key, source_uid, Happened::new(facts, left)));
            }
            "chosen" | "choice" => {
                let damaged = || reader.damaged("its key names no Placement");
                let (space, of) = rest.split_once('/').ok_or_else(damaged)?;
                let space = space.parse().map_err(|_| damaged())?;
                let placement = if kind == "chosen" {
                    PlacementId::Named { space, name: of.into() }
                } else {
                    PlacementId::Former { space, uid: of.parse().map_err(|_| damaged())? }
                };
                self.choices.insert(placement, reader.bitmap(value)?);
            }
            "broken" | "leaving" | "released" | "claimed" | "seen" | "accepted-restore" => {
                broken::records::take(&mut self.broken, &reader, (kind, rest))?;
            }
            "restored" => self.restored = Some(reader.json(value)?),
            "void" => {
                let approval = rest.parse().map_err(|_| reader.damaged("its key names no approval"))?;
                self.voids.insert(approval, reader.json(value)?);
            }
            "heeded" => {
                self.heeded.insert(rest.parse().map_err(|_| reader.damaged("its key names no acceptance"))?);
            }
            "segment" | "revision" | "told" => self.take_history(&reader, kind, rest)?,
            _ => return Err(reader.damaged("its kind is not known")),
        }
        Ok(())
    }

    fn take_history(&mut self, reader: &Reader<'_>, kind: &str, rest: &str) -> Result<(), Error> {
        let unnamed = || reader.damaged("its key does not name it");
        let number = |text: &str| text.parse().map(Revision).map_err(|_| unnamed());
        match kind {
            "segment" => {
                let (first, _) = rest.split_once('/').ok_or_else(unnamed)?;
                self.history.restore_segment(number(first)?, reader.json(reader.rest)?);
            }
            "revision" => {
                let id = <[u8; 16]>::try_from(reader.rest).map_err(|_| reader.damaged("an id has 16 bytes"))?;
                self.history.restore_id(number(rest)?, RevisionId::from_uuid(uuid::Uuid::from_bytes(id)));
            }
            _ => {
                let (targets, left) = reader.rest.as_chunks::<TOLD_BYTES>();
                if !left.is_empty() {
                    return Err(reader.damaged("it is cut short"));
                }
                for &[t0, t1, t2, t3, ref revisions @ ..] in targets {
                    let (handed, confirmed) = revisions.split_at(8);
                    let revision = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                    let (handed, confirmed) = (Revision(revision(handed)), Revision(revision(confirmed)));
                    self.history.restore_told(u32::from_be_bytes([t0, t1, t2, t3]), Told { handed, confirmed });
                }
            }
        }
        Ok(())
    }

    fn finish(self, retention: Retention) -> Result<Ledger, Error> {
        let Self {
            head,
            targets,
            claims,
            bodies,
            tombstones,
            happened,
            choices,
            mut history,
            mut broken,
            restored,
            voids,
            heeded,
            any,
        } = self;
        history.restored();
        broken.restore(restored);
        let Some(head) = head else {
            return if any { Err(Error::Headless) } else { Ok(Ledger { retention, ..Ledger::default() }) };
        };
        // What was announced but not confirmed may be written in part: it is taken as it is, under its own number.
        let revision = head.revision.max(head.announced);
        let mut ledger = Ledger {
            revision,
            admissions: head.admissions,
            next_target: head.next_target,
            retention,
            choices,
            history,
            broken,
            voids,
            heeded,
            ..Ledger::default()
        };
        for (id, TargetRecord { index, epoch, understands, floor }) in targets {
            ledger.target_ids.insert(id, index);
            let epoch = epoch.max(ledger.broken.epoch);
            let mut target = TargetState::new(id, epoch, revision);
            target.floor = floor;
            ledger.targets.insert(index, Arc::new(target));
            ledger.registered.insert(index);
            if let Some(understands) = understands {
                ledger.missing_capabilities.set(index, &understands);
            }
            ledger.next_target = ledger.next_target.max(index + 1);
        }
        let mut store = Bodies::assemble(bodies, &mut ledger.garbage);
        let mut by_key: BTreeMap<ObjectKey, Vec<Claim>> = BTreeMap::new();
        for (header, bitmaps) in claims {
            let mut claim = store.claim(header, bitmaps)?;
            ledger.admissions = ledger.admissions.max(claim.admitted);
            claim.restrict(&ledger.registered);
            if claim.forms.is_empty() {
                ledger.garbage.push(claim_key(&claim.id));
            } else {
                by_key.entry(claim.key.clone()).or_default().push(claim);
            }
        }
        for (input, body) in store.bodies {
            if body.variants > 0 {
                ledger.bodies.insert(input, BodyUse { variants: body.variants, parts: body.parts });
            } else {
                ledger.garbage.extend((0..body.parts).map(|part| body_key(input, part)));
            }
        }
        let mut changes = Vec::new();
        for (key, claims) in by_key {
            ledger.restore_slot(&key, claims, &mut changes);
        }
        ledger.restore_tombstones(tombstones, head.revision, &mut changes);
        ledger.restore_happened(happened);
        changes.sort_by_key(|change| change.revision);
        for change in changes {
            ledger.log.push(change, retention);
        }
        Ok(ledger)
    }
}

impl Ledger {
    fn restore_slot(&mut self, key: &ObjectKey, mut claims: Vec<Claim>, changes: &mut Vec<LogEntry>) {
        claims.sort_by(|a, b| (a.admitted, &a.id).cmp(&(b.admitted, &b.id)));
        give_way(&mut claims);
        settle(&mut claims);
        claims.iter_mut().for_each(Claim::fit);
        let mut claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
        // Collected in place it has the room of the claims themselves.
        claims.shrink_to_fit();
        for claim in &claims {
            self.put_claim(claim.clone());
            if !claim.held.is_empty() {
                let targets = claim.held.clone();
                changes.push(LogEntry { revision: claim.changed, key: key.clone(), left: None, targets });
            }
        }
        let lacking = &self.missing_capabilities;
        let difference = Difference::between((&[], lacking), (&claims, lacking));
        self.put_slot(key, claims, &difference, &mut RoaringBitmap::new());
    }

    fn restore_tombstones(
        &mut self,
        tombstones: Vec<(ObjectKey, Uid, Tombstones)>,
        whole: Revision,
        changes: &mut Vec<LogEntry>,
    ) {
        for (key, source, mut tombstones) in tombstones {
            tombstones.restrict(&self.registered);
            let held = all_held(self.slots.claims(&key));
            // Of a change that was not written whole: what it was to take out is assigned still.
            tombstones.remove_later(whole, &held);
            tombstones.accepted(self.broken.accepted, &held_continuously(self.slots.claims(&key)));
            if tombstones.is_empty() {
                self.garbage.push(self::tombstones(&key, &source, &tombstones).key);
                continue;
            }
            for ((policy, at), targets) in tombstones.policies() {
                let (left, targets) = (Some(Left { source: source.clone(), policy, at }), targets - &held);
                if !targets.is_empty() {
                    changes.push(LogEntry { revision: at, key: key.clone(), left, targets });
                }
            }
            self.tombstones.put((key, source), Some(tombstones));
        }
    }
}

impl Ledger {
    /// Of what is assigned, what ran, and what is inherited of sources that have not left since: the rest a crash has left.
    fn restore_happened(&mut self, all: Vec<(ObjectKey, Uid, Happened)>) {
        for (key, source, mut happened) in all {
            let claims = self.slots.claims(&key).iter().filter(|claim| claim.id.source.uid == source);
            let held = claims.fold(RoaringBitmap::new(), |all, claim| all | &claim.held);
            let left = self.tombstones.get(&key, &source).map(Tombstones::targets).unwrap_or_default();
            happened.restrict(&(held | (&self.registered - left)), &self.registered);
            if happened.is_empty() {
                self.garbage.push(self::happened(&key, &source, &happened).key);
            } else {
                self.put_happened((key, source), happened);
            }
        }
    }
}

/// What is kept gives way to what is wanted, where a crash has left both.
fn give_way(claims: &mut Vec<Claim>) {
    let wanted = claims.iter().filter_map(Claim::wanted).flat_map(|claim| claim.forms);
    let wanted = wanted.fold(RoaringBitmap::new(), |all, form| all | form.targets);
    for claim in claims.iter_mut().filter(|claim| !claim.kept.is_disjoint(&wanted)) {
        let lost = &claim.kept & &wanted;
        let all = claim.forms.iter().fold(RoaringBitmap::new(), |all, form| all | &form.targets);
        claim.restrict(&(all - lost));
    }
    claims.retain(|claim| !claim.forms.is_empty());
}
