//! How writes become keys and values. Values are JSON behind a checksum over key and value; bodies are compressed.

use std::io::Read as _;

use flate2::bufread::DeflateDecoder;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tideline_common::{Digest, GroupKind, ObjectKey, Tombstone};

use super::Error;
use super::change::{Change, Table};
use crate::core::Write;

/// The layout of everything below. Raised when an older build could not read it any more.
pub(super) const SCHEMA: &str = "2";

pub(super) const SCHEMA_KEY: &[u8] = b"schema";
/// The capabilities of the build that wrote last: an older one would ignore parts of its sets.
pub(super) const CAPABILITIES_KEY: &[u8] = b"capabilities";
pub(super) const ENROLLED_KEY: &[u8] = b"enrolled";
pub(super) const ACCEPTED_KEY: &[u8] = b"accepted";
pub(super) const HISTORY_KEY: &[u8] = b"history";
/// Named as in the golden data directory.
pub(super) const MODE_KEY: &[u8] = b"standing";
pub(super) const DECOMMISSION_KEY: &[u8] = b"decommission";

const CHECKSUM_BYTES: usize = 4;
/// What a value of a few bytes takes compressed, at most.
const DEFLATE_ROOM: usize = 64;

/// Calls `each` with the changes of a write, one after the other, for a set may be large. Bodies are not among them: their
/// positions depend on what is stored.
pub(super) fn changes(write: &Write, each: &mut impl FnMut(Change) -> Result<(), Error>) -> Result<(), Error> {
    let number_key = |number: &u64| number.to_be_bytes().to_vec();
    let last = match write {
        Write::Enrolled(enrolled) => {
            each(put(Table::Meta, ENROLLED_KEY.to_vec(), enrolled))?;
            // A set is of one target.
            take(Table::Meta, ACCEPTED_KEY.to_vec())
        }
        Write::Accept { accepted, put: entries, remove, policies } => {
            for (digest, policy) in policies {
                each(put(Table::Policies, digest.as_bytes().to_vec(), policy.as_ref()))?;
            }
            for key in remove {
                each(take(Table::Entries, object_key(key)))?;
            }
            for entry in entries {
                each(put(Table::Entries, object_key(&entry.key), entry.as_ref()))?;
            }
            put(Table::Meta, ACCEPTED_KEY.to_vec(), accepted)
        }
        Write::Applied { key, record } => put(Table::Applied, object_key(key), &(key, record)),
        Write::Forgotten { key } => take(Table::Applied, object_key(key)),
        Write::Removing { tombstone, policy } => put(Table::Removing, tombstone_key(tombstone), &(tombstone, policy)),
        Write::Removed(tombstone) => take(Table::Removing, tombstone_key(tombstone)),
        Write::Passed { number, tombstone } => put(Table::Passed, number_key(number), tombstone),
        Write::Lapsed { number } => take(Table::Passed, number_key(number)),
        Write::Held(tombstone) => put(Table::Held, tombstone_key(tombstone), tombstone),
        Write::Unheld(tombstone) => take(Table::Held, tombstone_key(tombstone)),
        Write::History(history) => put(Table::Meta, HISTORY_KEY.to_vec(), history),
        Write::Mode(mode) => put(Table::Meta, MODE_KEY.to_vec(), mode),
        Write::Decommission(how) => put(Table::Meta, DECOMMISSION_KEY.to_vec(), how),
        Write::Unsent(report) => put(Table::Unsent, object_key(&report.key), report),
        Write::Sent { key } => take(Table::Unsent, object_key(key)),
        Write::Ran { number, tombstone } => put(Table::Ran, number_key(number), tombstone),
        Write::RanForgotten { number } => take(Table::Ran, number_key(number)),
        Write::Creating(creation) => put(Table::Creating, tombstone_key(creation), creation),
        Write::CreationKnown(creation) => take(Table::Creating, tombstone_key(creation)),
        Write::Kind { kind, version } => put(Table::Kinds, kind_key(kind), &(kind, version)),
        Write::RestoredObject(it) => put(Table::RestoredObject, object_key(&it.key), it),
        Write::RestoredGone { key } => take(Table::RestoredObject, object_key(key)),
        Write::DropPolicies(policies) => {
            return policies.iter().try_for_each(|digest| each(take(Table::Policies, digest.as_bytes().to_vec())));
        }
        Write::Body { .. } | Write::DropBodies(_) => return Ok(()),
    };
    each(last)
}

