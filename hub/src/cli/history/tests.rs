use expect_test::expect;
use tideline_common::{Epoch, Revision};

use super::*;

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
        CAUSE         TARGET   KNOWS   SAME UP TO             CONCERNS
        set unknown   east     1.75    70                     all targets
        set unknown   west     1.90    70                     this target
        restored      -        -       2026-11-20T10:00:00Z   all targets

        This hub was restored from a backup of 2026-11-20T10:00:00Z. Clusters were given sets after revision 70 that this hub does not know of: west (at 1.90), east (at 1.75). Nothing is rolled out or removed until this is settled. If another directory or machine holds the newer store, stop this hub and start it there; if it is lost: tideline-hub history accept
    "#]]
    .assert_eq(&print(Output::Text, &[unknown("east", 75, true), unknown("west", 90, false), restored], None));
    expect![[r#"
        The history is whole: no cluster knows of anything that this hub does not.
    "#]]
    .assert_eq(&print(Output::Text, &[], None));
}
