//! How a batch of writes becomes groups, none of which is large, so that a crash between any two of them leaves nothing in part.
//!
//! ```text
//!  bodies that come │ what belongs together                             │ bodies that go
//!   group by group  │ in one group, if it fits                          │  group by group
//!                   │ else: its parts, staged ─▶ switch ─▶ put in place │
//! ```
//!
//! A body is written before anything names it, and removed after nothing does, so that bodies need not be written together:
//! each comes and goes with the record of its position. Everything else in a batch belongs together: a set with its removals,
//! above all. The part that is too much for one group is written in parts beside the present state, each compressed; then one
//! small group says that they are complete, which is the switch; then they are put in place. What a crash leaves of that is
//! put in place at the next start, or dropped, if it came before the switch.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tideline_common::Digest;

use super::Error;
use super::bodies::Ahead;
use super::change::{Change, Table};
use super::engine::Engine;
use super::group::{Cutter, Group};
use super::record;
use crate::core::Write;

const SWITCH_KEY: &[u8] = b"switch";

/// The parts are complete: they are the present state.
#[derive(Serialize, Deserialize)]
struct Switch {
    parts: u32,
    /// No part is dropped before the switch is. Earlier versions, whose records do not say so, dropped each as it was put in
    /// place, the first one first, and the switch last.
    #[serde(default)]
    whole: bool,
}

/// Hands the groups that `writes` come to to `write`, one after the other, so that only one of them is in memory.
pub(super) fn groups(
    writes: &[Write],
    bodies: &mut Ahead<'_>,
    write: &mut impl FnMut(Group) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut coming = Cutter::new(&mut *write);
    for write in writes {
        if let Write::Body { input, text } = write {
            bodies.put(*input, text, &mut |changes| coming.push(changes))?;
        }
    }
    coming.finish()?;
    let others = || writes.iter().filter(|write| !matches!(write, Write::Body { .. } | Write::DropBodies(_)));
    if others().all(stands_alone) {
        let mut cutter = Cutter::new(&mut *write);
        changes(writes, |change| cutter.push([change]))?;
        cutter.finish()?;
    } else {
        whole(writes, write)?;
    }
    let mut going = Cutter::new(write);
    bodies.drop_all(dropped(writes), &mut |changes| going.push(changes))?;
    going.finish()
}

/// Whether it says something of one object by itself, so that nothing is lost if a crash comes between it and another such.
fn stands_alone(write: &Write) -> bool {
    match write {
        Write::Applied { .. } | Write::Passed { .. } | Write::Kind { .. } => true,
        Write::Body { .. }
        | Write::Enrolled(_)
        | Write::Accept { .. }
        | Write::Forgotten { .. }
        | Write::Removing { .. }
        | Write::Removed(_)
        | Write::Lapsed { .. }
        | Write::Held(_)
        | Write::Unheld(_)
        | Write::History(_)
        | Write::Mode(_)
        | Write::Decommission(_)
        | Write::Unsent(_)
        | Write::Sent { .. }
        | Write::Ran { .. }
        | Write::RanForgotten { .. }
        | Write::Creating(_)
        | Write::CreationKnown(_)
        | Write::RestoredObject(_)
        | Write::RestoredGone { .. }
        | Write::DropBodies(_)
        | Write::DropPolicies(_) => false,
    }
}

/// The bodies that are not there when all is written: one may be dropped, and come again.
fn dropped(writes: &[Write]) -> BTreeSet<Digest> {
    let mut dropped = BTreeSet::new();
    for write in writes {
        if let Write::Body { input, .. } = write {
            dropped.remove(input);
        } else if let Write::DropBodies(inputs) = write {
            dropped.extend(inputs);
        }
    }
    dropped
}

fn changes(writes: &[Write], mut each: impl FnMut(Change) -> Result<(), Error>) -> Result<(), Error> {
    writes.iter().try_for_each(|write| record::changes(write, &mut each))
}

