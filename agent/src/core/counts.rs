//! How many there are of each, where what there is none of takes no room.

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(super) struct Counts<K>(BTreeMap<K, usize>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Counts<K> {
    pub(super) fn up(&mut self, key: K) {
        *self.0.entry(key).or_default() += 1;
    }

    /// Of what there is none it does nothing.
    pub(super) fn down(&mut self, key: &K) {
        if let Some(count) = self.0.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(key);
            }
        }
    }

    pub(super) fn of(&self, key: &K) -> usize {
        self.0.get(key).copied().unwrap_or_default()
    }

    /// Of how many there is any.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What there is any of, in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_none_of_takes_no_room() {
        let mut counts = Counts::default();
        counts.down(&1);
        for key in [2, 1, 2] {
            counts.up(key);
        }
        assert_eq!((counts.of(&1), counts.of(&2), counts.of(&3)), (1, 2, 0));
        counts.down(&1);
        counts.down(&2);
        assert!(counts.keys().eq([&2]) && counts.len() == 1);
        counts.down(&2);
        assert!(counts.is_empty());
    }
}
