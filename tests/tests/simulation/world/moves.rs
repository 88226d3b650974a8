//! A hub that moves: to other names and back, with other authorities, both being served for a while. Its agent is told by the
//! hub itself, or by a person if it was not told in time.

use std::collections::{BTreeMap, BTreeSet};

use tideline_agent::addresses::{Destination, Locator, Missed};
use tideline_agent::core::RequestId;
use tideline_agent::link::exchange::VerifiedAnswer;
use tideline_common::wire::v1::HubAddresses;
use tideline_common::{Authority, EnrolmentToken, HubUrl};

use super::{Happening, World};
use crate::hub::key;
use crate::ids::{HUB, parse};

/// Names and authorities that the hub has by turns.
const NAMES: u64 = 5;
const AUTHORITIES: u64 = 4;
/// After so long people check again whether the agent knows.
const AGAIN: u64 = 60_000;

/// Where the hub is, and who certifies it there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    name: u64,
    authority: u64,
}

impl Place {
    fn url(self) -> HubUrl {
        parse(&format!("https://hub-{}.example", self.name))
    }

    fn authority(self) -> Authority {
        Authority::from_der(self.authority.to_le_bytes()).expect("it is short")
    }
}

/// Where the hub was, is and will be.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    is: Place,
    /// Where it moves to, while both are served.
    goes: Option<Place>,
    /// The former name is still announced while both are served.
    announces_former: bool,
    /// Rises with each move.
    moves: u64,
    /// The last move that the process of the agent was told of, and the last one that is in its identity.
    hears: u64,
    told: u64,
    /// The agent was not told in time.
    lost: bool,
    /// The address on the command line of the agent.
    given: Option<Place>,
    /// The token that is mounted where the agent runs, and stays there.
    tokens: u64,
    token: Place,
    /// How often the agent found the hub elsewhere.
    followed: u64,
}

impl Whereabouts {
    fn places(&self) -> impl Iterator<Item = Place> {
        self.goes.into_iter().chain([self.is])
    }

    /// What is served under a name.
    fn served(&self) -> BTreeMap<HubUrl, Authority> {
        // Under one name there is one certificate at a time: the old one as long as both are announced.
        self.places().map(|place| (place.url(), place.authority())).collect()
    }

    pub(super) fn announced(&self) -> HubAddresses {
        if self.moves == 0 {
            return HubAddresses::default();
        }
        let named = self.places().take(if self.announces_former { 2 } else { 1 });
        HubAddresses {
            urls: named.map(|place| place.url().to_string()).collect(),
            authorities: self.places().map(Place::authority).collect::<BTreeSet<_>>().into_iter().collect(),
        }
    }

    fn mounted(&self) -> EnrolmentToken {
        EnrolmentToken {
            name: "token".to_owned(),
            urls: vec![self.token.url()],
            hub: parse(HUB),
            hub_key: key().public().as_bytes().to_vec(),
            authorities: vec![self.token.authority()],
            seed: self.tokens.to_le_bytes().to_vec(),
        }
    }
}

impl World {
    /// How often the agent found the hub at another of its addresses.
    pub(crate) fn followed(&self) -> u64 {
        self.whereabouts.followed
    }

    /// All processes end and start again.
    pub(crate) fn restart_both(&mut self) {
        self.restart_hub();
        self.agent_crashes();
    }

    /// The process of the agent knows the addresses in its identity, and those on its command line.
    pub(super) fn locator_starts(&mut self) {
        self.whereabouts.hears = 0;
        if self.whereabouts.told == self.whereabouts.moves
            && self.whereabouts.given.is_some()
            && self.random.chance(500)
        {
            self.whereabouts.given = None;
        }
        let addresses = &mut self.agent.journal.addresses;
        let _seen_before = addresses.take(&self.whereabouts.mounted());
        let given = self.whereabouts.given.map(Place::url);
        self.agent.locator = Locator::new(addresses.clone(), given);
    }

    fn locator(&self) -> &Locator {
        self.agent.locator.as_ref().expect("whoever asks is up, and knows an address")
    }

