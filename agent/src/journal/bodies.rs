//! Where bodies are: each has a number, and numbers rise, so that bodies lie in the order in which they came. By their
//! digests they would lie anywhere, and each that is written would bring fifteen others into memory and the log.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::DeflateDecoder;
use serde::{Deserialize, Serialize};
use tideline_common::Digest;
use tideline_common::limits::BODY_BYTES_MAX;

use super::Error;
use super::change::{Change, Table};
use super::record::{self, Deflater};

/// Bodies that are remembered to have been refused, of 32 bytes each. Others are refused again until there is room.
const REFUSED_MAX: usize = 1_000;

/// What is known of a body without reading it: its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) at: u64,
    /// Bytes that it takes, compressed.
    pub(super) len: usize,
}

impl Position {
    pub(super) fn key(self) -> Vec<u8> {
        self.at.to_be_bytes().to_vec()
    }
}

/// Where records are read.
pub(super) trait Records {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;
}

/// Gives out numbers.
#[derive(Debug, Default)]
pub(super) struct Numbers(AtomicU64);

impl Numbers {
    pub(super) fn new(next: u64) -> Self {
        Self(AtomicU64::new(next))
    }

    fn take(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The bodies as they will be when the present write is done.
pub(super) struct Ahead<'a> {
    records: &'a dyn Records,
    numbers: &'a Numbers,
    changed: BTreeMap<Digest, Option<Position>>,
    deflater: Option<Deflater>,
}

impl<'a> Ahead<'a> {
    pub(super) fn of(records: &'a dyn Records, numbers: &'a Numbers) -> Self {
        Self { records, numbers, changed: BTreeMap::new(), deflater: None }
    }

    /// Calls `each` with a body and what says that it is there: a log that is written anew leaves out what nothing says that
    /// it is there.
    pub(super) fn put(
        &mut self,
        input: Digest,
        text: &str,
        each: &mut impl FnMut([Change; 2]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let former = self.position(input)?;
        let body = self.deflater.get_or_insert_with(Deflater::new).deflate(text.as_bytes());
        let at = former.map_or_else(|| self.numbers.take(), |former| former.at);
        let position = Position { at, len: body.len() };
        self.changed.insert(input, Some(position));
        each([
            record::put_bytes(Table::Bodies, position.key(), &[input.as_bytes().as_slice(), &body].concat()),
            record::put(Table::Inputs, input.as_bytes().to_vec(), &position),
        ])
    }

    /// Likewise for bodies that go. They go in the order in which they lie, for each brings those beside it into memory and
    /// the log.
    pub(super) fn drop_all(
        &mut self,
        inputs: impl IntoIterator<Item = Digest>,
        each: &mut impl FnMut([Change; 2]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut going = Vec::new();
        for input in inputs {
            going.extend(self.position(input)?.map(|position| (position, input)));
        }
        going.sort_unstable();
        for (position, input) in going {
            self.changed.insert(input, None);
            each([
                record::take(Table::Bodies, position.key()),
                record::take(Table::Inputs, input.as_bytes().to_vec()),
            ])?;
        }
        Ok(())
    }

    fn position(&self, input: Digest) -> Result<Option<Position>, Error> {
        match self.changed.get(&input) {
            Some(position) => Ok(*position),
            None => position(self.records, input),
        }
    }
}

fn position(records: &dyn Records, input: Digest) -> Result<Option<Position>, Error> {
    let key = input.as_bytes();
    records.get(Table::Inputs, key)?.map(|value| record::read(Table::Inputs, key, &value)).transpose()
}

/// Bodies that the medium refused when they were read last. A refusal may pass; one that was refused twice in a row is
/// damaged, and fetched again.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<BTreeSet<Digest>>);

impl Refused {
    pub(super) fn judge(&self, input: Digest, outcome: Result<Arc<str>, Error>) -> Result<Arc<str>, Error> {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = refused.remove(&input);
        match outcome {
            Err(error @ Error::Io { .. }) if error.is_of_damage() => {
                if before {
                    return Err(Error::Damaged(tideline_runtime::exit::chain(&error)));
                }
                if refused.len() < REFUSED_MAX {
                    refused.insert(input);
                }
                Err(error)
            }
            outcome => outcome,
        }
    }
}

/// Reads a body.
pub(super) fn read(records: &dyn Records, input: Digest) -> Result<Arc<str>, Error> {
    let position = position(records, input)?.ok_or(Error::NoBody(input))?;
    let key = position.key();
    let value = records.get(Table::Bodies, &key)?.ok_or(Error::NoBody(input))?;
    let bytes = record::checked(Table::Bodies, &key, &value)?;
    let compressed = bytes
        .strip_prefix(input.as_bytes())
        .ok_or_else(|| Error::Damaged(format!("another body is stored instead of {input}")))?;
    let mut text = String::new();
    DeflateDecoder::new(compressed)
        .take(BODY_BYTES_MAX as u64)
        .read_to_string(&mut text)
        .map_err(|error| Error::Damaged(format!("the body {input} cannot be read: {error}")))?;
    Ok(text.into())
}
