use tideline_common::Uid;

use super::*;
use crate::held_deletions::HeldTarget;

fn deletion(name: &str, source: &str) -> ApprovedDeletion {
    ApprovedDeletion {
        api_group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        source_uid: source.to_owned(),
    }
}

fn spec(deletions: Vec<ApprovedDeletion>) -> DeletionApprovalSpec {
    DeletionApprovalSpec {
        target_name: "east".to_owned(),
        target_uid: "11111111-1111-4111-8111-111111111111".to_owned(),
        expires: Time(Timestamp::from_second(100).expect("a moment")),
        deletions,
    }
}

#[test]
fn an_approval_is_read_with_what_is_left_of_it() {
    let now = Timestamp::from_second(40).expect("a moment");
    let approval = read(&spec(vec![deletion("web", "s1")]), now).expect("it can be read").from(Monotonic::START);
    let source: Uid = "s1".parse().expect("a UID");
    let key = ObjectKey::new(GroupKind::new("apps", "Deployment"), "shop", "web");
    assert_eq!(*approval.removals, [Tombstone { key, source }]);
    assert_eq!((approval.expires, approval.until), (100, Monotonic::START + Duration::from_mins(1)));
    let later = Timestamp::from_second(4000).expect("a moment");
    let ended = read(&spec(Vec::new()), later).expect("it can be read").from(Monotonic::START);
    assert_eq!(ended.until, Monotonic::START);
}

#[test]
fn an_approval_that_cannot_be_meant_approves_nothing() {
    let now = Timestamp::UNIX_EPOCH;
    assert!(read(&spec(vec![deletion("web", "s1"), deletion("api", "")]), now).is_err());
    let elsewhere = DeletionApprovalSpec { target_uid: "east".to_owned(), ..spec(Vec::new()) };
    assert!(read(&elsewhere, now).is_err());
}

#[test]
fn what_waits_for_nobody_is_approved_only_beside_what_does() {
    let held = |reasons: &[Reason]| {
        let deletion = |reason: &Reason| HeldDeletion {
            target: HeldTarget { name: "east".to_owned(), uid: "t".to_owned() },
            object: deletion("web", "s1"),
            reason: Some(*reason),
            message: String::new(),
        };
        let deletions = reasons.iter().map(deletion).collect();
        Held { target: "east".to_owned(), target_uid: "t".to_owned(), deletions }.approvable().len()
    };
    assert_eq!(held(&[Reason::NotEmpty, Reason::Forbidden]), 0);
    assert_eq!(held(&[Reason::FuseHeld, Reason::NotEmpty, Reason::Forbidden]), 2);
    assert_eq!(held(&[Reason::HistoryLost, Reason::Copy]), 1);
}
