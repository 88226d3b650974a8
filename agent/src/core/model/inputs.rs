//! Which bodies the journal holds, and how many entries name each.

use std::collections::{BTreeMap, BTreeSet};

use tideline_common::Digest;

#[derive(Debug, Default)]
pub(in crate::core) struct Inputs {
    named: BTreeMap<Short, Named>,
    /// What the journal holds and no entry names, in full: by these digests it is dropped.
    spare: BTreeSet<Digest>,
}

/// The first bytes of a digest; the entries that name it have all of it. Where two had them alike, a body would be taken to
/// be held that is not, and be fetched when it turns out to be missing.
type Short = [u8; 12];

/// How many entries name it, at least one, and whether it is held: twice the number, and one.
#[derive(Clone, Copy, Debug)]
struct Named(u32);

impl Inputs {
    pub(in crate::core) fn new(stored: BTreeSet<Digest>) -> Self {
        Self { named: BTreeMap::new(), spare: stored }
    }

    pub(in crate::core) fn is_stored(&self, digest: &Digest) -> bool {
        self.named.get(&short(digest)).is_some_and(|named| named.is_stored()) || self.spare.contains(digest)
    }

    pub(in crate::core) fn keep(&mut self, digest: Digest) {
        match self.named.get_mut(&short(&digest)) {
            Some(named) => named.keep(),
            None => {
                self.spare.insert(digest);
            }
        }
    }

    /// The journal cannot give it, whatever it said.
    pub(in crate::core) fn lost(&mut self, digest: &Digest) {
        self.spare.remove(digest);
        if let Some(named) = self.named.get_mut(&short(digest)) {
            named.lose();
        }
    }

    pub(in crate::core) fn name(&mut self, digest: Digest) {
        let stored = self.spare.remove(&digest);
        let named = self.named.entry(short(&digest)).or_insert(Named::NONE);
        named.add();
        if stored {
            named.keep();
        }
    }

    /// Returns whether nothing names it any more and the journal keeps it.
    pub(in crate::core) fn unname(&mut self, digest: &Digest) -> bool {
        let Some(named) = self.named.get_mut(&short(digest)) else { return false };
        named.take();
        if named.count() > 0 {
            return false;
        }
        let stored = named.is_stored();
        self.named.remove(&short(digest));
        if stored {
            self.spare.insert(*digest);
        }
        stored
    }

    /// Forgets and returns, of the candidates, what is kept and not named.
    pub(in crate::core) fn take_unnamed(&mut self, candidates: impl IntoIterator<Item = Digest>) -> Vec<Digest> {
        candidates.into_iter().filter(|digest| self.spare.remove(digest)).collect()
    }

    /// Forgets and returns everything that is kept and not named.
    pub(in crate::core) fn take_all_unnamed(&mut self) -> Vec<Digest> {
        std::mem::take(&mut self.spare).into_iter().collect()
    }

    /// As [`Objects::pack`](super::objects::Objects::pack).
    pub(in crate::core) fn pack(&mut self) {
        self.named = std::mem::take(&mut self.named).into_iter().collect();
    }
}

impl Named {
    const NONE: Self = Self(0);
    const KEPT: u32 = 1;
    const ONE: u32 = 2;

    fn count(self) -> u32 {
        self.0 / Self::ONE
    }

    fn is_stored(self) -> bool {
        self.0 & Self::KEPT != 0
    }

    fn keep(&mut self) {
        self.0 |= Self::KEPT;
    }

    fn lose(&mut self) {
        self.0 &= !Self::KEPT;
    }

    fn add(&mut self) {
        self.0 += Self::ONE;
    }

    fn take(&mut self) {
        self.0 = self.0.saturating_sub(Self::ONE);
    }
}

fn short(digest: &Digest) -> Short {
    *digest.as_bytes().first_chunk().expect("a digest has 32 bytes")
}

#[cfg(test)]
mod tests;
