use super::*;

const DAY: u64 = 24 * 60 * 60;
const YEAR: u64 = 365 * DAY;

fn at(seconds: u64) -> Monotonic {
    Monotonic::from_millis(seconds * 1000)
}

/// What the hub signed, heard when the process was an hour old.
fn hub(signed: u64) -> HubTime {
    HubTime { signed: UnixSeconds(signed), heard: at(3600) }
}

#[test]
fn a_clock_is_judged_by_the_build_and_by_the_last_word_of_the_hub() {
    let build = BUILT.0;
    let far = |hub| Worth::FarFromHub { hub: UnixSeconds(hub) };
    let just_now = 3660;
    for (clock, hub_time, now, worth, at_least) in [
        // Nothing was heard of the hub.
        (0, None, 5, Worth::BeforeBuild, build),
        (build - 1, None, 5, Worth::BeforeBuild, build),
        (build, None, 5, Worth::Unconfirmed, build),
        (build + 24 * YEAR, None, 5, Worth::Unconfirmed, build),
        // It was, a minute ago.
        (build + YEAR, Some(build + YEAR), just_now, Worth::Confirmed, build + YEAR + 60),
        (build + YEAR + DAY, Some(build + YEAR), just_now, Worth::Confirmed, build + YEAR + 60),
        (build + YEAR - DAY, Some(build + YEAR), just_now, far(build + YEAR + 60), build + YEAR + 60),
        (build + 24 * YEAR, Some(build + YEAR), just_now, far(build + YEAR + 60), build + YEAR + 60),
        (0, Some(build + YEAR), just_now, Worth::BeforeBuild, build + YEAR + 60),
        // A hub in 1970 does not make it earlier than the build.
        (build + YEAR, Some(0), just_now, far(60), build),
        (0, Some(0), just_now, Worth::BeforeBuild, build),
        // It was silent since.
        (build + YEAR, Some(build + 24 * YEAR), 3600 + 3601, Worth::Unconfirmed, build + 24 * YEAR + 3601),
        (build + YEAR, Some(build + YEAR), 3600 + DAY, Worth::Unconfirmed, build + YEAR + DAY),
    ] {
        let judged = judge(UnixSeconds(clock), at(now), hub_time.map(hub));
        let expected = Judgement { clock: UnixSeconds(clock), worth, at_least: UnixSeconds(at_least) };
        assert_eq!(judged, expected, "{clock} with {hub_time:?} at {now}");
    }
}

#[test]
fn a_judgement_says_what_is_wrong_and_what_to_do() {
    let says = |clock, hub_time: Option<u64>| judge(UnixSeconds(clock), at(3600), hub_time.map(hub)).to_string();
    assert_eq!(
        says(3, None),
        format!(
            "the clock of this machine says 1970-01-01T00:00:03Z, which is before this version was built ({BUILT}): set it, \
             as by NTP"
        )
    );
    assert_eq!(
        says(2_524_608_000, Some(1_800_000_000)),
        "the clock of this machine says 2050-01-01T00:00:00Z, and the hub says 2027-01-15T08:00:00Z: set the one that is \
         wrong, as by NTP"
    );
    assert!(says(u64::MAX, None).contains("if that is wrong, set it"));
    assert_eq!(
        says(1_800_000_000, Some(1_800_028_800)),
        "the clock of this machine says 2027-01-15T08:00:00Z, within a day of what the hub says: if that is wrong, set it"
    );
}

#[test]
fn the_time_of_the_build_is_the_release_or_what_the_builder_says_if_that_is_later() {
    assert_eq!(built(None), RELEASED);
    assert_eq!(built(Some("315532800")), RELEASED);
    assert_eq!(built(Some("1900000000")), UnixSeconds(1_900_000_000));
    assert_eq!(RELEASED.to_string(), "2026-11-01T00:00:00Z");
}
