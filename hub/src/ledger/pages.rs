use std::ops::{Bound, Index};
use std::sync::Arc;

/// Entries of one page: what a change of one copies, beside the list of all pages.
const PAGE: usize = 256;

/// An ordered map whose copies share every page that none of them has changed since. A copy of a million entries is four
/// thousand pointers; a change copies the page that it is in, once.
#[derive(Clone, Debug)]
pub(super) struct Pages<K, V> {
    /// None of them empty, each in order, and all of them in order.
    pages: Vec<Arc<Vec<(K, V)>>>,
    len: usize,
}

impl<K, V> Default for Pages<K, V> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0 }
    }
}

impl<K: Ord + Clone, V: Clone> Pages<K, V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let page = self.pages.get(self.page_of(key)?)?;
        let at = page.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        Some(&page[at].1)
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Copies the page, if another copy of the map has it too, only where the key is in it.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let page = self.page_of(key)?;
        let at = self.pages[page].binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        Some(&mut Arc::make_mut(&mut self.pages[page])[at].1)
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some(nth) = self.page_of(&key) else {
            self.pages.push(Arc::new(vec![(key, value)]));
            self.len += 1;
            return None;
        };
        let page = Arc::make_mut(&mut self.pages[nth]);
        let at = match page.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(at) => return Some(std::mem::replace(&mut page[at].1, value)),
            Err(at) => at,
        };
        self.len += 1;
        if page.len() < PAGE {
            page.insert(at, (key, value));
            return None;
        }
        if at == PAGE
            && let Some(next) = self.pages.get_mut(nth + 1).filter(|next| next.len() < PAGE)
        {
            Arc::make_mut(next).insert(0, (key, value));
            return None;
        }
        let page = Arc::make_mut(&mut self.pages[nth]);
        // What comes in order fills its pages; what comes in any other leaves them half full.
        let mut behind = page.split_off(if at == PAGE { PAGE } else { PAGE / 2 });
        if at <= page.len() && at < PAGE {
            page.insert(at, (key, value));
        } else {
            behind.insert(at - page.len(), (key, value));
        }
        self.pages.insert(nth + 1, Arc::new(behind));
        None
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let nth = self.page_of(key)?;
        let at = self.pages[nth].binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        let page = Arc::make_mut(&mut self.pages[nth]);
        let (_, value) = page.remove(at);
        self.len -= 1;
        if page.is_empty() {
            self.pages.remove(nth);
        }
        Some(value)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        self.pages.iter().flat_map(|page| page.iter()).map(|(key, value)| (key, value))
    }

    pub(super) fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + Clone {
        self.iter().map(|(key, _)| key)
    }

    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }

    /// Copies every page that another copy of the map has too.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.pages.iter_mut().flat_map(Arc::make_mut).map(|(_, value)| value)
    }

    /// What is at `first` and behind it, or only behind it.
    pub(super) fn range_from<'a>(&'a self, first: Bound<&K>) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        let (nth, skipped) = match first {
            Bound::Included(first) => self.at(first, |key| key < first),
            Bound::Excluded(first) => self.at(first, |key| key <= first),
            Bound::Unbounded => (0, 0),
        };
        let begun = self.pages.get(nth).into_iter().flat_map(move |page| &page[skipped..]);
        let behind = self.pages.get(nth + 1..).unwrap_or_default().iter().flat_map(|page| page.iter());
        begun.chain(behind).map(|(key, value)| (key, value))
    }

    /// The page that has the key, or would have it, and how much of that is `before`.
    fn at(&self, key: &K, before: impl Fn(&K) -> bool) -> (usize, usize) {
        let nth = self.page_of(key).unwrap_or_default();
        (nth, self.pages.get(nth).map_or(0, |page| page.partition_point(|(key, _)| before(key))))
    }

    /// The page that has the key, or would have it; none where there is no page.
    fn page_of(&self, key: &K) -> Option<usize> {
        let begins_behind = |page: &Arc<Vec<(K, V)>>| page.first().is_none_or(|(first, _)| first > key);
        let nth = self.pages.partition_point(|page| !begins_behind(page));
        (!self.pages.is_empty()).then(|| nth.saturating_sub(1))
    }
}

