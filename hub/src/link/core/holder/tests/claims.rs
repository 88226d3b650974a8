//! What is claimed by whoever has the key, and how silence is counted.

use proptest::prelude::*;

use super::*;

fn named(number: u64) -> SessionName {
    SessionName::new(number, 7)
}

/// The extremes, and what is around the bound.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(u64::MAX),
        Just(u64::MAX - 1),
        Just(0),
        Just(AHEAD_MAX),
        Just(AHEAD_MAX + 2),
        0..20_u64,
        any::<u64>(),
    ]
}

fn claim() -> impl Strategy<Value = Asks> {
    let fenced = proptest::option::of((number(), number()));
    (0..3_u64, number(), number(), fenced).prop_map(|(who, persisted, last, fenced)| {
        let fenced = fenced.map(|(session, by)| Fenced { session: named(session), by: named(by) });
        asks(who, named(persisted), SessionNumber(last), fenced)
    })
}

proptest! {
    #[test]
    fn no_claim_brings_the_numbers_to_their_end(claims in proptest::collection::vec((claim(), any::<bool>()), 1..40)) {
        let mut now = Monotonic::from_millis(0);
        let mut holder = Holder::new(Record::default(), now);
        let mut bound = 0_u64;
        for (id, (claim, uses)) in (100..).zip(&claims) {
            now = now + OFFER_LAPSES;
            bound += AHEAD_MAX + 1;
            if let (Verdict::Offer(session), true) = (holder.ask(now, claim, SessionId(id)), *uses) {
                prop_assert_eq!(holder.admit(now, session), Admitted::Passed);
            }
            let record = holder.record();
            prop_assert!(record.newest.0 <= bound && record.session.number.0 <= bound, "{record:?}");
        }
        // A person says that the key goes on, and whoever asks honestly gets a session that is above all.
        let honest = asks(9, holder.record().session(), holder.record().newest, None);
        let day = now + SILENT + SILENT;
        let Verdict::Offer(session) = holder.ask(day, &honest, SessionId(99)) else { panic!("it waits for ever") };
        prop_assert_eq!(holder.admit(day, session), Admitted::Passed);
    }
}

#[test]
fn what_is_claimed_beyond_the_bound_changes_nothing() {
    let now = Monotonic::from_millis(0);
    let instance = Instance { id: InstanceId(1), host: "store".to_owned() };
    let mut holder = Holder::new(Record::held(named(5), instance), now);
    let before = holder.record().clone();
    let (fine, absurd) = (named(5 + AHEAD_MAX), named(6 + AHEAD_MAX));
    for claim in [
        asks(2, absurd, SessionNumber(5), None),
        asks(2, named(5), absurd.number, None),
        asks(2, named(5), SessionNumber(5), Some(Fenced { session: named(4), by: absurd })),
        asks(2, named(5), SessionNumber(5), Some(Fenced { session: absurd, by: named(5) })),
    ] {
        assert_eq!(holder.ask(now, &claim, SessionId(1)), Verdict::Absurd);
        assert_eq!(*holder.record(), before);
    }
    // As where the hub was set back by that much.
    assert!(matches!(holder.ask(now, &asks(2, fine, fine.number, None), SessionId(1)), Verdict::Offer(_)));
}

/// A copy of the holder's home waits for the place of one that is gone. It asks every ten minutes, and the hub runs for so
/// long at a time, with pauses that count for nothing.
fn waits_over_restarts(runs_for: Duration) -> Duration {
    let instance = Instance { id: InstanceId(1), host: "store".to_owned() };
    let mut record = Record::held(named(5), instance);
    let mut waited = Duration::ZERO;
    loop {
        // The clock of each run begins anew.
        let mut holder = Holder::new(record.clone(), Monotonic::from_millis(0));
        let mut run = Duration::ZERO;
        while run < runs_for {
            let now = Monotonic::from_millis(u64::try_from(run.as_millis()).unwrap());
            let asked = holder.ask(now, &asks(2, named(4), SessionNumber(5), None), SessionId(1));
            if matches!(asked, Verdict::Offer(_)) {
                return waited + run;
            }
            assert_eq!(asked, Verdict::Fenced(named(5)));
            run += Duration::from_mins(7);
        }
        waited += runs_for;
        record = holder.record().clone();
        assert!(waited < Duration::from_hours(100), "silence is not counted over restarts of the hub");
    }
}

#[test]
fn a_day_of_silence_is_counted_while_the_hub_runs_over_its_restarts() {
    let without = waits_over_restarts(Duration::from_hours(1000));
    assert!(without >= SILENT && without < SILENT + Duration::from_mins(10), "{without:?}");
    for runs_for in [Duration::from_mins(35), Duration::from_hours(1), Duration::from_hours(5)] {
        let waited = waits_over_restarts(runs_for);
        assert!(waited >= SILENT && waited < SILENT * 2, "{runs_for:?}: {waited:?}");
    }
}
