use serde_json::json;
use tideline_api::{SyncTarget, SyncTargetSpec};
use tideline_common::Uid;

use super::*;
use crate::agents::tests::answering;
use crate::removals::held_deletions::HeldTarget;
use crate::token::tests::Root;

fn deletion(name: &str, source: &str) -> ApprovedDeletion {
    ApprovedDeletion {
        api_group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        source_uid: source.to_owned(),
    }
}

/// Made at 20, until 100.
fn approval(deletions: Vec<ApprovedDeletion>) -> DeletionApproval {
    let spec = DeletionApprovalSpec {
        target_name: "east".to_owned(),
        target_uid: "11111111-1111-4111-8111-111111111111".to_owned(),
        expires: Time(Timestamp::from_second(100).expect("a moment")),
        deletions,
        releases: Vec::new(),
    };
    let mut approval = DeletionApproval::new("east-1", spec);
    approval.metadata.creation_timestamp = Some(Time(Timestamp::from_second(20).expect("a moment")));
    approval
}

#[test]
fn an_approval_is_read_with_what_is_left_of_it() {
    let now = Timestamp::from_second(40).expect("a moment");
    let known = read(&approval(vec![deletion("web", "s1")]), now).expect("it can be read").from(Monotonic::START);
    let source: Uid = "s1".parse().expect("a UID");
    let key = ObjectKey::new(GroupKind::new("apps", "Deployment"), "shop", "web");
    assert_eq!(*known.removals, [Tombstone { key, source }]);
    assert_eq!((known.expires, known.until), (100, Monotonic::START + Duration::from_mins(1)));
    let later = Timestamp::from_second(4000).expect("a moment");
    let left = |now| read(&approval(Vec::new()), now).expect("it can be read").from(Monotonic::START).until;
    assert_eq!(left(later), Monotonic::START);
    let before_it_was_made = Monotonic::START + Duration::from_secs(80);
    assert_eq!(left(Timestamp::UNIX_EPOCH), before_it_was_made, "no more than when it was made");
}

#[test]
fn what_is_released_is_read_as_that_and_never_beside_what_is_deleted() {
    let mut released = approval(Vec::new());
    released.spec.releases = vec![deletion("web", "s1")];
    let known = read(&released, Timestamp::UNIX_EPOCH).expect("it can be read").from(Monotonic::START);
    assert_eq!((known.releases, known.removals.len()), (true, 1));
    released.spec.deletions = vec![deletion("api", "s2")];
    assert!(read(&released, Timestamp::UNIX_EPOCH).is_err());
}

#[test]
fn an_approval_that_cannot_be_meant_approves_nothing() {
    let now = Timestamp::UNIX_EPOCH;
    assert!(read(&approval(vec![deletion("web", "s1"), deletion("api", "")]), now).is_err());
    let mut elsewhere = approval(Vec::new());
    elsewhere.spec.target_uid = "east".to_owned();
    assert!(read(&elsewhere, now).is_err());
}

fn held(reasons: &[Reason]) -> Held {
    let deletion = |reason: &Reason| HeldDeletion {
        target: HeldTarget { name: "east".to_owned(), uid: "t".to_owned() },
        object: deletion("web", "s1"),
        reason: Some(*reason),
        message: String::new(),
    };
    let deletions = reasons.iter().map(deletion).collect();
    Held { target: "east".to_owned(), target_uid: "t".to_owned(), reported: true, deletions }
}

#[test]
fn what_waits_for_nobody_is_approved_only_beside_what_does() {
    let held = |reasons: &[Reason]| held(reasons).approvable(None).expect("one reason").len();
    assert_eq!(held(&[Reason::NotEmpty, Reason::Forbidden]), 0);
    assert_eq!(held(&[Reason::FuseHeld, Reason::NotEmpty, Reason::Forbidden]), 2);
    assert_eq!(held(&[Reason::HistoryLost, Reason::Copy]), 1);
}

#[test]
fn what_came_back_and_what_was_left_behind_are_not_settled_in_one_step() {
    use Reason::{FuseHeld, HistoryLost, NotEmpty, Restored};
    let held = held(&[FuseHeld, Restored, Restored, HistoryLost, NotEmpty]);
    let refused = held.approvable(None).unwrap_err();
    assert!(refused.to_string().contains("name one with --reason"), "{refused}");
    let approved = |reason| -> Vec<_> {
        let approvable = held.approvable(Some(reason)).expect("it is named");
        approvable.iter().filter_map(|held| held.reason).collect()
    };
    assert_eq!(approved(Restored), [Restored, Restored, NotEmpty]);
    assert_eq!(approved(HistoryLost), [HistoryLost, NotEmpty]);
    assert_eq!(approved(FuseHeld), [FuseHeld, NotEmpty]);
    assert_eq!(held.releasable(Restored).len(), 2);
}

/// To say that nothing is held would have a person look for the cause elsewhere.
#[tokio::test]
async fn a_held_deletion_that_cannot_be_read_is_named_and_not_passed_over() {
    let root = Root::new().await;
    let api = Api::<SyncTarget>::all(root.client.clone());
    api.create(&PostParams::default(), &SyncTarget::new("east", SyncTargetSpec::default())).await.unwrap();
    let held = json!({"metadata": {"name": "east.0123"}, "target": {"name": "east"}, "object": "another form"});
    let newer = answering(&root.client, "helddeletions", json!([held]));
    let refused = super::held(&newer, "east").await.unwrap_err();
    assert!(refused.to_string().contains("HeldDeletion east.0123"), "{refused}");
}
