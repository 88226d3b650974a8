//! How writes are cut into groups that the engine writes whole or not at all.
//!
//! sled takes several kilobytes of memory for each change of a transaction, so a group has few. A set that changes in more
//! places is written in parts beside the one that is accepted, each compressed; then one small group says that they are
//! all there, which is the switch; then they are moved into place. What a crash leaves of that is moved at the next start.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tideline_common::wire::v1::Attested;
use tideline_common::{ApplyPolicy, Entry, ObjectKey};

use super::Error;
use super::bodies::Ahead;
use super::engine::{Change, Engine, Table};
use super::record::{self, ACCEPTED_KEY};
use crate::core::Write;

/// Changes of one group. Of the five kilobytes that each takes, as measured with sled 0.34.7, one or two megabytes.
const GROUP_CHANGES_MAX: usize = 256;
/// Bytes of one group, for bodies are large.
const GROUP_BYTES_MAX: u64 = 1 << 20;

const SWITCH_KEY: &[u8] = b"switch";

/// The parts are all there; this set is accepted once they are in place.
#[derive(Serialize, Deserialize)]
struct Switch {
    accepted: Attested,
}

/// Some of what changes.
#[derive(Default, Serialize, Deserialize)]
struct Part {
    remove: Vec<ObjectKey>,
    put: Vec<Entry>,
}

/// Borrowed, to be written.
#[derive(Serialize)]
struct PartRef<'a> {
    remove: &'a [ObjectKey],
    put: Vec<&'a Entry>,
}

/// Hands the groups that `writes` come to to `commit`, one after the other, so that only one of them is in memory.
pub(super) fn groups(
    writes: &[Write],
    bodies: &mut Ahead<'_>,
    commit: &mut impl FnMut(Vec<Change>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut group = Vec::new();
    let mut staged = Vec::new();
    for (index, write) in writes.iter().enumerate() {
        match write {
            Write::Accept { accepted, put, remove, policies } if put.len() + remove.len() > GROUP_CHANGES_MAX => {
                commit(std::mem::take(&mut group))?;
                for (key, part) in parts(put, remove) {
                    commit(vec![record::put_compressed(Table::Staged, key, &part)])?;
                }
                group.extend(policies.iter().map(|policy| policy_change(policy)));
                group.push(record::put(Table::Meta, SWITCH_KEY.to_vec(), &Switch { accepted: *accepted }));
                staged.push((accepted, put, remove));
            }
            write => record::changes(write, bodies, &mut group)?,
        }
        let full = group.len() >= GROUP_CHANGES_MAX || group.iter().map(Change::bytes).sum::<u64>() >= GROUP_BYTES_MAX;
        // Nothing belongs to a set's parts but what follows in its group.
        if full && staged.is_empty() && stands_alone(write, writes.get(index + 1)) {
            commit(std::mem::take(&mut group))?;
        }
    }
    commit(group)?;
    for (accepted, put, remove) in staged {
        let mut moves = parts(put, remove).peekable();
        while let Some((key, PartRef { remove, put })) = moves.next() {
            let mut group = vec![record::take(Table::Staged, key)];
            place(&put, remove, &mut group);
            if moves.peek().is_none() {
                group.push(record::put(Table::Meta, ACCEPTED_KEY.to_vec(), accepted));
                group.push(record::take(Table::Meta, SWITCH_KEY.to_vec()));
            }
            commit(group)?;
        }
    }
    Ok(())
}

/// Moves the parts of a set into place that a crash left; drops those of one that was not switched to.
pub(super) fn finish(engine: &Engine) -> Result<(), Error> {
    let switch = engine.get(Table::Meta, SWITCH_KEY)?;
    let switch: Option<Switch> = switch.map(|value| record::read(Table::Meta, SWITCH_KEY, &value)).transpose()?;
    let mut keys = Vec::new();
    engine.scan(Table::Staged, |key, _| {
        keys.push(key.to_vec());
        Ok(())
    })?;
    let mut groups = Vec::new();
    for key in keys {
        let mut group = vec![record::take(Table::Staged, key.clone())];
        if switch.is_some() {
            let value = engine.get(Table::Staged, &key)?.unwrap_or_default();
            let Part { remove, put } = record::read_compressed(Table::Staged, &key, &value)?;
            place(&put.iter().collect::<Vec<_>>(), &remove, &mut group);
        }
        groups.push(group);
    }
    if let Some(Switch { accepted }) = switch {
        groups.push(vec![
            record::put(Table::Meta, ACCEPTED_KEY.to_vec(), &accepted),
            record::take(Table::Meta, SWITCH_KEY.to_vec()),
        ]);
    }
    engine.commit(&groups).map(drop)
}

/// The parts of a change with their keys.
fn parts<'a>(put: &'a [Arc<Entry>], remove: &'a [ObjectKey]) -> impl Iterator<Item = (Vec<u8>, PartRef<'a>)> {
    let removed = remove.chunks(GROUP_CHANGES_MAX).map(|remove| PartRef { remove, put: Vec::new() });
    let written =
        put.chunks(GROUP_CHANGES_MAX).map(|put| PartRef { remove: &[], put: put.iter().map(AsRef::as_ref).collect() });
    let keys = (0_u32..).map(|number| number.to_be_bytes().to_vec());
    keys.zip(removed.chain(written))
}

fn place(put: &[&Entry], remove: &[ObjectKey], group: &mut Vec<Change>) {
    group.extend(remove.iter().map(|key| record::take(Table::Entries, record::object_key(key))));
    group.extend(put.iter().map(|entry| record::put(Table::Entries, record::object_key(&entry.key), *entry)));
}

pub(super) fn policy_change(policy: &ApplyPolicy) -> Change {
    record::put(Table::Policies, policy.digest().as_bytes().to_vec(), policy)
}

/// Whether nothing is lost if a crash comes between the two.
fn stands_alone(write: &Write, next: Option<&Write>) -> bool {
    match write {
        Write::Body { .. } => true,
        Write::Applied { .. } => matches!(next, Some(Write::Applied { .. })),
        Write::Passed { .. } => matches!(next, Some(Write::Passed { .. })),
        Write::Held(_) | Write::Holding(true) => matches!(next, Some(Write::Held(_) | Write::Holding(false))),
        Write::Enrolled(_)
        | Write::Accept { .. }
        | Write::Forgotten { .. }
        | Write::Removing { .. }
        | Write::Removed(_)
        | Write::Lapsed { .. }
        | Write::Unheld(_)
        | Write::Holding(false)
        | Write::History(_)
        | Write::Mode(_)
        | Write::Decommission(_)
        | Write::Unsent(_)
        | Write::Sent { .. }
        | Write::Ran { .. }
        | Write::RanForgotten { .. }
        | Write::Kind { .. }
        | Write::CameBack(_)
        | Write::CameBackNoMore { .. }
        | Write::DropBodies(_) => false,
    }
}
