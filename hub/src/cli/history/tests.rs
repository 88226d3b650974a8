use expect_test::expect;
use tideline_common::{Epoch, Revision};

use super::*;

const ALL: Heard = Heard { agents: 3, of: 3 };

#[test]
fn what_clusters_know_of_is_shown_with_what_to_do() {
    let unknown = |target: &str, revision, proven| HistoryBreak::SetUnknown {
        target: target.to_owned(),
        segment: "s".to_owned(),
        epoch: Epoch(1),
        revision: Revision(revision),
        after: Revision(70),
        proven,
    };
    let restored = HistoryBreak::Restored { id: "r".to_owned(), made: "2026-11-20T10:00:00Z".to_owned() };
    expect![[r#"
        CAUSE                     TARGET   CLUSTER HAS   HUB HAS IT UP TO                     STOPS
        set unknown to this hub   east     1.75          revision 70                          all targets
        set claimed, not proven   west     1.90          revision 70                          this target
        restored from a backup    -        -             the backup of 2026-11-20T10:00:00Z   all targets

        CLUSTER HAS: the newest set that the agent of the target shows, as EPOCH.REVISION.
        HUB HAS IT UP TO: what came before is the same at the hub and at the cluster; what came after it this hub does not know of.
        STOPS: where nothing is rolled out or removed until this is settled.

        This hub was restored from a backup of 2026-11-20T10:00:00Z. Clusters were given sets after revision 70 that this hub does not know of: east (at 1.75). Nothing is rolled out or removed until this is settled. If another directory or machine holds the newer store, stop this hub and start it there; if it is lost: tideline-hub history accept

        west: its agent claims a set (at 1.90) that this hub does not know of, and shows no word of this hub for it. Nothing is rolled out to its cluster or removed there until this is settled; other clusters are not affected. If somebody else may have its key: tideline-hub targets revoke west; if the agent is as it should be: tideline-hub history accept, which makes approvals void everywhere
    "#]]
    .assert_eq(&print(Output::Text, &[unknown("east", 75, true), unknown("west", 90, false), restored], ALL, None));
    expect![[r#"
        The history is whole: no cluster that was heard knows of anything that this hub does not.
    "#]]
    .assert_eq(&print(Output::Text, &[], ALL, None));
}

#[test]
fn what_was_not_heard_is_not_said_to_be_nothing() {
    let heard = Heard { agents: 2, of: 5 };
    expect![[r#"
        Nothing is missing so far: no cluster that was heard knows of anything that this hub does not.
        2 of 5 agents were heard since the hub was started; what the others know of is not known yet.
    "#]]
    .assert_eq(&print(Output::Text, &[], heard, None));
    let restored = HistoryBreak::Restored { id: "r".to_owned(), made: "2026-11-20T10:00:00Z".to_owned() };
    assert!(print(Output::Text, &[restored], heard, None).ends_with("what the others know of is not known yet.\n"));
    assert_eq!(as_json(&[], heard, None)["heard"], json!(2));
}
