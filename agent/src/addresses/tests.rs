use proptest::prelude::*;

use super::*;

mod moves;

const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;

fn url(name: &str) -> HubUrl {
    format!("https://{name}").parse().unwrap()
}

fn authority(number: u8) -> Authority {
    Authority::from_der([number; 4]).unwrap()
}

fn token(seed: u8, url_named: &str, authority_number: u8) -> EnrolmentToken {
    EnrolmentToken {
        name: "store".to_owned(),
        urls: vec![url(url_named)],
        hub: tideline_common::HubId::from_uuid(uuid::Uuid::from_u128(1)),
        hub_key: vec![7; 32],
        authorities: vec![authority(authority_number)],
        seed: vec![seed; 32],
    }
}

fn announcement(urls: &[&str], authorities: &[u8]) -> HubAddresses {
    HubAddresses {
        urls: urls.iter().map(|name| url(name).to_string()).collect(),
        authorities: authorities.iter().map(|number| authority(*number)).collect(),
    }
}

/// A locator with a clock of its own.
struct Agent {
    locator: Locator,
    now: u64,
}

impl Agent {
    fn enrolled() -> Self {
        Self::of(Addresses::of(&token(1, "a", 1)), None)
    }

    fn of(known: Addresses, given: Option<&str>) -> Self {
        Self { locator: Locator::new(known, given.map(url)).expect("an address"), now: 0 }
    }

    fn asks(&self) -> String {
        self.locator.destination().url.host().to_owned()
    }

    fn is_answered(&mut self) {
        let from = self.locator.destination();
        self.locator.answered(Monotonic::from_millis(self.now), &from);
    }

    fn is_missed(&mut self, how: Missed) {
        let from = self.locator.destination();
        self.locator.missed(&from, how);
    }

    /// Answered every minute.
    fn is_answered_for(&mut self, time: u64) {
        let until = self.now + time;
        while self.now < until {
            self.now += MINUTE;
            self.is_answered();
        }
    }

    fn hears(&mut self, urls: &[&str], authorities: &[u8]) {
        self.is_answered();
        self.locator.announced(&announcement(urls, authorities));
    }

    fn urls(&self) -> Vec<&str> {
        self.locator.known.urls.iter().map(|known| known.is.host()).collect()
    }

    fn trusts(&self) -> Vec<u8> {
        self.locator.trusted().1.map(|authority| authority.der()[0]).collect()
    }
}

#[test]
fn the_next_address_is_tried_when_one_is_unreachable_and_the_one_that_answers_comes_first() {
    let mut agent = Agent::enrolled();
    agent.hears(&["a", "b", "c"], &[1]);
    assert_eq!(agent.urls(), ["a", "b", "c"]);
    agent.is_missed(Missed::NotThere);
    agent.is_missed(Missed::NotThere);
    assert_eq!(agent.asks(), "c");
    agent.is_missed(Missed::NotThere);
    assert_eq!(agent.asks(), "a", "round again");
    agent.is_missed(Missed::NotThere);
    agent.is_answered();
    assert_eq!((agent.asks().as_str(), agent.urls()), ("b", vec!["b", "a", "c"]));
    let kept = agent.locator.take_unsaved().expect("the order is kept");
    assert_eq!(Agent::of(kept, None).asks(), "b");
}

#[test]
fn an_exchange_that_was_cut_is_no_reason_to_go_elsewhere_but_several_are() {
    let mut agent = Agent::enrolled();
    agent.hears(&["a", "b"], &[1]);
    for _ in 0..10 {
        agent.is_missed(Missed::Cut);
        agent.is_missed(Missed::Cut);
        assert_eq!(agent.asks(), "a");
        agent.is_answered();
    }
    (0..CUTS_MAX).for_each(|_| agent.is_missed(Missed::Cut));
    assert_eq!(agent.asks(), "b");
}