pub(super) fn put<T: Serialize + ?Sized>(table: Table, key: Vec<u8>, value: &T) -> Change {
    let json = serde_json::to_vec(value).expect("the journal's records have string keys and finite numbers only");
    put_bytes(table, key, &json)
}

pub(super) fn take(table: Table, key: Vec<u8>) -> Change {
    Change { table, key, value: None }
}

/// Reads a value back.
pub(super) fn read<T: DeserializeOwned>(table: Table, key: &[u8], value: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(checked(table, key, value)?)
        .map_err(|error| Error::Damaged(format!("a record of {table:?} cannot be read: {error}")))
}

/// Checks a value without reading it.
pub(super) fn check(table: Table, key: &[u8], value: &[u8]) -> Result<(), Error> {
    checked(table, key, value).map(|_bytes| ())
}

/// A key that is a digest: of a body, or of a policy.
pub(super) fn digest(key: &[u8]) -> Result<Digest, Error> {
    let bytes = <[u8; 32]>::try_from(key).map_err(|_| Error::Damaged("a key is no digest".to_owned()))?;
    Ok(Digest::from_bytes(bytes))
}

/// Parts separated by NUL, which no part of a key can hold, so that keys sort as [`ObjectKey`] does.
pub(super) fn object_key(key: &ObjectKey) -> Vec<u8> {
    let ObjectKey { kind, namespace, name } = key;
    [kind.group.as_bytes(), kind.kind.as_bytes(), namespace.as_bytes(), name.as_bytes()].join(&0)
}

fn kind_key(kind: &GroupKind) -> Vec<u8> {
    [kind.group.as_bytes(), kind.kind.as_bytes()].join(&0)
}

fn tombstone_key(tombstone: &Tombstone) -> Vec<u8> {
    let mut key = object_key(&tombstone.key);
    key.push(0);
    key.extend_from_slice(tombstone.source.text().as_bytes());
    key
}

pub(super) fn put_bytes(table: Table, key: Vec<u8>, bytes: &[u8]) -> Change {
    let mut value = Vec::with_capacity(CHECKSUM_BYTES + bytes.len());
    value.extend_from_slice(&checksum(&key, bytes));
    value.extend_from_slice(bytes);
    Change { table, key, value: Some(value) }
}

pub(super) fn checked<'a>(table: Table, key: &[u8], value: &'a [u8]) -> Result<&'a [u8], Error> {
    match value.split_at_checked(CHECKSUM_BYTES) {
        Some((sum, bytes)) if sum == checksum(key, bytes) => Ok(bytes),
        _ => Err(Error::Damaged(format!("the checksum of a record of {table:?} is wrong"))),
    }
}

fn checksum(key: &[u8], bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut crc = Crc::new();
    crc.update(key);
    crc.update(bytes);
    crc.sum().to_be_bytes()
}

pub(super) fn deflate(bytes: &[u8]) -> Vec<u8> {
    Deflater::new().deflate(bytes)
}

/// Compresses value after value. Its state has some 300 KiB, many times a body, and is made once for all of a write.
pub(super) struct Deflater(Compress);

impl Deflater {
    pub(super) fn new() -> Self {
        Self(Compress::new(Compression::fast(), false))
    }

    pub(super) fn deflate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Self(state) = self;
        state.reset();
        let mut compressed = Vec::with_capacity(bytes.len() / 3 + DEFLATE_ROOM);
        let mut rest = bytes;
        loop {
            let before = state.total_in();
            let status = state.compress_vec(rest, &mut compressed, FlushCompress::Finish);
            let taken = usize::try_from(state.total_in() - before).expect("no more than there is");
            rest = &rest[taken..];
            match status.expect("a state that was reset takes any bytes") {
                Status::StreamEnd => return compressed,
                Status::Ok | Status::BufError => compressed.reserve(bytes.len() / 3 + DEFLATE_ROOM),
            }
        }
    }
}

/// Reads back what [`deflate`] made of a value.
pub(super) fn inflate(table: Table, compressed: &[u8]) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    match DeflateDecoder::new(compressed).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Error::Damaged(format!("a record of {table:?} cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests;
