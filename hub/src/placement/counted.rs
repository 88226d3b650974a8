use roaring::RoaringBitmap;

/// How often each target is counted. To count a set of targets once more or once less costs a few operations on bitmaps, however
/// many targets and counted sets there are.
///
/// The counts are kept in binary: a bitmap for each digit, with the targets in whose count that digit is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counted {
    /// Counted at least once.
    targets: RoaringBitmap,
    /// The lowest first; the last is not empty.
    digits: Vec<RoaringBitmap>,
}

impl Counted {
    /// Those that are counted at all.
    pub(super) fn targets(&self) -> &RoaringBitmap {
        &self.targets
    }

    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Counts these once more. Returns whether any was not counted before.
    pub(super) fn add(&mut self, once: &RoaringBitmap) -> bool {
        let mut carry = once.clone();
        for digit in &mut self.digits {
            if carry.is_empty() {
                break;
            }
            let carried = &carry & &*digit;
            *digit ^= carry;
            carry = carried;
        }
        if !carry.is_empty() {
            self.digits.push(carry);
        }
        let news = !once.is_subset(&self.targets);
        if news {
            self.targets |= once;
        }
        news
    }

    /// Counts these, all of which are counted, once less. Returns whether any is not counted any more.
    pub(super) fn subtract(&mut self, once: &RoaringBitmap) -> bool {
        debug_assert!(once.is_subset(&self.targets), "what is not counted cannot be counted less");
        let mut borrow = once.clone();
        for digit in &mut self.digits {
            if borrow.is_empty() {
                break;
            }
            let borrowed = &borrow - &*digit;
            *digit ^= borrow;
            borrow = borrowed;
        }
        while self.digits.pop_if(|digit| digit.is_empty()).is_some() {}
        let gone = self.digits.iter().fold(once.clone(), |gone, digit| gone - digit);
        self.targets -= &gone;
        !gone.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    /// Few of them, so that they are counted often, on both sides of the border of a container.
    fn targets() -> impl Strategy<Value = BTreeSet<u32>> {
        btree_set(prop_oneof![0..4_u32, 65_534..65_538_u32], 0..6)
    }

    proptest! {
        #[test]
        fn counts_as_one_would_target_by_target(
            steps in vec((any::<bool>(), targets()), 0..60)
        ) {
            let (mut counted, mut counts) = (Counted::default(), BTreeMap::<u32, usize>::new());
            for (more, once) in steps {
                let once: RoaringBitmap = once.into_iter().filter(|target| more || counts.contains_key(target)).collect();
                let before: Vec<u32> = counts.keys().copied().collect();
                for target in &once {
                    let count = counts.entry(target).or_default();
                    if more { *count += 1 } else { *count -= 1 }
                }
                counts.retain(|_, count| *count > 0);
                let changed = if more { counted.add(&once) } else { counted.subtract(&once) };
                prop_assert_eq!(changed, before.iter().ne(counts.keys()));
                prop_assert!(counted.targets().iter().eq(counts.keys().copied()));
            }
            for (target, count) in counts {
                for _ in 0..count {
                    prop_assert!(counted.targets().contains(target));
                    counted.subtract(&RoaringBitmap::from_iter([target]));
                }
            }
            prop_assert_eq!(counted, Counted::default());
        }
    }
}