#[test]
fn requests_that_fail_together_are_one_reason_to_go_on() {
    let mut agent = Agent::enrolled();
    agent.hears(&["a", "b", "c"], &[1]);
    let from = agent.locator.destination();
    agent.locator.missed(&from, Missed::NotThere);
    agent.locator.missed(&from, Missed::NotThere);
    assert_eq!(agent.asks(), "b");
    agent.locator.answered(Monotonic::from_millis(agent.now), &from);
    assert_eq!(agent.asks(), "a", "a late answer says that it is there after all");
}

#[test]
fn an_address_no_longer_announced_is_dropped_after_another_has_answered_for_a_day() {
    let mut agent = Agent::enrolled();
    agent.hears(&["a", "b"], &[1]);
    agent.hears(&["b"], &[1]);
    agent.is_answered_for(2 * DAY);
    assert_eq!(agent.urls(), ["a", "b"], "the one that answers is not dropped, announced or not");
    agent.is_missed(Missed::NotThere);
    agent.is_answered();
    agent.is_answered_for(DAY - MINUTE);
    assert_eq!(agent.urls(), ["b", "a"], "not yet");
    agent.now += 2 * 60 * MINUTE;
    agent.is_answered_for(DAY - MINUTE);
    assert_eq!(agent.urls(), ["b", "a"], "the day begins anew after a long pause");
    agent.is_answered_for(2 * MINUTE);
    assert_eq!(agent.urls(), ["b"]);
    let kept = agent.locator.take_unsaved().expect("what was dropped stays so");
    assert_eq!(Agent::of(kept, None).urls(), ["b"]);
}

#[test]
fn the_day_starts_when_an_address_is_no_longer_announced() {
    let mut agent = Agent::enrolled();
    agent.hears(&["a", "b"], &[1]);
    agent.is_answered_for(2 * DAY);
    assert_eq!(agent.urls(), ["a", "b"], "both are announced");
    agent.hears(&["a"], &[1]);
    agent.is_answered_for(DAY - MINUTE);
    assert_eq!(agent.urls(), ["a", "b"]);
    agent.is_answered_for(2 * MINUTE);
    assert_eq!(agent.urls(), ["a"]);
}

#[test]
fn a_hub_that_announces_nothing_has_nothing_dropped() {
    let mut agent = Agent::of(Addresses::of(&token(1, "a", 1)), Some("proxy"));
    agent.hears(&[], &[]);
    agent.is_answered_for(3 * DAY);
    assert_eq!((agent.urls(), agent.trusts()), (vec!["proxy", "a"], vec![1]));
}

#[test]
fn a_former_authority_goes_only_after_a_connection_without_it() {
    let mut agent = Agent::enrolled();
    agent.hears(&["a"], &[2]);
    assert_eq!(agent.trusts(), [2, 1]);
    agent.is_answered_for(DAY - MINUTE);
    assert_eq!(agent.trusts(), [2, 1]);
    let before = agent.locator.destination();
    agent.is_answered_for(2 * MINUTE);
    assert_eq!(agent.trusts(), [2], "on trial");
    assert_ne!(agent.locator.destination().trust, before.trust, "so that a connection is made anew");
    agent.locator.answered(Monotonic::from_millis(agent.now), &before);
    assert!(agent.locator.trial, "an answer over an older connection proves nothing");
    agent.is_missed(Missed::NotThere);
    assert_eq!((agent.asks().as_str(), agent.trusts()), ("a", vec![2, 1]), "it was needed, and stays");
    agent.is_answered();
    agent.is_answered_for(DAY);
    agent.is_answered();
    assert_eq!(agent.trusts(), [2]);
    let kept = agent.locator.take_unsaved().expect("what was dropped stays so");
    assert_eq!(Agent::of(kept, None).trusts(), [2]);
}

