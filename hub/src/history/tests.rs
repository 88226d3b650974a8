use serde_json::json;

use super::*;

#[test]
fn a_break_that_cannot_be_read_is_not_left_out() {
    let object = |cause: &str| -> DynamicObject {
        let text = json!({
            "apiVersion": "tideline.dev/v1alpha1", "kind": "HistoryBreak", "metadata": {"name": "b"},
            "cause": cause, "id": "r", "made": "yesterday",
        });
        serde_json::from_value(text).unwrap()
    };
    assert!(matches!(of_object(object("Restored")), Ok(HistoryBreak::Restored { .. })));
    let error = of_object(object("SomethingNewer")).unwrap_err().to_string();
    assert_eq!(error, "cannot read the break of history b; use the tideline-hub of the hub's version");
}
