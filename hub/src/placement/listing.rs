use std::collections::BTreeSet;

/// How far something that is listed and then watched has been read.
///
/// ```text
///  reading (nothing known) ──finish──▶ complete ──reset──▶ reading again (what was known stands) ──finish──▶ complete
/// ```
///
/// Where a key cannot be read, [`Listing::finish_in_part`] takes the place of `finish`: all that can be known is known then.
#[derive(Debug)]
pub(super) struct Listing<K> {
    /// What this reading has brought so far; none when it is not being read.
    seen: Option<BTreeSet<K>>,
    once: bool,
    /// Something is there that nobody can name: what was not told may be that.
    in_part: bool,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { seen: Some(BTreeSet::new()), once: false, in_part: false }
    }
}

impl<K: Ord> Listing<K> {
    /// Whether it was read to the end at least once. What is known may be old, but it is whole.
    pub(super) fn complete(&self) -> bool {
        self.once
    }

    /// Whether something is there that nobody can name.
    pub(super) fn is_in_part(&self) -> bool {
        self.in_part
    }

    /// Whether all that is there was read in this run, and can be named.
    pub(super) fn is_whole(&self) -> bool {
        self.once && !self.in_part
    }

    pub(super) fn reset(&mut self) {
        self.seen = Some(BTreeSet::new());
    }

    pub(super) fn saw(&mut self, key: K) {
        if let Some(seen) = &mut self.seen {
            seen.insert(key);
        }
    }

    /// Ends the reading and returns what of `known` it has not brought.
    pub(super) fn finish(&mut self, known: impl IntoIterator<Item = K>) -> Vec<K> {
        (self.once, self.in_part) = (true, false);
        match self.seen.take() {
            Some(seen) => known.into_iter().filter(|key| !seen.contains(key)).collect(),
            None => Vec::new(),
        }
    }

    /// Ends the reading, and takes nothing for gone.
    pub(super) fn finish_in_part(&mut self) {
        (self.once, self.in_part) = (true, true);
        self.seen = None;
    }
}
