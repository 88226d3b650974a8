use tideline_common::Monotonic;

use super::*;

const LATER: Monotonic = Monotonic::from_millis(1_000);

#[test]
fn an_object_is_idle_and_untried_at_first() {
    let state = WorkState::default();
    assert_eq!(state.at_rest(), Some(AtRest { turn: Turn::Idle, tried: false, failures: 0 }));
    assert!(!state.is_busy() && !state.is_waiting() && !state.is_in_flight());
}

#[test]
fn a_turn_is_given_back_as_it_was_taken() {
    let mut state = WorkState::default();
    assert_eq!(state.dequeue(), Turn::Idle);
    state.enqueue(-3);
    assert!(state.is_busy() && !state.is_waiting());
    assert_eq!(state.dequeue(), Turn::Queued { wave: -3 });
    state.wait(LATER);
    assert!(state.is_busy() && state.is_waiting());
    assert_eq!(state.dequeue(), Turn::Waiting { until: LATER });
    assert!(!state.is_busy());
    state.enqueue(2);
    state.take_turn();
    assert_eq!(state.dequeue(), Turn::Idle);
}

#[test]
#[should_panic = "it is taken from where it was before"]
fn what_waits_is_not_queued_as_well() {
    let mut state = WorkState::default();
    state.wait(LATER);
    state.enqueue(0);
}

#[test]
#[should_panic = "there is one operation per object"]
fn two_operations_are_never_under_way() {
    let mut state = WorkState::default();
    state.begin(OpId(1));
    state.begin(OpId(2));
}

#[test]
fn what_is_under_way_may_be_queued_for_after_it() {
    let mut state = WorkState::default();
    state.begin(OpId(1));
    state.enqueue(4);
    assert_eq!(state.in_flight(), Some(OpId(1)));
    state.end();
    assert!(!state.is_in_flight());
    assert_eq!(state.dequeue(), Turn::Queued { wave: 4 });
}

#[test]
fn an_entry_is_tried_once_and_another_is_not() {
    let mut state = WorkState::default();
    assert!(state.mark_tried());
    assert!(!state.mark_tried() && state.is_tried());
    state.fail();
    state.assign();
    assert_eq!((state.is_tried(), state.failures()), (false, 0));
    assert!(state.mark_tried());
}

#[test]
fn failures_are_counted_until_it_succeeds() {
    let mut state = WorkState::default();
    state.fail_at_least(1);
    state.fail_at_least(1);
    assert_eq!(state.failures(), 1);
    state.fail();
    state.fail_at_least(1);
    assert_eq!(state.failures(), 2);
    state.mark_tried();
    state.succeed();
    assert_eq!((state.is_tried(), state.failures()), (true, 0));
}

#[test]
fn only_what_is_at_rest_comes_back_from_it_as_it_was() {
    for turn in [Turn::Idle, Turn::Queued { wave: -3 }, Turn::Waiting { until: LATER }] {
        for (tried, failures) in [(false, 0), (true, 0), (false, 1), (true, 7)] {
            let rest = AtRest { turn, tried, failures };
            let mut state = WorkState::from(rest);
            assert_eq!(state.at_rest(), Some(rest));
            state.begin(OpId(1));
            assert_eq!(state.at_rest(), None);
        }
    }
}
