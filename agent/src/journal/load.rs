//! Reads at the start what the core needs, and judges whether it can be believed.

use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tideline_common::{ApplyPolicy, Capabilities, Digest, Entry, ObjectKey, SetDigest};

use super::Error;
use super::bodies::{Numbers, Position};
use super::change::{Change, Table};
use super::engine::Engine;
use super::group::{Gathered, Group};
use super::record::{
    self, ACCEPTED_KEY, CAPABILITIES_KEY, DECOMMISSION_KEY, ENROLLED_KEY, HISTORY_KEY, MODE_KEY, SCHEMA, SCHEMA_KEY,
};
use super::{space, stage};
use crate::core::{AppliedRecord, Loaded, Shared};

/// What was read, and the state of the journal.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) loaded: Loaded,
    /// Records that nothing names, which nothing else ever drops.
    pub(super) unnamed: Vec<Change>,
    /// For bodies that come.
    pub(super) numbers: Numbers,
    /// Bytes of the journal's content, bodies included.
    pub(super) live: u64,
    /// Bytes read.
    pub(super) read: u64,
}

/// Reads everything but the bodies of the journal in `path`. `existed` says that a journal was there before it was opened; `step` is called as this
/// gets on.
pub(super) fn load(path: &Path, engine: &Engine, existed: bool, step: &dyn Fn()) -> Result<Contents, Error> {
    check_schema(engine, existed)?;
    check_capabilities(engine)?;
    let mut finishing = Gathered::new(|groups: &[Group]| {
        step();
        let bytes = groups.iter().map(Group::bytes).sum();
        if bytes == 0 {
            return Ok(());
        }
        // It may be as much as any write, and is finished when there is room.
        space::require_for_finishing(path, bytes)?;
        engine.commit(groups).map(drop)
    });
    stage::finish(engine, &mut |group| finishing.push(group).map(drop))?;
    finishing.commit()?;
    let mut loaded = Loaded {
        enrolled: meta(engine, ENROLLED_KEY)?,
        accepted: meta(engine, ACCEPTED_KEY)?,
        history: meta(engine, HISTORY_KEY)?.unwrap_or_default(),
        mode: meta(engine, MODE_KEY)?.unwrap_or_default(),
        decommission: meta(engine, DECOMMISSION_KEY)?.unwrap_or_default(),
        ..Loaded::default()
    };
    let (mut read, mut bodies, mut next_body) = (0, 0, 0);
    let mut count = |key: &[u8], value: &[u8]| {
        step();
        read += (key.len() + value.len()) as u64;
    };
    let mut shared = Shared::default();
    engine.scan(Table::Entries, |key, value| {
        count(key, value);
        let mut entry: Arc<Entry> = record::read(Table::Entries, key, value)?;
        shared.entry(&mut entry);
        loaded.entries.push(entry);
        Ok(())
    })?;
    // About as many, of a few hundred bytes each: growing by doubling, it would be there twice at the end.
    loaded.applied.reserve_exact(loaded.entries.len());
    engine.scan(Table::Applied, |key, value| {
        count(key, value);
        let mut applied: (ObjectKey, AppliedRecord) = record::read(Table::Applied, key, value)?;
        shared.applied(&mut applied.0, &mut applied.1);
        loaded.applied.push(applied);
        Ok(())
    })?;
    loaded.removing = rows(engine, Table::Removing, &mut count)?;
    loaded.passed = numbered(engine, Table::Passed, &mut count)?;
    loaded.held = rows(engine, Table::Held, &mut count)?;
    loaded.ran = numbered(engine, Table::Ran, &mut count)?;
    loaded.creating = rows(engine, Table::Creating, &mut count)?;
    loaded.kinds = rows(engine, Table::Kinds, &mut count)?;
    loaded.came_back = rows(engine, Table::RestoredObject, &mut count)?;
    loaded.unsent = rows(engine, Table::Unsent, &mut count)?;
    engine.scan(Table::Inputs, |key, value| {
        count(key, value);
        let position: Position = record::read(Table::Inputs, key, value)?;
        bodies += (key.len() + position.len) as u64;
        next_body = next_body.max(position.at + 1);
        loaded.bodies.insert(record::digest(key)?);
        Ok(())
    })?;
    let unnamed = load_policies(engine, &mut loaded)?;
    check_set(&loaded)?;
    Ok(Contents { loaded, unnamed, numbers: Numbers::new(next_body), live: read + bodies, read })
}

