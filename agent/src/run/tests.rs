use super::*;

#[test]
fn runs_that_end_soon_follow_each_other_ever_less_often_and_one_that_went_well_is_followed_at_once() {
    let mut pauses = Pauses::default();
    assert!(pauses.after(Duration::from_secs(1)) <= PAUSE.0);
    let paused: Duration = (0..200).map(|_| pauses.after(Duration::from_secs(2))).sum();
    assert!(paused > Duration::from_mins(30), "200 runs with {paused:?} between them");
    assert_eq!(pauses.after(RAN_WELL), Duration::ZERO);
    assert!(pauses.after(Duration::from_secs(1)) <= PAUSE.0, "and it begins from the shortest pause");
}
