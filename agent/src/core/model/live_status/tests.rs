use super::*;

fn text() -> ObservedStatus {
    let text = RawValue::from_string(r#"{"replicas":3}"#.to_owned());
    ObservedStatus::Text(text.expect("it is JSON").into())
}

fn dropped() -> LiveStatus {
    let mut status = LiveStatus::default();
    status.show(ObservedStatus::Left, true);
    status
}

#[test]
fn a_status_is_kept_until_it_was_reported() {
    let mut status = LiveStatus::default();
    status.show(text(), true);
    assert!(matches!(status.get(), Status::Known(_)));
    status.reported();
    assert!(matches!(status.get(), Status::Dropped { failed: 0 }));
}

#[test]
fn what_nobody_asks_for_is_not_kept() {
    let mut status = LiveStatus::default();
    for observed in [text(), ObservedStatus::TooLarge] {
        status.show(observed, false);
        assert!(matches!(status.get(), Status::Dropped { failed: 0 }));
    }
    status.show(text(), true);
    status.drop();
    assert!(matches!(status.get(), Status::Dropped { failed: 0 }));
}

/// An object without a status has none to wait for, and none is dropped by a report of it.
#[test]
fn an_object_without_a_status_is_not_read_for_it() {
    let mut status = LiveStatus::default();
    status.reported();
    status.drop();
    status.read_again();
    assert!(!status.list_again() && !status.unread() && !status.is_awaited());
    assert_eq!(status.read_failed(false), None);
    assert!(matches!(status.get(), Status::None));
}

#[test]
fn a_read_that_shows_no_status_says_that_there_is_none() {
    let mut status = dropped();
    status.was_read();
    assert!(matches!(status.get(), Status::Dropped { .. }), "none was awaited");
    status.read_again();
    status.was_read();
    assert!(matches!(status.get(), Status::None));
}

#[test]
fn a_read_that_is_not_made_leaves_it_as_it_was() {
    let mut status = dropped();
    status.read_again();
    assert!(status.unread());
    assert!(matches!(status.get(), Status::Dropped { failed: 0 }));
    assert!(!status.unread());
}

#[test]
fn what_was_reported_before_is_reported_without_its_status_once_reads_have_failed_often() {
    let mut status = dropped();
    for times in 1..READS_MAX {
        status.read_again();
        assert_eq!(status.read_failed(true), Some(Unread { times, is_told: false }));
    }
    status.read_again();
    assert_eq!(status.read_failed(true), Some(Unread { times: READS_MAX, is_told: true }));
    status.reported();
    assert!(matches!(status.get(), Status::Dropped { failed: READS_MAX }), "it goes on counting");
    assert!(status.list_again(), "a list brings it all the same");
    assert_eq!(status.read_failed(true), Some(Unread { times: 1, is_told: false }));
}

#[test]
fn what_was_never_reported_is_not_kept_back_for_a_status() {
    let mut status = dropped();
    status.read_again();
    assert_eq!(status.read_failed(false), Some(Unread { times: 1, is_told: true }));
}
