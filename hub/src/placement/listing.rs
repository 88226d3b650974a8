use std::collections::BTreeSet;

/// How far something that is listed and then watched has been read.
///
/// ```text
///  reading (nothing known) ──finish──▶ complete ──reset──▶ reading again (what was known stands) ──finish──▶ complete
/// ```
#[derive(Debug)]
pub(super) struct Listing<K> {
    /// What this reading has brought so far; none when it is not being read.
    seen: Option<BTreeSet<K>>,
    once: bool,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { seen: Some(BTreeSet::new()), once: false }
    }
}

impl<K: Ord> Listing<K> {
    /// Whether it was read to the end at least once. What is known may be old, but it is whole.
    pub(super) fn complete(&self) -> bool {
        self.once
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
        self.once = true;
        match self.seen.take() {
            Some(seen) => known.into_iter().filter(|key| !seen.contains(key)).collect(),
            None => Vec::new(),
        }
    }
}
