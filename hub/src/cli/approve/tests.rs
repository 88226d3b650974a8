use expect_test::expect;
use tideline_common::Reason;
use tideline_hub::removals::held_deletions::HeldTarget;

use super::*;

fn held(reasons: &[Reason]) -> Held {
    let deletion = |(nth, reason): (usize, &Reason)| HeldDeletion {
        target: HeldTarget { name: "east".to_owned(), uid: "t".to_owned() },
        object: tideline_api::ApprovedDeletion {
            api_group: String::new(),
            kind: "ConfigMap".to_owned(),
            namespace: "shop".to_owned(),
            name: format!("c{nth}"),
            source_uid: format!("s{nth}"),
        },
        reason: Some(*reason),
        message: String::new(),
    };
    Held {
        target: "east".to_owned(),
        target_uid: "t".to_owned(),
        reported: true,
        deletions: reasons.iter().enumerate().map(deletion).collect(),
    }
}

#[test]
fn what_is_held_is_shown_with_the_reason() {
    let held = held(&[Reason::FuseHeld, Reason::NotEmpty, Reason::Copy]);
    expect![[r"
        KIND        NAMESPACE   NAME   WHY
        ConfigMap   shop        c0     FuseHeld
        ConfigMap   shop        c1     NotEmpty
        ConfigMap   shop        c2     Copy

        NotEmpty: there is something in it that is not placed by this hub; it goes when that is gone, which no approval does.
        FuseHeld: more goes at once than goes unasked; approve it, if it is meant.
        Copy: its mark was copied from another object; it is nobody's here, and no approval takes it away.

        Waiting for an approval: 1; 1 may follow when what is in them is gone.
    "]]
    .assert_eq(&text(&held, &held.approvable(None).expect("one reason")));
}

#[test]
fn what_no_approval_would_free_is_not_approved() {
    let held = held(&[Reason::NotEmpty, Reason::Copy]);
    assert!(held.approvable(None).expect("one reason").is_empty());
    assert!(text(&held, &[]).ends_with("None of these waits for an approval.\n"));
}

#[test]
fn that_nothing_is_held_is_said_only_of_who_has_reported() {
    assert_eq!(text(&held(&[]), &[]), "No deletion is held at east.\n");
    let silent = Held { reported: false, ..held(&[]) };
    expect![[r"
        east has not reported to this run of the hub: what is held there is not known.
    "]]
    .assert_eq(&text(&silent, &[]));
    assert_eq!(as_json(&silent, &[], None)["reported"], json!(false));
}

#[test]
fn programs_read_what_was_approved() {
    let held = held(&[Reason::HistoryLost]);
    let approved = Approved { names: vec!["east-x".to_owned()], expires: jiff::Timestamp::UNIX_EPOCH, deletions: 1 };
    let json = as_json(&held, &held.approvable(None).expect("one reason"), Some(&approved));
    assert_eq!(json["deletions"][0]["object"]["name"], "c0");
    assert_eq!((&json["deletions"][0]["approvable"], &json["approval"]["names"][0]), (&json!(true), &json!("east-x")));
}
