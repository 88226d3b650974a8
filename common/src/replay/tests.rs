use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn run(n: u8) -> RunId {
    RunId::from_uuid(uuid::Uuid::from_bytes([n; 16]))
}

#[test]
fn a_number_is_taken_once_in_any_order_within_the_window() {
    let mut window = ReplayWindow::default();
    for number in [3, 1, 2, 300, 45, 299] {
        assert!(window.take(number), "{number}");
        assert!(!window.take(number), "{number} again");
    }
    assert!(!window.take(44), "what is too old to tell is refused");
    assert!(!window.take(0), "no request has it");
    assert!(!window.take(300 + LEAP_MAX + 1), "a leap would use up the range");
    assert_eq!(window.next(), 301);
}

#[test]
fn after_a_leap_nothing_is_taken_that_was_signed_before_and_the_signer_goes_on_where_it_is_told() {
    let (mut agent, mut hub) = (RunNumbers::default(), ReplayWindow::default());
    agent.answered(RunNumber { run: run(1), number: hub.next() });
    let signed: Vec<_> = (0..1000).map(|_| number_for(run(1), &agent.take()).expect("the run is known")).collect();
    assert!(hub.take(signed[3]));
    for _ in 0..3 {
        hub.leap();
        assert!(signed.iter().all(|number| !hub.take(*number)));
        let next = hub.next();
        assert!((next - WINDOW..next).all(|number| !hub.take(number)), "nobody was told of these");
        agent.answered(RunNumber { run: run(1), number: next });
        let number = number_for(run(1), &agent.take()).expect("the run is known");
        assert!(hub.take(number) && !hub.take(number));
    }
}

#[test]
fn an_agent_that_knows_no_run_is_told_one_and_goes_on_where_its_former_process_ended() {
    let (mut agent, mut hub) = (RunNumbers::default(), ReplayWindow::default());
    (1..=500).for_each(|number| assert!(hub.take(number)));
    assert_eq!(number_for(run(1), &agent.take()), None);
    agent.answered(RunNumber { run: run(1), number: hub.next() });
    let number = number_for(run(1), &agent.take()).expect("the run is known");
    assert!(hub.take(number));
    let number = number_for(run(1), &agent.take()).expect("the run is known");
    assert!(hub.take(number), "no number comes twice");
}

#[test]
fn sixteen_replicas_have_room_and_the_one_that_answered_longest_ago_gives_way() {
    let mut agent = RunNumbers::default();
    (1..=16).for_each(|n| agent.answered(RunNumber { run: run(n), number: 1 }));
    agent.answered(RunNumber { run: run(1), number: 1 });
    let header = agent.take();
    assert!((1..=16).all(|n| number_for(run(n), &header).is_some()), "{header}");
    assert!(header.len() <= 1024, "it fits the bound of a header: {}", header.len());
    agent.answered(RunNumber { run: run(17), number: 1 });
    let header = agent.take();
    assert_eq!((number_for(run(2), &header), number_for(run(1), &header)), (None, Some(2)));
}

#[test]
fn a_header_that_is_garbage_names_nothing() {
    for header in ["", "-", "=", "x=1", "6b09=", &format!("{}=x", run(1)), &format!("{}", run(1))] {
        assert_eq!(number_for(run(1), header), None, "{header}");
    }
}

proptest! {
    /// In whatever order requests come, none is taken twice, and a new one near enough is taken.
    #[test]
    fn the_window_agrees_with_a_set_of_all_that_was_taken(numbers in prop::collection::vec(1u64..1200, 0..400)) {
        let (mut window, mut taken, mut highest) = (ReplayWindow::default(), BTreeSet::new(), 0);
        for number in numbers {
            let new = !taken.contains(&number) && number + WINDOW > highest;
            prop_assert_eq!(window.take(number), new, "{}", number);
            taken.insert(number);
            highest = highest.max(number);
            prop_assert_eq!(window.next(), highest + 1);
        }
    }
}
