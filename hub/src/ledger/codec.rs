//! How one record is written and read: its key, JSON, and frames of JSON and bitmaps.

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tideline_common::{Digest, ObjectKey};

use super::chunks::Write;

/// What every key of the ledger begins with.
pub const KEY_PREFIX: &str = "ledger/";
/// The layout that this build writes. It reads every one before, too: the first knew no source at two destinations, and
/// none that is kept; the second nothing that happened; the third no segments, and no policy of removals; the fourth has one
/// record of all other histories; the fifth knows choices by the UID of their Placement.
pub const SCHEMA: u32 = 6;

/// Why records are not a ledger.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the ledger has schema version {found}, this build knows {SCHEMA}; run the version that wrote it, or a newer one"
    )]
    Schema { found: u32 },
    #[error("the ledger has records but no head: it is not whole; restore it from a backup")]
    Headless,
    #[error("cannot read the ledger's record {key:?}")]
    Decode {
        key: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("the ledger's record {key:?} is damaged: {what}; restore it from a backup")]
    Damaged { key: String, what: &'static str },
    #[error("the ledger names the body {input} of {key} but does not hold it; restore it from a backup")]
    BodyMissing { input: Digest, key: Box<ObjectKey> },
}

pub(super) fn key(rest: &str) -> Vec<u8> {
    [KEY_PREFIX.as_bytes(), rest.as_bytes()].concat()
}

pub(super) fn put(key: Vec<u8>, value: Vec<u8>) -> Write {
    Write { key, value: Some(value) }
}

pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("records have string keys only, and writing to memory does not fail")
}

pub(super) fn bitmap(bits: &RoaringBitmap) -> Vec<u8> {
    let mut bits = bits.clone();
    bits.optimize();
    let mut bytes = Vec::with_capacity(bits.serialized_size());
    bits.serialize_into(&mut bytes).expect("writing to memory does not fail");
    bytes
}

pub(super) fn frame<'b>(header: &impl Serialize, bitmaps: impl IntoIterator<Item = &'b RoaringBitmap>) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in std::iter::once(json(header)).chain(bitmaps.into_iter().map(bitmap)) {
        let length = u32::try_from(piece.len()).expect("a record is far below 4 GiB");
        out.extend_from_slice(&length.to_be_bytes());
        out.extend(piece);
    }
    out
}

/// Reads one record's value.
pub(super) struct Reader<'r> {
    pub(super) key: &'r str,
    pub(super) rest: &'r [u8],
}

impl<'r> Reader<'r> {
    pub(super) fn piece(&mut self) -> Result<&'r [u8], Error> {
        let truncated = || self.damaged("it is cut short");
        let (length, rest) = self.rest.split_first_chunk::<4>().ok_or_else(truncated)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (piece, rest) = rest.split_at_checked(length).ok_or_else(truncated)?;
        self.rest = rest;
        Ok(piece)
    }

    pub(super) fn json<T: Deserialize<'r>>(&self, bytes: &'r [u8]) -> Result<T, Error> {
        serde_json::from_slice(bytes).map_err(|source| Error::Decode { key: self.key.to_owned(), source })
    }

    pub(super) fn bitmap(&self, bytes: &[u8]) -> Result<RoaringBitmap, Error> {
        RoaringBitmap::deserialize_from(bytes).map_err(|_| self.damaged("a bitmap cannot be read"))
    }

    pub(super) fn next_bitmap(&mut self) -> Result<RoaringBitmap, Error> {
        let piece = self.piece()?;
        self.bitmap(piece)
    }

    pub(super) fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { key: self.key.to_owned(), what }
    }
}