/// Writes in one group, or has parts staged that come into force at once.
fn whole(writes: &[Write], write: &mut impl FnMut(Group) -> Result<(), Error>) -> Result<(), Error> {
    let (mut part, mut parts) = (Group::default(), 0);
    changes(writes, |change| {
        if let Err(change) = part.add([change]) {
            write(staged(parts, &std::mem::replace(&mut part, Group::from(change))))?;
            parts += 1;
        }
        Ok(())
    })?;
    if parts == 0 {
        return write(part);
    }
    write(staged(parts, &part))?;
    parts += 1;
    write([record::put(Table::Meta, SWITCH_KEY.to_vec(), &Switch { parts, whole: true })].into())?;
    let mut cutter = Cutter::new(write);
    changes(writes, |change| cutter.push([change]))?;
    cutter.push([record::take(Table::Meta, SWITCH_KEY.to_vec())])?;
    for number in 0..parts {
        cutter.push([record::take(Table::Staged, part_key(number))])?;
    }
    cutter.finish()
}

/// Hands to `write` the groups that put in place what a crash or a failing disk left, and that drop what was not switched to.
/// As in [`whole`], no part is dropped before the switch is: while that is there, a missing part is damage, except for the
/// first ones of a switch that an earlier version left.
pub(super) fn finish(engine: &Engine, write: &mut impl FnMut(Group) -> Result<(), Error>) -> Result<(), Error> {
    let mut cutter = Cutter::new(write);
    let switch = engine.get(Table::Meta, SWITCH_KEY)?;
    let switch: Option<Switch> = switch.map(|value| record::read(Table::Meta, SWITCH_KEY, &value)).transpose()?;
    if let Some(Switch { parts, whole }) = switch {
        let mut may_be_in_place = !whole;
        for key in (0..parts).map(part_key) {
            let Some(value) = engine.get(Table::Staged, &key)? else {
                if may_be_in_place {
                    continue;
                }
                return Err(Error::Damaged("a part of what was switched to is missing".to_owned()));
            };
            may_be_in_place = false;
            for change in part(&key, &value)? {
                cutter.push([change])?;
            }
        }
        cutter.push([record::take(Table::Meta, SWITCH_KEY.to_vec())])?;
    }
    let mut left = Vec::new();
    engine.scan(Table::Staged, |key, _| {
        left.push(key.to_vec());
        Ok(())
    })?;
    for key in left {
        cutter.push([record::take(Table::Staged, key)])?;
    }
    cutter.finish()
}

fn part_key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Keeps a group for later: each change as the name of its table, its key and its value, with the length before each, and
/// [`NO_VALUE`] for one that is removed.
fn staged(number: u32, group: &Group) -> Group {
    let mut bytes = Vec::new();
    for Change { table, key, value } in group.changes() {
        for some in [Some(table.name().as_bytes()), Some(key), value.as_deref()] {
            let length = some.map_or(NO_VALUE, |some| u32::try_from(some.len()).expect("nothing is that large"));
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(some.unwrap_or_default());
        }
    }
    [record::put_bytes(Table::Staged, part_key(number), &record::deflate(&bytes))].into()
}

const NO_VALUE: u32 = u32::MAX;

/// Reads back what [`staged`] kept.
fn part(key: &[u8], value: &[u8]) -> Result<Vec<Change>, Error> {
    let bytes = record::inflate(Table::Staged, record::checked(Table::Staged, key, value)?)?;
    let damaged = || Error::Damaged("a part of what is being switched to cannot be read".to_owned());
    let (mut rest, mut changes) = (bytes.as_slice(), Vec::new());
    while !rest.is_empty() {
        let mut next = || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let length = u32::from_be_bytes(*length);
            let present = length != NO_VALUE;
            let (some, behind) = behind.split_at_checked(if present { usize::try_from(length).ok()? } else { 0 })?;
            rest = behind;
            Some(present.then_some(some))
        };
        let (Some(Some(name)), Some(Some(key)), Some(value)) = (next(), next(), next()) else { return Err(damaged()) };
        let table = Table::ALL.iter().find(|table| table.name().as_bytes() == name).ok_or_else(damaged)?;
        changes.push(Change { table: *table, key: key.to_vec(), value: value.map(<[u8]>::to_vec) });
    }
    Ok(changes)
}