#[test]
fn an_address_given_by_option_comes_first_and_is_kept() {
    let mut agent = Agent::of(Addresses::of(&token(1, "a", 1)), Some("proxy"));
    assert_eq!((agent.asks().as_str(), agent.urls()), ("proxy", vec!["proxy", "a"]));
    agent.is_missed(Missed::NotThere);
    agent.hears(&["a"], &[1]);
    agent.is_answered_for(2 * DAY);
    assert_eq!(agent.urls(), ["a", "proxy"], "the command line still says so");
    let kept = agent.locator.take_unsaved().expect("the order is kept");
    let mut agent = Agent::of(kept, None);
    agent.hears(&["a"], &[1]);
    agent.is_answered_for(DAY + MINUTE);
    assert_eq!(agent.urls(), ["a"], "and now it does not");
}

#[test]
fn a_new_token_comes_first_and_one_seen_before_changes_nothing() {
    let mut known = Addresses::of(&token(1, "a", 1));
    assert_eq!(known.take(&token(2, "b", 2)), Token::New);
    let mut agent = Agent::of(known.clone(), None);
    assert_eq!((agent.urls(), agent.trusts()), (vec!["b", "a"], vec![2, 1]));
    agent.hears(&["c"], &[3]);
    agent.is_missed(Missed::NotThere);
    agent.is_answered();
    let mut known = agent.locator.take_unsaved().expect("it has moved");
    let before = known.clone();
    assert_eq!(known.take(&token(1, "a", 1)), Token::SeenBefore);
    assert_eq!(known.take(&token(2, "b", 2)), Token::SeenBefore);
    assert_eq!((known.clone(), known.first()), (before, Some(&url("c"))));
}

#[test]
fn the_newer_of_two_copies_is_used_and_no_token_forgotten() {
    let older = Addresses::of(&token(1, "a", 1));
    let mut newer = older.clone();
    newer.take(&token(2, "b", 2));
    let mut apart = older.clone();
    apart.take(&token(3, "c", 3));
    let mut agent = Agent::of(apart.clone(), None);
    agent.hears(&["d"], &[4]);
    let apart = agent.locator.take_unsaved().expect("news");
    for mut merged in [newer.clone().merge(apart.clone()), apart.clone().merge(newer.clone())] {
        assert_eq!(merged.urls, apart.urls);
        for seen in [token(1, "a", 1), token(2, "b", 2), token(3, "c", 3)] {
            assert_eq!(merged.take(&seen), Token::SeenBefore);
        }
    }
    assert_eq!(older.clone().merge(newer.clone()), newer);
}

#[test]
fn nothing_that_comes_over_the_wire_is_kept_without_bound() {
    let mut agent = Agent::enrolled();
    agent.is_answered();
    let long = format!("https://{}", "h".repeat(5_000));
    let urls = vec!["ftp://x".to_owned(), long, url("b").to_string(), url("b").to_string()];
    let huge: Authority = serde_json::from_str(&format!("\"{}\"", "AAAA".repeat(10_000))).unwrap();
    agent.locator.announced(&HubAddresses { urls, authorities: vec![huge] });
    assert_eq!((agent.urls(), agent.trusts()), (vec!["a", "b"], vec![1]));
}

/// A token of the hub with as many URLs as there may be, which lead nowhere, and as many authorities.
fn dead_token(seed: u8) -> EnrolmentToken {
    let numbers = || (0..4).map(|number| 100 + seed * 4 + number);
    EnrolmentToken {
        urls: numbers().map(|number| url(&format!("dead{number}"))).collect(),
        authorities: numbers().map(authority).collect(),
        ..token(seed, "dead", 0)
    }
}

/// It is reached over a proxy, whose authority only its token has named.
#[test]
fn tokens_with_unreachable_addresses_push_out_neither_the_address_that_answers_nor_its_authorities() {
    let mut agent = Agent::of(Addresses::of(&token(1, "proxy", 9)), None);
    agent.hears(&["a", "b", "c", "d"], &[1, 2, 3, 4]);
    let mut known = agent.locator.known.clone();
    for seed in 10..30 {
        assert_eq!(known.take(&dead_token(seed)), Token::New);
        let mut agent = Agent::of(known, None);
        assert!(agent.asks().starts_with("dead"), "a new token comes first");
        assert!(agent.urls().contains(&"proxy"), "{seed}: {:?}", agent.urls());
        let trusted = agent.trusts();
        assert!([1, 2, 3, 4, 9].iter().all(|number| trusted.contains(number)), "{seed}: {trusted:?}");
        while agent.asks() != "proxy" {
            agent.is_missed(Missed::NotThere);
        }
        agent.hears(&["a", "b", "c", "d"], &[1, 2, 3, 4]);
        known = agent.locator.known.clone();
    }
}

