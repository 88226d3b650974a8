use proptest::prelude::*;

use super::*;

proptest! {
    /// With any type twice, the list would be refused.
    #[test]
    fn a_list_of_conditions_has_each_type_once_as_it_was_said_first(said in prop::collection::vec(0..6u8, 0..20)) {
        let conditions = said.iter().enumerate().map(|(nth, of)| json!({"type": format!("T{of}"), "message": nth}));
        let listed = by_type(conditions.clone());
        for condition in conditions {
            let same: Vec<_> = listed.iter().filter(|listed| listed["type"] == condition["type"]).collect();
            prop_assert_eq!(same.len(), 1);
            prop_assert!(same[0]["message"].as_u64() <= condition["message"].as_u64());
        }
    }
}