/// All of a table.
fn rows<T: DeserializeOwned>(
    engine: &Engine,
    table: Table,
    count: &mut impl FnMut(&[u8], &[u8]),
) -> Result<Vec<T>, Error> {
    let mut rows = Vec::new();
    engine.scan(table, |key, value| {
        count(key, value);
        rows.push(record::read(table, key, value)?);
        Ok(())
    })?;
    Ok(rows)
}

/// All of a table whose rows are numbered.
fn numbered<T: DeserializeOwned>(
    engine: &Engine,
    table: Table,
    count: &mut impl FnMut(&[u8], &[u8]),
) -> Result<Vec<(u64, T)>, Error> {
    let mut rows = Vec::new();
    engine.scan(table, |key, value| {
        count(key, value);
        rows.push((number(key)?, record::read(table, key, value)?));
        Ok(())
    })?;
    Ok(rows)
}

/// The key of a numbered row.
fn number(key: &[u8]) -> Result<u64, Error> {
    let bytes = <[u8; 8]>::try_from(key).map_err(|_| Error::Damaged("a key is no number".to_owned()))?;
    Ok(u64::from_be_bytes(bytes))
}

fn meta<T: DeserializeOwned>(engine: &Engine, key: &[u8]) -> Result<Option<T>, Error> {
    engine.get(Table::Meta, key)?.map(|value| record::read(Table::Meta, key, &value)).transpose()
}

fn check_schema(engine: &Engine, existed: bool) -> Result<(), Error> {
    match meta::<String>(engine, SCHEMA_KEY)? {
        Some(found) if found == SCHEMA => Ok(()),
        Some(found) => Err(Error::Newer { found, reads: SCHEMA }),
        // sled takes a directory whose log is gone for a new one.
        None if existed => Err(Error::Damaged("its content is gone".to_owned())),
        None => write_schema(engine),
    }
}

/// What an agent does not understand is withheld from it by the hub, and it is not to find it in the journal of a newer one.
fn check_capabilities(engine: &Engine) -> Result<(), Error> {
    let found = meta::<Capabilities>(engine, CAPABILITIES_KEY)?;
    if let Some(capability) = found.as_ref().and_then(|found| found.unknown().next()) {
        return Err(Error::UnderstandsMore { capability: capability.to_owned() });
    }
    let own = Capabilities::all();
    if found.as_ref() == Some(&own) {
        return Ok(());
    }
    engine.commit(&[[record::put(Table::Meta, CAPABILITIES_KEY.to_vec(), &own)].into()]).map(drop)
}

fn write_schema(engine: &Engine) -> Result<(), Error> {
    engine.commit(&[[record::put(Table::Meta, SCHEMA_KEY.to_vec(), SCHEMA)].into()]).map(drop)
}

/// Reads the policies that entries or applied objects name, and returns the others.
fn load_policies(engine: &Engine, loaded: &mut Loaded) -> Result<Vec<Change>, Error> {
    // The policy from when it was assigned decides what becomes of an object when it is not.
    let applied = loaded.applied.iter().map(|(_, record)| record.policy);
    let named: std::collections::BTreeSet<Digest> =
        loaded.entries.iter().map(|entry| entry.policy).chain(applied).collect();
    let mut unnamed = Vec::new();
    engine.scan(Table::Policies, |key, value| {
        let policy: ApplyPolicy = record::read(Table::Policies, key, value)?;
        let digest = record::digest(key)?;
        if named.contains(&digest) {
            loaded.policies.insert(digest, Arc::new(policy));
        } else {
            unnamed.push(record::take(Table::Policies, key.to_vec()));
        }
        Ok(())
    })?;
    Ok(unnamed)
}

/// The entries must be the accepted set: they were written together.
fn check_set(loaded: &Loaded) -> Result<(), Error> {
    let Some(accepted) = loaded.accepted.map(|accepted| accepted.set) else { return Ok(()) };
    let mut set = SetDigest::default();
    loaded.entries.iter().for_each(|entry| set.add(entry.hash()));
    if set.digest() == accepted.digest {
        Ok(())
    } else {
        let entries = loaded.entries.len();
        Err(Error::Damaged(format!("its {entries} entries are not the set {} it names", accepted.version)))
    }
}
