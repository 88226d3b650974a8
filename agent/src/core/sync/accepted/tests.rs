use tideline_common::{DesiredSet, Revision, Version};

use super::*;
use crate::core::tests::attested;

fn set(revision: u64) -> Attested {
    let digest = DesiredSet::default().digest();
    attested(Accepted { version: Version { revision: Revision(revision), ..Version::default() }, digest })
}

#[test]
fn the_newest_is_what_the_journal_or_anything_else_knows() {
    for (current, floor, newest) in [(3, 2, 3), (2, 3, 3)] {
        let sets = AcceptedSets::new(Some(set(current)), Some(set(floor)), None);
        assert_eq!((sets.current(), sets.newest()), (Some(set(current).set), Some(set(newest))));
    }
    assert_eq!(AcceptedSets::new(None, Some(set(3)), None).current(), None);
}

#[test]
fn what_is_accepted_holds_and_is_shown() {
    let mut sets = AcceptedSets::new(None, None, Some(set(1)));
    assert_eq!(sets.shown(), Some(set(1)));
    sets.accept(set(2));
    assert_eq!((sets.current(), sets.newest(), sets.shown()), (Some(set(2).set), Some(set(2)), Some(set(2))));
}

#[test]
fn what_a_former_target_accepted_is_shown_and_nothing_is_compared_with_it() {
    let mut sets = AcceptedSets::new(Some(set(2)), None, Some(set(1)));
    sets.leave();
    assert_eq!((sets.current(), sets.newest(), sets.shown()), (None, None, Some(set(2))));
    // Another one before it accepts anything knows of no more.
    sets.leave();
    assert_eq!(sets.shown(), Some(set(2)));
}