#[test]
fn a_hub_that_announces_others_again_and_again_pushes_out_no_authority_that_a_token_named() {
    let mut agent = Agent::of(Addresses::of(&token(1, "proxy", 9)), None);
    for round in 0..10 {
        let numbers = [0, 1, 2, 3].map(|number| 20 + round * 4 + number);
        agent.hears(&["a", "b"], &numbers);
        let trusted = agent.trusts();
        assert!(numbers.iter().chain([&9]).all(|number| trusted.contains(number)), "{round}: {trusted:?}");
    }
}

#[derive(Clone, Debug)]
enum Happens {
    Answered,
    Missed(Missed),
    Announced(Vec<u8>, Vec<u8>),
    Later(u64),
    Restarted,
    GivenToken(u8),
}

fn happens() -> impl Strategy<Value = Happens> {
    let some = || proptest::collection::vec(0..6_u8, 0..5);
    prop_oneof![
        3 => Just(Happens::Answered),
        2 => prop_oneof![Just(Missed::NotThere), Just(Missed::Cut)].prop_map(Happens::Missed),
        2 => (some(), some()).prop_map(|(urls, authorities)| Happens::Announced(urls, authorities)),
        2 => (1..50 * 60_u64).prop_map(Happens::Later),
        1 => Just(Happens::Restarted),
        1 => (0..20_u8).prop_map(Happens::GivenToken),
    ]
}

proptest! {
    /// Whatever is announced, and whatever fails: the address that answered last stays, and within as many tries as there
    /// are addresses it is asked again.
    #[test]
    fn the_way_back_is_never_lost(story in proptest::collection::vec(happens(), 1..80)) {
        let mut agent = Agent::enrolled();
        agent.is_answered();
        let mut last = agent.asks();
        let mut answered_since_token = true;
        for step in story {
            match step {
                Happens::Answered => {
                    agent.is_answered();
                    last = agent.asks();
                    answered_since_token = true;
                }
                Happens::Missed(how) => agent.is_missed(how),
                Happens::Announced(urls, authorities) => {
                    let urls: Vec<String> = urls.iter().map(|number| format!("u{number}")).collect();
                    agent.hears(&urls.iter().map(String::as_str).collect::<Vec<_>>(), &authorities);
                    last = agent.asks();
                    answered_since_token = true;
                }
                Happens::Later(minutes) => agent.now += minutes * MINUTE,
                Happens::Restarted => {
                    let known = agent.locator.known.clone();
                    agent.locator = Locator::new(known, None).expect("there are addresses");
                }
                Happens::GivenToken(seed) => {
                    let mut known = agent.locator.known.clone();
                    known.take(&dead_token(seed));
                    answered_since_token = false;
                    agent.locator = Locator::new(known, None).expect("there are addresses");
                }
            }
            let (urls, authorities) = (agent.urls().len(), agent.locator.known.authorities.len());
            prop_assert!((1..=HUB_ADDRESSES_KNOWN_MAX).contains(&urls));
            prop_assert!((1..=HUB_ADDRESSES_KNOWN_MAX).contains(&authorities));
            prop_assert!(agent.urls().contains(&last.as_str()), "{last} is not in {:?}", agent.urls());
            // What a token names is tried first, until somebody answers.
            prop_assert!(!answered_since_token || agent.urls()[0] == last, "{last} is not first in {:?}", agent.urls());
        }
        let tries = agent.urls().len();
        let asked_again = (0..=tries).any(|_| {
            let found = agent.asks() == last;
            agent.is_missed(Missed::NotThere);
            found
        });
        prop_assert!(asked_again, "{last} is not asked among {:?}", agent.urls());
    }
}
