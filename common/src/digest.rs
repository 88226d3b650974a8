use std::fmt;
use std::str::FromStr;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::object::ObjectKey;

/// A SHA-256 value. Written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Context::new(&SHA256);
        hasher.update(bytes);
        Self::finish(hasher)
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn finish(hasher: Context) -> Self {
        let mut out = [0; 32];
        out.copy_from_slice(hasher.finish().as_ref());
        Self(out)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest must be 64 hexadecimal digits")]
pub struct ParseDigestError;

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, ParseDigestError> {
        let nibble = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or(ParseDigestError);
        let text = text.as_bytes();
        if text.len() != 64 {
            return Err(ParseDigestError);
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(out))
    }
}

impl TryFrom<String> for Digest {
    type Error = ParseDigestError;

    fn try_from(text: String) -> Result<Self, ParseDigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// Hashes a sequence of fields so that no two different sequences hash alike: every field is preceded by its length.
///
/// Unlike a digest of JSON, the result does not change when a later version adds a field that this one ignores.
pub struct Hasher(Context);

impl Hasher {
    /// `domain` separates kinds of values that are hashed; it names the layout and its version.
    pub fn new(domain: &str) -> Self {
        let mut hasher = Self(Context::new(&SHA256));
        hasher.field(domain.as_bytes());
        hasher
    }

    pub fn field(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(&(bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    pub fn number(&mut self, value: i64) -> &mut Self {
        self.field(&value.to_be_bytes())
    }

    pub fn finish(self) -> Digest {
        Digest::finish(self.0)
    }
}

/// Buckets of a [`SetDigest`].
pub const BUCKETS: usize = 256;

/// One item's contribution to a [`SetDigest`]: its bucket and its hash. Computed once for an item however many sets
/// hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemHash {
    bucket: u8,
    hash: Digest,
}

impl ItemHash {
    /// `hash` must cover the whole item, `key` included.
    pub fn new(key: &ObjectKey, hash: Digest) -> Self {
        let mut hasher = Hasher::new("tideline/key/v1");
        hasher
            .field(key.kind.group.as_bytes())
            .field(key.kind.kind.as_bytes())
            .field(key.namespace.as_bytes())
            .field(key.name.as_bytes());
        Self { bucket: hasher.finish().0[0], hash }
    }

    pub fn bucket(&self) -> u8 {
        self.bucket
    }
}

/// The digest of a set, kept up to date item by item in constant time.
///
/// Each bucket is the sum modulo 2^256 of the hashes of its items (the additive multiset hash of Bellare and Micciancio,
/// 1997); the digest of the set is SHA-256 over the buckets. The hub signs it, so it needs to detect faults and lag, not to
/// withstand a hub that searches for collisions. 8 KiB, and less for a set of a few items: a hub has one for each target.
#[derive(Clone)]
pub struct SetDigest {
    buckets: Buckets,
}

/// A sum modulo 2^256, the least part first.
type Sum = [u64; 4];

#[derive(Clone)]
enum Buckets {
    /// Those that are not zero, in their order; at most [`FEW`].
    Few(Vec<(u8, Sum)>),
    All(Box<[Sum; BUCKETS]>),
}

/// So many buckets take two thirds of the memory of all.
const FEW: usize = 128;

impl SetDigest {
    pub fn add(&mut self, item: ItemHash) {
        let mut carry = false;
        self.change(item.bucket, |sum| {
            for (limb, other) in sum.iter_mut().zip(limbs(item.hash)) {
                (*limb, carry) = limb.carrying_add_(other, carry);
            }
        });
    }

    /// Takes out an item that was added before; any other leaves a digest of no set.
    pub fn remove(&mut self, item: ItemHash) {
        let mut borrow = false;
        self.change(item.bucket, |sum| {
            for (limb, other) in sum.iter_mut().zip(limbs(item.hash)) {
                (*limb, borrow) = limb.borrowing_sub_(other, borrow);
            }
        });
    }

    fn change(&mut self, bucket: u8, change: impl FnOnce(&mut Sum)) {
        if let Buckets::Few(few) = &mut self.buckets {
            match few.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
                Ok(at) => {
                    change(&mut few[at].1);
                    if few[at].1 == Sum::default() {
                        few.remove(at);
                    }
                    return;
                }
                Err(at) if few.len() < FEW => {
                    let mut sum = Sum::default();
                    change(&mut sum);
                    if few.len() == few.capacity() {
                        few.reserve_exact(8);
                    }
                    few.insert(at, (bucket, sum));
                    return;
                }
                Err(_) => self.buckets = Buckets::All(self.all()),
            }
        }
        if let Buckets::All(all) = &mut self.buckets {
            change(&mut all[usize::from(bucket)]);
        }
    }

    fn all(&self) -> Box<[Sum; BUCKETS]> {
        match &self.buckets {
            Buckets::All(all) => all.clone(),
            Buckets::Few(few) => {
                let mut all = Box::new([Sum::default(); BUCKETS]);
                for (bucket, sum) in few {
                    all[usize::from(*bucket)] = *sum;
                }
                all
            }
        }
    }

    pub fn digest(&self) -> Digest {
        let mut hasher = Context::new(&SHA256);
        hasher.update(b"tideline/set/v1");
        for sum in self.all().iter() {
            hasher.update(&bytes(sum));
        }
        Digest::finish(hasher)
    }

    /// Eight bytes of each bucket: enough to find those that differ between two sides that hold the whole set.
    pub fn summary(&self) -> Vec<u64> {
        self.all().iter().map(|limbs| limbs[0]).collect()
    }
}

impl PartialEq for SetDigest {
    fn eq(&self, other: &Self) -> bool {
        match (&self.buckets, &other.buckets) {
            (Buckets::Few(few), Buckets::Few(others)) => few == others,
            _ => self.all() == other.all(),
        }
    }
}

impl Eq for SetDigest {}

fn bytes(sum: &Sum) -> [u8; 32] {
    let mut out = [0; 32];
    for (chunk, limb) in out.chunks_exact_mut(8).zip(sum) {
        chunk.copy_from_slice(&limb.to_le_bytes());
    }
    out
}

impl Default for SetDigest {
    fn default() -> Self {
        Self { buckets: Buckets::Few(Vec::new()) }
    }
}

impl fmt::Debug for SetDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetDigest({:?})", self.digest())
    }
}

fn limbs(digest: Digest) -> [u64; 4] {
    let mut out = [0; 4];
    for (limb, chunk) in out.iter_mut().zip(digest.0.chunks_exact(8)) {
        *limb = chunk.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
    }
    out
}

/// Addition and subtraction with carry, until the standard library's own are stable.
trait Carrying: Sized {
    fn carrying_add_(self, other: Self, carry: bool) -> (Self, bool);
    fn borrowing_sub_(self, other: Self, borrow: bool) -> (Self, bool);
}

impl Carrying for u64 {
    fn carrying_add_(self, other: Self, carry: bool) -> (Self, bool) {
        let (sum, first) = self.overflowing_add(other);
        let (sum, second) = sum.overflowing_add(Self::from(carry));
        (sum, first | second)
    }

    fn borrowing_sub_(self, other: Self, borrow: bool) -> (Self, bool) {
        let (difference, first) = self.overflowing_sub(other);
        let (difference, second) = difference.overflowing_sub(Self::from(borrow));
        (difference, first | second)
    }
}

#[cfg(test)]
mod tests;