    pub(super) fn destination(&self) -> Destination {
        self.locator().destination()
    }

    /// Whether the next request gets to a server that the agent trusts.
    pub(super) fn is_reached(&self) -> bool {
        let locator = self.locator();
        let by = self.whereabouts.served().remove(&locator.destination().url);
        let given = self.whereabouts.given.map(Place::authority);
        by.is_some_and(|by| given.iter().chain(locator.trusted().1).any(|trusted| *trusted == by))
    }

    pub(super) fn missed(&mut self, id: RequestId, how: Missed) {
        let waiting = self.agent.requests.get(&id);
        if let (Some(waiting), Some(locator)) = (waiting, &mut self.agent.locator) {
            locator.missed(&waiting.destination, how);
        }
    }

    /// The answer is the hub's, or is not believed.
    pub(super) fn heard(&mut self, id: RequestId, said: Option<&VerifiedAnswer>) {
        let Some(said) = said else { return self.missed(id, Missed::NotThere) };
        let now = self.monotonic();
        let waiting = self.agent.requests.get(&id);
        let (Some(waiting), Some(locator)) = (waiting, &mut self.agent.locator) else { return };
        let moved = locator.answered(now, &waiting.destination);
        let news = said.addresses.as_ref().map(|addresses| locator.announced(addresses));
        if said.addresses == Some(self.whereabouts.announced()) {
            self.whereabouts.hears = self.whereabouts.moves;
        }
        if moved {
            self.whereabouts.followed += 1;
            self.note(|| "the hub answers elsewhere".to_owned());
        }
        if news == Some(true) {
            self.note(|| format!("agent: the hub is at {:?}", said.addresses));
        }
    }

    /// The identity stores what has changed.
    pub(super) fn keep_addresses(&mut self) {
        let Some(locator) = &mut self.agent.locator else { return };
        if let Some(addresses) = locator.take_unsaved() {
            self.agent.journal.addresses = addresses;
        }
        self.whereabouts.told = self.whereabouts.told.max(self.whereabouts.hears);
    }

    /// The hub is restarted with another name or another certificate, and is served under both for a while.
    pub(crate) fn move_hub(&mut self) {
        if self.whereabouts.goes.is_some() {
            return;
        }
        let place = Place { name: self.random.below(NAMES), authority: self.random.below(AUTHORITIES) };
        self.note(|| format!("the hub MOVES to {place:?}"));
        self.whereabouts.goes = Some(place);
        self.whereabouts.announces_former = self.random.chance(500);
        self.whereabouts.moves += 1;
        let most = if self.random.chance(500) { 60_000 } else { 1_800_000 };
        let after = self.random.below(most);
        self.schedule(after, Happening::MoveEnds);
        self.hub_crashes();
    }

    /// The former address is given up. Where all goes well that waits for the agent, and otherwise for nothing.
    pub(super) fn move_ends(&mut self) {
        let Some(is) = self.whereabouts.goes else { return };
        let in_time = self.whereabouts.told == self.whereabouts.moves;
        if !in_time && (self.faults.lose == 0 || self.random.chance(500)) {
            return self.schedule(AGAIN, Happening::MoveEnds);
        }
        self.note(|| format!("the hub is at {is:?} alone; its agent was told: {in_time}"));
        (self.whereabouts.is, self.whereabouts.goes) = (is, None);
        self.whereabouts.lost |= !in_time;
        self.hub_crashes();
    }

    /// A person tells the agent where the hub is, if the hub could not, in either of two ways.
    pub(super) fn point_at_hub(&mut self) {
        if !std::mem::take(&mut self.whereabouts.lost) {
            return;
        }
        let is = self.whereabouts.is;
        if self.random.chance(500) {
            self.note(|| format!("the agent is GIVEN {is:?}"));
            self.whereabouts.given = Some(is);
        } else {
            self.note(|| format!("the agent is given a TOKEN of {is:?}"));
            self.whereabouts.tokens += 1;
            self.whereabouts.token = is;
        }
        self.agent_crashes();
    }
}
