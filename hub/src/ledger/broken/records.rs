//! What is known of other histories, on disk: a record of what was accepted last, and one of each target and each segment.
//!
//! An accept is done when the last of its records is written. Until then a crash leaves something that is not covered, so that
//! it is done again, all of it: what follows from an accept comes before what it covers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde::{Deserialize, Serialize};
use tideline_common::{Digest, Epoch, Revision, SegmentId, TargetId};

use super::{Broken, Claim, Draft, Heeded, Seen};
use crate::ledger::chunks::Write;
use crate::ledger::codec::{Error, Reader, json, key};

/// The record `broken`. Of an older hub it holds the others, too.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BrokenRecord {
    epoch: Epoch,
    accepted: Revision,
    proven: Epoch,
    #[serde(flatten, skip_serializing)]
    undivided: Undivided,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Undivided {
    seen: BTreeMap<SegmentId, Seen>,
    claims: BTreeMap<TargetId, Claim>,
    accepted_restore: Option<String>,
    leaving: BTreeSet<TargetId>,
    released: BTreeMap<TargetId, String>,
}

/// What differs from what is known, in the order in which a crash does no harm.
pub(in crate::ledger) fn writes(draft: &Draft, known: &Broken) -> Vec<Write> {
    let Draft { broken, voids, voided: _, heeded } = draft;
    let mut writes: Vec<_> =
        voids.iter().map(|(approval, void)| write(&format!("void/{approval}"), void.as_ref())).collect();
    if let Some(broken) = broken {
        writes.extend(known_of_others(broken, known));
    }
    let heeded = heeded.iter().map(|(object, heeded)| (object, (*heeded == Heeded::Now).then_some(&true)));
    writes.extend(heeded.map(|(object, heeded)| write(&format!("heeded/{object}"), heeded)));
    writes
}

fn known_of_others(broken: &Broken, known: &Broken) -> Vec<Write> {
    let mut writes = Vec::new();
    let Broken { epoch, accepted, proven, seen, claims, accepted_restore, leaving, released, .. } = broken;
    let nothing = Broken::default();
    let former = if known.is_undivided { &nothing } else { known };
    if known.is_undivided || (epoch, accepted, proven) != (&former.epoch, &former.accepted, &former.proven) {
        let undivided = Undivided::default();
        let head = BrokenRecord { epoch: *epoch, accepted: *accepted, proven: *proven, undivided };
        writes.push(write("broken", Some(&head)));
    }
    let set = |targets: &BTreeSet<TargetId>| targets.iter().map(|target| (*target, true)).collect::<BTreeMap<_, _>>();
    writes.extend(differing("leaving", &set(&former.leaving), &set(leaving)));
    writes.extend(differing("released", &former.released, released));
    writes.extend(differing("claimed", &former.claims, claims));
    writes.extend(differing("seen", former.seen.by_id(), seen.by_id()));
    if *accepted_restore != former.accepted_restore {
        writes.push(write("accepted-restore", accepted_restore.as_ref()));
    }
    if known.is_undivided {
        // It has all of this until all of this is written.
        let at = writes.iter().position(|write| write.key == key("broken")).expect("it was put there above");
        writes[at..].rotate_left(1);
    }
    writes
}

fn differing<K: Ord + Display, V: PartialEq + Serialize>(
    kind: &str,
    former: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) -> Vec<Write> {
    let all: BTreeSet<&K> = former.keys().chain(now.keys()).collect();
    let differ = all.into_iter().filter(|of| former.get(of) != now.get(of));
    differ.map(|of| write(&format!("{kind}/{of}"), now.get(of))).collect()
}

fn write(path: &str, value: Option<&impl Serialize>) -> Write {
    Write { key: key(path), value: value.map(json) }
}

/// Reads one of these records.
pub(in crate::ledger) fn take(broken: &mut Broken, reader: &Reader<'_>, (kind, of): (&str, &str)) -> Result<(), Error> {
    let target = || of.parse::<TargetId>().map_err(|_| reader.damaged("its key names no target"));
    match kind {
        "leaving" => {
            let _true: bool = reader.json(reader.rest)?;
            broken.leaving.insert(target()?);
        }
        "released" => {
            broken.released.insert(target()?, reader.json(reader.rest)?);
        }
        "claimed" => {
            broken.claims.insert(target()?, reader.json(reader.rest)?);
        }
        "seen" => {
            let segment = of.parse().map_err(|_| reader.damaged("its key names no segment"))?;
            broken.seen.put(segment, reader.json(reader.rest)?);
        }
        "accepted-restore" => broken.accepted_restore = Some(reader.json(reader.rest)?),
        _ => {
            let BrokenRecord { epoch, accepted, proven, undivided } = reader.json(reader.rest)?;
            (broken.epoch, broken.accepted, broken.proven) = (epoch, accepted, proven);
            broken.join(undivided);
        }
    }
    Ok(())
}

impl Broken {
    /// What is in a record of its own by now is the same there.
    fn join(&mut self, undivided: Undivided) {
        let Undivided { seen, claims, accepted_restore, leaving, released } = undivided;
        let some = accepted_restore.is_some() || !seen.is_empty() || !claims.is_empty() || !leaving.is_empty();
        self.is_undivided = some || !released.is_empty();
        for (segment, seen) in seen {
            self.seen.put(segment, seen);
        }
        self.claims.extend(claims);
        self.released.extend(released.into_iter().map(|(target, word)| (target, Digest::of(word.as_bytes()))));
        self.leaving.extend(leaving);
        self.accepted_restore = self.accepted_restore.take().or(accepted_restore);
    }
}
