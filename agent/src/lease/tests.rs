use std::time::Duration;

use tideline_common::Monotonic;

use super::election::{Election, LEASE_DURATION, Loss, Move, RENEW_DEADLINE, Record};

/// A candidate at a cluster that holds one Lease. Its clock is an hour off for each that came before it.
struct Candidate {
    election: Election<u64>,
    off: u64,
}

type Lease = Option<Record<u64>>;

impl Candidate {
    fn new(name: &str, off: u64) -> Self {
        Self { election: Election::new(name.to_owned()), off }
    }

    /// Reads the Lease, and makes the move that follows.
    fn step(&mut self, second: u64, lease: &mut Lease) -> Move<u64> {
        self.election.see(at(second), lease.clone());
        let next = self.election.next(at(second), second + 3600 * self.off);
        if let Move::Create(record) | Move::Replace(record) = &next {
            *lease = Some(record.clone());
            self.election.wrote(at(second), record.clone());
        }
        next
    }
}

fn at(second: u64) -> Monotonic {
    Monotonic::from_millis(second * 1000)
}

fn holder(lease: &Lease) -> &str {
    lease.as_ref().and_then(|record| record.holder.as_deref()).unwrap_or_default()
}

#[test]
fn the_first_candidate_creates_the_lease_and_renews_it() {
    let (mut first, mut second, mut lease) = (Candidate::new("a", 0), Candidate::new("b", 7), None);
    assert!(matches!(first.step(0, &mut lease), Move::Create(_)));
    for now in (1..100).step_by(2) {
        assert!(matches!(first.step(now, &mut lease), Move::Replace(_)), "{now}");
        assert_eq!(second.step(now + 1, &mut lease), Move::Wait, "{now}");
    }
    let record = lease.expect("a Lease");
    assert_eq!((record.acquired, record.renewed, record.transitions), (Some(0), Some(99), 0));
}

#[test]
fn a_holder_that_is_silent_is_waited_for_as_long_as_it_asked_by_the_own_clock() {
    let (mut first, mut second, mut lease) = (Candidate::new("a", 900), Candidate::new("b", 0), None);
    first.step(0, &mut lease);
    // However old the record is: this one sees it for the first time.
    let seen = 1000;
    for now in 0..LEASE_DURATION.as_secs() {
        assert_eq!(second.step(seen + now, &mut lease), Move::Wait, "{now}");
    }
    assert!(matches!(second.step(seen + LEASE_DURATION.as_secs(), &mut lease), Move::Replace(_)));
    assert_eq!((holder(&lease), lease.as_ref().map(|it| it.transitions)), ("b", Some(1)));

    lease.as_mut().expect("a Lease").duration = Some(Duration::from_mins(1));
    let mut third = Candidate::new("c", 0);
    assert_eq!(third.step(2000, &mut lease), Move::Wait);
    assert_eq!(third.step(2059, &mut lease), Move::Wait);
    assert!(matches!(third.step(2060, &mut lease), Move::Replace(_)));
}

#[test]
fn a_holder_that_cannot_renew_stops_before_another_can_acquire() {
    let (mut first, mut second, mut lease) = (Candidate::new("a", 0), Candidate::new("b", 0), None);
    first.step(0, &mut lease);
    second.step(0, &mut lease);
    let deadline = RENEW_DEADLINE.as_secs();
    assert!(matches!(first.election.next(at(deadline - 1), 0), Move::Replace(_)));
    assert_eq!(first.election.next(at(deadline), 0), Move::Lost(Loss::NotRenewed));
    assert_eq!(second.step(deadline, &mut lease), Move::Wait);
    // It stays lost, though nobody else took it.
    assert_eq!(first.step(deadline + 1, &mut lease), Move::Lost(Loss::NotRenewed));
    assert_eq!(first.election.ours_until(), Some(at(deadline)));
}

#[test]
fn a_holder_that_sees_another_holder_stops() {
    let (mut first, mut lease) = (Candidate::new("a", 0), None);
    first.step(0, &mut lease);
    lease.as_mut().expect("a Lease").holder = Some("b".to_owned());
    assert_eq!(first.step(1, &mut lease), Move::Lost(Loss::Taken { by: "b".to_owned() }));
}

#[test]
fn a_released_lease_is_acquired_at_once() {
    let (mut first, mut second, mut lease) = (Candidate::new("a", 0), Candidate::new("b", 0), None);
    first.step(0, &mut lease);
    assert_eq!(second.step(1, &mut lease), Move::Wait);
    assert_eq!(second.election.release(1), None, "it is another's");
    lease = first.election.release(2);
    assert_eq!(holder(&lease), "");
    assert!(matches!(second.step(2, &mut lease), Move::Replace(_)));
    assert_eq!(holder(&lease), "b");
}

#[test]
fn a_lease_that_was_deleted_is_made_again_by_its_holder() {
    let (mut first, mut lease) = (Candidate::new("a", 0), None);
    first.step(0, &mut lease);
    lease = None;
    assert!(matches!(first.step(2, &mut lease), Move::Create(_)));
    assert_eq!(holder(&lease), "a");
}
