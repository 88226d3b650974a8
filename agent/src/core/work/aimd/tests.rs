use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const OP: Duration = Duration::from_millis(50);

/// A limit under a stream of operations, all of which end in turn.
struct Stream {
    aimd: Aimd,
    jitter: Jitter,
    now: Monotonic,
    last: u64,
}

impl Stream {
    fn new() -> Self {
        Self { aimd: Aimd::default(), jitter: Jitter::new(1), now: Monotonic::START, last: 0 }
    }

    fn end(&mut self, took: Duration, sign: Sign) {
        self.last += 1;
        self.now = self.now + Duration::from_millis(1);
        self.aimd.is_full();
        let ended = Ended { id: OpId(self.last), took, sign, last: OpId(self.last) };
        self.aimd.ended(self.now, ended, &mut self.jitter);
    }

    fn well(&mut self, count: usize) {
        (0..count).for_each(|_| self.end(OP, Sign::Well));
    }
}

#[test]
fn each_successful_round_raises_the_limit_by_one_up_to_its_maximum() {
    let mut stream = Stream::new();
    stream.well(FIRST - 1);
    assert_eq!(stream.aimd.limit(), FIRST);
    stream.well(1);
    assert_eq!(stream.aimd.limit(), FIRST + 1);
    stream.well(MAX * MAX);
    assert_eq!(stream.aimd.limit(), MAX);
}

#[test]
fn the_limit_does_not_rise_while_work_is_short_or_writes_slow_down() {
    let mut stream = Stream::new();
    for _ in 0..10 * FIRST {
        let ended = Ended { id: OpId(1), took: OP, sign: Sign::Well, last: OpId(1) };
        stream.aimd.ended(stream.now, ended, &mut stream.jitter);
    }
    assert_eq!(stream.aimd.limit(), FIRST, "nothing waited");
    (0..FIRST).for_each(|_| stream.end(OP * 3, Sign::Well));
    assert_eq!(stream.aimd.limit(), FIRST, "a round took three times as long as is usual");
    stream.well(FIRST);
    assert_eq!(stream.aimd.limit(), FIRST + 1);
}

#[test]
fn operations_begun_under_one_limit_halve_it_once() {
    let mut stream = Stream::new();
    let last = OpId(32);
    for id in 1..=32 {
        let ended = Ended { id: OpId(id), took: OP, sign: Sign::Strained(None), last };
        stream.aimd.ended(stream.now, ended, &mut stream.jitter);
    }
    assert_eq!(stream.aimd.reading(), ConcurrencyReading { limit: FIRST / 2, decreases: 1 });
    stream.last = 32;
    (0..20).for_each(|_| stream.end(OP, Sign::Strained(None)));
    assert_eq!(stream.aimd.limit(), MIN);
}

#[test]
fn nothing_begins_before_a_retry_after_is_over() {
    let mut stream = Stream::new();
    stream.end(OP, Sign::Strained(Some(Duration::from_secs(7))));
    let told = stream.now + Duration::from_secs(7);
    assert!(!stream.aimd.has_room(stream.now, 0));
    assert_eq!(stream.aimd.resume_at(), Some(told));
    assert!(stream.aimd.has_room(told, 0));
    assert_eq!(stream.aimd.resume_at(), None);

    stream.end(OP, Sign::Strained(Some(Duration::from_hours(1))));
    assert!(stream.aimd.has_room(stream.now + HOLD_MAX, 0), "one answer stops everything for no longer than this");
}

#[test]
fn strain_without_a_retry_after_holds_longer_each_time_until_something_succeeds() {
    let mut stream = Stream::new();
    let mut holds = Vec::new();
    for _ in 0..10 {
        stream.end(OP, Sign::Strained(None));
        let resume = stream.aimd.resume_at().expect("a hold");
        holds.push(resume.since(stream.now));
        stream.now = resume;
    }
    assert!(holds.windows(2).all(|pair| pair[1] * 2 >= pair[0]), "{holds:?}");
    assert!(holds[9] >= HOLD.1 / 2 && holds[9] <= HOLD.1, "{holds:?}");
    stream.end(OP, Sign::Well);
    stream.end(OP, Sign::Strained(None));
    let hold = stream.aimd.resume_at().expect("a hold").since(stream.now);
    assert!(hold <= HOLD.0, "{hold:?}");
}

#[test]
fn a_failure_of_one_object_says_nothing_about_the_api_server() {
    let failed = |reason| OpResult::DryRunCreate(Err(Failure::new(reason, "")));
    for reason in [Reason::Webhook, Reason::Invalid, Reason::Forbidden, Reason::Unavailable, Reason::BodyMissing] {
        assert_eq!(Sign::of(&failed(reason), OP), Sign::None);
    }
    assert_eq!(Sign::of(&failed(Reason::Webhook), UNANSWERED), Sign::None);
    assert_eq!(Sign::of(&failed(Reason::Throttled), OP), Sign::Strained(None));
}