impl<'a, K: Ord + Clone, V: Clone> IntoIterator for &'a Pages<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Box<dyn Iterator<Item = Self::Item> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl<K: Ord + Clone, V: Clone> Index<&K> for Pages<K, V> {
    type Output = V;

    /// # Panics
    ///
    /// The key is not there.
    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the key is in the map")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u16, u8),
        Remove(u16),
        Change(u16, u8),
    }

    fn op() -> impl Strategy<Value = Op> {
        // Few enough keys for hits, and enough for several pages.
        let key = 0..2_000u16;
        prop_oneof![
            4 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Op::Insert(key, value)),
            2 => key.clone().prop_map(Op::Remove),
            1 => (key, any::<u8>()).prop_map(|(key, value)| Op::Change(key, value)),
        ]
    }

    fn same(pages: &Pages<u16, u8>, map: &BTreeMap<u16, u8>) {
        assert!(pages.iter().eq(map.iter()));
        assert!(pages.iter().rev().eq(map.iter().rev()));
        assert_eq!(pages.len(), map.len());
        assert!(pages.pages.iter().all(|page| !page.is_empty() && page.len() <= PAGE));
    }

    proptest! {
        #[test]
        fn is_an_ordered_map_and_leaves_its_copies_alone(
            begin in 0..1_500u16,
            ops in prop::collection::vec(op(), 0..400),
            from in 0..2_100u16,
        ) {
            let (mut pages, mut map) = (Pages::default(), BTreeMap::new());
            for key in 0..begin {
                assert_eq!(pages.insert(key, 0), map.insert(key, 0));
            }
            let (copied, was) = (pages.clone(), map.clone());
            for op in ops {
                match op {
                    Op::Insert(key, value) => assert_eq!(pages.insert(key, value), map.insert(key, value)),
                    Op::Remove(key) => assert_eq!(pages.remove(&key), map.remove(&key)),
                    Op::Change(key, value) => {
                        assert_eq!(pages.get_mut(&key).map(|it| *it = value), map.get_mut(&key).map(|it| *it = value));
                        assert_eq!(pages.get(&key), map.get(&key));
                    }
                }
            }
            same(&pages, &map);
            same(&copied, &was);
            let behind = Bound::Excluded(from);
            assert!(pages.range_from(Bound::Included(&from)).eq(map.range(from..)));
            assert!(pages.range_from(behind.as_ref()).eq(map.range((behind, Bound::Unbounded))));
            assert!(pages.range_from(Bound::Unbounded).eq(map.iter()));
            pages.values_mut().for_each(|value| *value = 7);
            same(&copied, &was);
        }
    }

    #[test]
    fn what_comes_backwards_fills_pages_too() {
        let mut pages: Pages<u32, ()> = Pages::default();
        let keys = (0..256).chain((1_000..5_000).rev());
        keys.for_each(|key| assert_eq!(pages.insert(key, ()), None));
        assert!(pages.pages.len() < 2 * 4_256usize.div_ceil(PAGE) + 2, "{}", pages.pages.len());
    }

    #[test]
    fn a_change_copies_its_page_alone() {
        let mut pages: Pages<u32, u32> = Pages::default();
        (0..10_000).for_each(|key| assert_eq!(pages.insert(key, key), None));
        assert_eq!(pages.pages.len(), 10_000usize.div_ceil(PAGE), "what comes in order fills its pages");
        let copied = pages.clone();
        *pages.get_mut(&5_000).unwrap() = 0;
        assert_eq!(pages.get_mut(&10_000), None);
        let apart = pages.pages.iter().zip(&copied.pages).filter(|(page, was)| !Arc::ptr_eq(page, was));
        assert_eq!(apart.count(), 1);
    }
}
