use expect_test::expect;
use tideline_hub::removals::held_unassignments::HeldTargets;

use super::*;

fn held(revision: u64, name: &str, called: Option<&str>, count: u64) -> HeldUnassignment {
    HeldUnassignment {
        revision: Revision(revision),
        source: HeldSource {
            space: "default".to_owned(),
            api_group: "apps".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: "u".to_owned(),
        },
        namespace: called.map(str::to_owned),
        targets: HeldTargets { count, names: vec!["east".to_owned(), "west".to_owned()] },
    }
}

#[test]
fn what_is_held_is_shown_by_the_change_that_it_came_with() {
    let held = [held(71, "web", None, 300), held(80, "api", Some("store-shop"), 2)];
    expect![[r#"
        REVISION   SPACE     KIND              NAMESPACE           NAME   TARGETS   SUCH AS
        71         default   Deployment.apps   shop                web    300       east, west
        80         default   Deployment.apps   shop → store-shop   api    2         east, west

        Nothing wants these there any more. They stay until somebody approves that they go.
    "#]]
    .assert_eq(&print(Output::Text, &held, None));
    expect![[r#"
        Approved: 2 objects go from 302 places. Agents are told when they ask next.
    "#]]
    .assert_eq(&print(Output::Text, &held, Some(&["revision-71-x".to_owned()])));
    expect![[r#"
        No unassignment is held.
    "#]]
    .assert_eq(&print(Output::Text, &[], None));
}