#[test]
fn a_write_that_was_waited_for_in_vain_got_no_answer_whoever_gave_it_up() {
    let told = Some(Duration::from_secs(1));
    for (reason, retry_after, took, write, read) in [
        (Reason::Unavailable, None, UNANSWERED, Sign::Unanswered, Sign::Strained(None)),
        (Reason::Throttled, None, UNANSWERED, Sign::Unanswered, Sign::Strained(None)),
        (Reason::Throttled, told, UNANSWERED, Sign::Strained(told), Sign::Strained(told)),
        (Reason::Throttled, None, OP, Sign::Strained(None), Sign::Strained(None)),
        (Reason::Unavailable, None, OP, Sign::None, Sign::None),
    ] {
        let failure = Failure { retry_after, ..Failure::new(reason, "") };
        assert_eq!(Sign::of(&OpResult::DryRunCreate(Err(failure.clone())), took), write, "{reason:?} after {took:?}");
        assert_eq!(Sign::of(&OpResult::Get(Err(failure)), took), read, "{reason:?} after {took:?}");
    }
}

#[test]
fn writes_without_an_answer_leave_some_slots() {
    let mut stream = Stream::new();
    (0..20).for_each(|_| stream.end(OP, Sign::Unanswered));
    assert_eq!(stream.aimd.limit(), UNANSWERED_MIN);
    (0..20).for_each(|_| stream.end(OP, Sign::Strained(None)));
    assert_eq!(stream.aimd.limit(), MIN);
    stream.end(OP, Sign::Unanswered);
    assert_eq!(stream.aimd.limit(), MIN, "that is no reason for more");
}

/// The result of a while at an API server that has so many seats for us and refuses whatever finds none.
#[derive(Debug, Default)]
struct Tally {
    done: u64,
    refused: u64,
}

/// Keeps more to do than can be begun, for so many seconds.
fn serve(seats: usize, seconds: u64, seed: u64) -> (Tally, Aimd) {
    let (mut aimd, mut jitter, mut tally) = (Aimd::default(), Jitter::new(seed), Tally::default());
    let mut seated: BTreeMap<OpId, Monotonic> = BTreeMap::new();
    let mut last = 0;
    let mut now = Monotonic::START;
    while now < Monotonic::START + Duration::from_secs(seconds) {
        while aimd.has_room(now, seated.len()) {
            last += 1;
            if seated.len() < seats {
                seated.insert(OpId(last), now + OP);
            } else {
                tally.refused += 1;
                let sign = Sign::Strained(Some(Duration::from_secs(1)));
                let ended = Ended { id: OpId(last), took: Duration::from_millis(1), sign, last: OpId(last) };
                aimd.ended(now, ended, &mut jitter);
            }
        }
        aimd.is_full();
        now = now + Duration::from_millis(10);
        let ends: Vec<OpId> = seated.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        for id in ends {
            seated.remove(&id);
            tally.done += 1;
            aimd.ended(now, Ended { id, took: OP, sign: Sign::Well, last: OpId(last) }, &mut jitter);
        }
    }
    (tally, aimd)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// It uses the seats, and seldom asks for more.
    #[test]
    fn an_api_server_with_few_seats_is_kept_busy_and_seldom_asked_too_much(seats in 1_usize..100, seed: u64) {
        const SECONDS: u64 = 100;
        let (tally, aimd) = serve(seats, SECONDS, seed);
        let used = seats.min(MAX) as u64;
        let possible = used * SECONDS * 1000 / 50;
        prop_assert!(tally.done * 10 >= possible * 4, "{} of {possible}, {aimd:?}", tally.done);
        // Once a minute once it knows them, and some until then.
        prop_assert!(tally.refused <= FIRST as u64 + SECONDS / 4, "{tally:?}, {aimd:?}");
    }

    #[test]
    fn the_limit_stays_within_its_bounds(signs in prop::collection::vec((0_u8..4, 0_u64..40_000), 0..500)) {
        let mut stream = Stream::new();
        for (sign, millis) in signs {
            let sign = match sign {
                0 => Sign::Well,
                1 => Sign::None,
                2 => Sign::Unanswered,
                _ => Sign::Strained((millis % 2 == 0).then_some(Duration::from_millis(millis))),
            };
            stream.end(Duration::from_millis(millis), sign);
            prop_assert!((MIN..=MAX).contains(&stream.aimd.limit()));
            let resume = stream.aimd.resume_at().unwrap_or_default();
            prop_assert!(resume.since(stream.now) <= HOLD_MAX);
        }
    }
}
