use super::*;

fn at(seconds: u64) -> Monotonic {
    Monotonic::START + Duration::from_secs(seconds)
}

fn rate() -> Rate<&'static str, u8, 5> {
    Rate::default()
}

#[test]
fn after_a_quiet_time_a_change_is_reported_at_once() {
    let mut rate = rate();
    assert!(!rate.holds(at(1), &"a", &0));
    rate.said(at(1), "a", 0);
    assert!(rate.holds(at(2), &"a", &0));
    assert!(!rate.holds(at(6), &"a", &0));
    assert!(!rate.holds(at(2), &"b", &0));
}

#[test]
fn urgent_reports_go_at_once() {
    let mut rate = rate();
    rate.said(at(1), "a", 0);
    assert!(!rate.holds(at(2), &"a", &1));
}

#[test]
fn a_status_that_always_changes_is_due_once_per_interval() {
    let mut rate = rate();
    let mut said = 0;
    for second in 0..61 {
        let due = rate.take_due(at(second));
        if !rate.holds(at(second), &"a", &0) {
            rate.said(at(second), "a", 0);
            said += 1;
            assert!(second == 0 || due.contains("a"), "{second}");
        }
    }
    assert_eq!(said, 13);
}

#[test]
fn a_report_just_sent_is_not_due_for_earlier_changes() {
    let mut rate = rate();
    rate.said(at(1), "a", 0);
    assert!(rate.holds(at(2), &"a", &0));
    rate.said(at(3), "a", 1);
    assert_eq!(rate.next_due(), None);
    assert!(rate.take_due(at(6)).is_empty());
    assert!(rate.holds(at(7), &"a", &1));
    assert_eq!(rate.next_due(), Some(at(8)));
}

#[test]
fn nothing_is_kept_for_a_quiet_object() {
    let mut rate = rate();
    for (second, key) in [(1, "a"), (2, "b"), (3, "c")] {
        rate.said(at(second), key, 0);
        rate.holds(at(3), &key, &0);
    }
    rate.take_due(at(7));
    assert_eq!((rate.said.len(), rate.oldest.len(), rate.due.len()), (1, 1, 1));
    rate.take_due(at(8));
    assert!(rate.is_empty());
}

#[test]
fn a_change_is_due_at_once_or_when_the_interval_is_over() {
    let mut rate = rate();
    rate.news(at(1), "a");
    assert_eq!(rate.take_due(at(1)), ["a"].into());
    rate.said(at(1), "a", 0);
    rate.news(at(2), "a");
    rate.news(at(4), "a");
    assert!(rate.take_due(at(5)).is_empty());
    assert_eq!(rate.take_due(at(6)), ["a"].into());
    assert_eq!(rate.next_due(), None);
}
