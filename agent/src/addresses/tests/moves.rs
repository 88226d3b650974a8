//! A hub that moves, over and over: to other names, back to former ones, with other authorities, announced before it is there
//! or only while both are served. An agent that is awake while both are served keeps up, whatever else it missed.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Between two requests of an agent.
const EVERY: u64 = 10 * MINUTE;
const SITES: usize = 3;

/// One move of the hub.
#[derive(Clone, Debug)]
struct Move {
    /// Where it goes: there are few names, so that it comes back.
    to: u8,
    /// Who certifies it there.
    authority: u8,
    /// It says so for so long before it is there.
    early: u64,
    /// For how long both are served, and what is announced meanwhile.
    both: u64,
    announces_former: bool,
    /// How long it stays there alone.
    stays: u64,
    /// Which sites are asleep until both are served, and who restarts.
    asleep: [bool; SITES],
    restarts: [bool; SITES],
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let hours = |most: u64| (0..most * 6).prop_map(|ticks| ticks * EVERY);
    let one = (0..5_u8, 0..4_u8, hours(30), hours(40), any::<bool>(), hours(60), any::<[bool; SITES]>()).prop_flat_map(
        |(to, authority, early, both, announces_former, stays, asleep)| {
            any::<[bool; SITES]>().prop_map(move |restarts| Move {
                to,
                authority,
                early,
                both,
                announces_former,
                stays,
                asleep,
                restarts,
            })
        },
    );
    proptest::collection::vec(one, 10)
}

/// The hub's names and authorities, and what it announces.
#[derive(Clone, Debug)]
struct Hub {
    served: BTreeMap<u8, u8>,
    says: HubAddresses,
    /// Rises with each new announcement: whoever asks next gets it.
    said: u64,
}

impl Hub {
    fn announces(&mut self, urls: &[u8], authorities: &[u8]) {
        let names: Vec<String> = urls.iter().map(|name| format!("u{name}")).collect();
        self.says = announcement(&names.iter().map(String::as_str).collect::<Vec<_>>(), authorities);
        self.said += 1;
    }

    fn answers(&self, locator: &Locator) -> bool {
        let asked = locator.destination().url;
        let mut served = self.served.iter().filter(|(name, _)| url(&format!("u{name}")) == asked);
        served.any(|(_, by)| locator.trusted().1.any(|trusted| *trusted == authority(*by)))
    }
}

/// An agent, and what was seen of it.
struct Site {
    agent: Agent,
    heard: u64,
    /// Where it was answered, since when without a pause, and when last.
    answered: Option<(HubUrl, u64, u64)>,
    /// When the hub last named each.
    named: BTreeMap<HubUrl, u64>,
}

impl Site {
    fn known(&self) -> BTreeSet<HubUrl> {
        self.agent.locator.known.urls.iter().map(|known| known.is.clone()).collect()
    }

    fn restarts(&mut self) {
        let known = self.agent.locator.known.clone();
        self.agent.locator = Locator::new(known, None).expect("there are addresses");
    }

    /// Asks until it is answered.
    fn asks(&mut self, now: u64, hub: &Hub) -> Result<(), TestCaseError> {
        self.agent.now = now;
        // Every name, with what is on trial and without.
        for _ in 0..2 * HUB_ADDRESSES_KNOWN_MAX {
            if !hub.answers(&self.agent.locator) {
                self.agent.is_missed(Missed::NotThere);
                continue;
            }
            let before = self.known();
            let from = self.agent.locator.destination().url;
            self.agent.is_answered();
            let pause = MINUTE * 60;
            let since = match &self.answered {
                Some((url, since, last)) if *url == from && now - last <= pause => *since,
                Some(_) | None => now,
            };
            self.answered = Some((from.clone(), since, now));
            for dropped in before.difference(&self.known()) {
                let named = self.named.get(dropped).copied().unwrap_or_default();
                prop_assert!(dropped != &from, "{dropped} has answered just now, and is dropped");
                prop_assert!(now >= since + DAY && now >= named + DAY, "{dropped} is dropped before a day has passed");
            }
            if self.heard != hub.said {
                self.heard = hub.said;
                let full = self.known().len() + hub.says.urls.len() > HUB_ADDRESSES_KNOWN_MAX;
                let before = self.known();
                self.agent.locator.announced(&hub.says);
                prop_assert!(full || before.is_subset(&self.known()), "an announcement has dropped something");
            }
            for named in &hub.says.urls {
                self.named.insert(named.parse().expect("it is one"), now);
            }
            let (urls, authorities) = (self.known().len(), self.agent.locator.known.authorities.len());
            prop_assert!(urls <= HUB_ADDRESSES_KNOWN_MAX && authorities <= HUB_ADDRESSES_KNOWN_MAX);
            return Ok(());
        }
        Err(TestCaseError::fail(format!("the hub is at {:?}, and lost: {:?}", hub.served, self.agent.locator.known)))
    }
}

struct World {
    now: u64,
    hub: Hub,
    sites: Vec<Site>,
}

impl World {
    fn pass(&mut self, time: u64, asleep: [bool; SITES]) -> Result<(), TestCaseError> {
        let until = self.now + time;
        while self.now < until {
            self.now += EVERY;
            for (site, asleep) in self.sites.iter_mut().zip(asleep) {
                if !asleep {
                    site.asks(self.now, &self.hub)?;
                }
            }
        }
        Ok(())
    }

    fn moves(&mut self, how: &Move) -> Result<(), TestCaseError> {
        let Move { to, authority, early, both, announces_former, stays, asleep, restarts } = how;
        let (former, former_authority) = self.hub.served.pop_first().expect("it is somewhere");
        self.hub.served = [(former, former_authority)].into();
        let urls = if *announces_former { vec![*to, former] } else { vec![*to] };
        self.hub.announces(&urls, &[*authority, former_authority]);
        self.pass(*early, *asleep)?;
        if *to != former {
            self.hub.served.insert(*to, *authority);
        }
        self.pass(*both, *asleep)?;
        // An agent that slept all the time would be lost.
        self.pass(EVERY, [false; SITES])?;
        self.hub.served = [(*to, *authority)].into();
        self.hub.announces(&[*to], &[*authority]);
        for (site, restarts) in self.sites.iter_mut().zip(restarts) {
            if *restarts {
                site.restarts();
            }
        }
        self.pass(*stays + EVERY, [false; SITES])
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A thousand moves in all.
    #[test]
    fn a_hub_that_moves_is_followed_and_no_way_to_it_is_dropped_too_early(moves in moves()) {
        let says = announcement(&["u0"], &[0]);
        let hub = Hub { served: [(0, 0)].into(), says, said: 1 };
        let site = || Site {
            agent: Agent::of(Addresses::of(&token(1, "u0", 0)), None),
            heard: 0,
            answered: None,
            named: BTreeMap::new(),
        };
        let mut world = World { now: 0, hub, sites: (0..SITES).map(|_| site()).collect() };
        for how in &moves {
            world.moves(how)?;
        }
    }
}
