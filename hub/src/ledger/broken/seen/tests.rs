use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn version() -> impl Strategy<Value = Version> {
    (0..3_u64, 0..3_u64).prop_map(|(epoch, revision)| Version { epoch: Epoch(epoch), revision: Revision(revision) })
}

proptest! {
    #[test]
    fn what_is_counted_is_what_is_not_covered(
        puts in prop::collection::vec((0..4_u128, version(), prop::option::of(version())), 0..40),
    ) {
        let mut segments = SeenSegments::default();
        for (segment, Version { epoch, revision }, covered) in puts {
            let by = TargetId::from_uuid(Uuid::from_u128(1));
            let seen = Seen { revision, epoch, by, after: Revision(0), covered };
            segments.put(SegmentId::from_uuid(Uuid::from_u128(segment)), seen);
            let uncovered = segments.by_id.values().filter(|seen| !seen.is_covered()).count();
            prop_assert_eq!(segments.uncovered, uncovered);
            prop_assert_eq!(segments.are_covered(), uncovered == 0);
            prop_assert_eq!(segments.uncovered().count(), uncovered);
        }
    }
}
