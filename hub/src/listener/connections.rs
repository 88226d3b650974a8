//! Which connections have a place, and which one gives its place up. Decides; the listener carries it out.
//!
//! ```text
//!           admit                   verified
//!  (none) ─────────▶ Unverified ──────┬──────▶ Agent(key)     the longest idle one gives way
//!                        │            └──────▶ Administrator  the longest idle one gives way
//!                        ▼
//!               the oldest gives way
//! ```
//!
//! Each kind has places of its own, so that no crowd of one kind keeps another out. Whoever is new gets a place at once:
//! the oldest connection over which nobody has shown who they are gives way for it, of the same network if that has its
//! share. A connection that is verified gives way only while no request is under way on it, and only to its own kind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tideline_common::Monotonic;

use crate::limits::{
    ADMINISTRATOR_CONNECTIONS_MAX, AGENT_CONNECTIONS_MAX, CONNECTIONS_CLOSING_MAX, CONNECTIONS_PER_KEY_MAX,
    DESCRIPTORS_RESERVED, DESCRIPTORS_WANTED, REQUEST_BYTES_PER_KEY_BURST, REQUEST_BYTES_PER_KEY_EVERY_SECOND,
    REQUESTS_PER_KEY_BURST, REQUESTS_PER_KEY_EVERY, REQUESTS_PER_KEY_MAX, UNVERIFIED_CONNECTIONS_MAX,
    UNVERIFIED_SHARE_OF_ONE_NETWORK,
};

/// How many connections of each kind there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) unverified: usize,
    pub(crate) unverified_per_network: usize,
    pub(crate) agents: usize,
    pub(crate) administrators: usize,
    pub(crate) per_key: usize,
    pub(crate) requests_per_key: usize,
    /// A key may send one request in this time, on average …
    pub(crate) request_every: Duration,
    /// … and so many at once.
    pub(crate) requests_burst: u32,
    /// Bytes of its requests, as they are read: a second, on average …
    pub(crate) bytes_every_second: usize,
    /// … and at once.
    pub(crate) bytes_burst: usize,
}

impl Places {
    /// As many as a process may have that can open so many descriptors. At least one of each kind.
    pub(crate) fn within(descriptors: usize) -> Self {
        let (unverified, administrators, agents) = if descriptors >= DESCRIPTORS_WANTED {
            (UNVERIFIED_CONNECTIONS_MAX, ADMINISTRATOR_CONNECTIONS_MAX, AGENT_CONNECTIONS_MAX)
        } else {
            let free = descriptors.saturating_sub(DESCRIPTORS_RESERVED + CONNECTIONS_CLOSING_MAX);
            let (unverified, administrators) =
                (UNVERIFIED_CONNECTIONS_MAX.min(free / 4), ADMINISTRATOR_CONNECTIONS_MAX.min(free / 8));
            (unverified, administrators, AGENT_CONNECTIONS_MAX.min(free - unverified - administrators))
        };
        Self {
            unverified: unverified.max(1),
            unverified_per_network: (unverified / UNVERIFIED_SHARE_OF_ONE_NETWORK).max(1),
            agents: agents.max(1),
            administrators: administrators.max(1),
            per_key: CONNECTIONS_PER_KEY_MAX,
            requests_per_key: REQUESTS_PER_KEY_MAX,
            request_every: REQUESTS_PER_KEY_EVERY,
            requests_burst: REQUESTS_PER_KEY_BURST,
            bytes_every_second: REQUEST_BYTES_PER_KEY_EVERY_SECOND,
            bytes_burst: REQUEST_BYTES_PER_KEY_BURST,
        }
    }

    pub(crate) fn total(&self) -> usize {
        self.unverified + self.agents + self.administrators
    }
}

/// Names a connection. Rises with every one that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(u64);

/// Where a connection comes from: an IPv4 address, or the /64 that a site has of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Network(pub(crate) u128);

/// Who sent a request, as was verified.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// By the key that signed: an agent's, with its target, or an enrolment token's.
    Agent(String),
    Administrator,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An agent says how its objects do. That may come later, and is most of what agents send.
    Report,
    Other,
}

/// Why a request that was verified is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Crowded {
    #[error("the hub has no place for another connection")]
    Connections,
    #[error("too many connections of this key are in use")]
    ConnectionsOfKey,
    #[error("too many requests of this key are under way")]
    RequestsOfKey,
    #[error("this key sends requests too fast")]
    RateOfKey,
    #[error("the requests of this key have too many bytes")]
    BytesOfKey,
    /// And goes on so, however often it is told: no agent that waits when it is told to does.
    #[error("this key sends requests much too fast")]
    FloodOfKey,
    /// Twice as many as an agent is told to wait for. Counting only what the key has signed, so that nobody on the way can
    /// have added to it.
    #[error("the requests that this key signed have far too many bytes")]
    SignedBytesOfKey,
}

/// Why a connection was closed by the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closed {
    /// Unverified, and all places of such were taken.
    Unverified,
    /// Unverified, and its network had its share.
    Network,
    /// Idle, and its key had its share.
    Key,
    /// Idle, and all places of its kind were taken.
    Idle,
    /// It did not show in time whose it is.
    Late,
}

/// What follows when a request was verified.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) served: Result<(), Crowded>,
    pub(crate) gives_way: Option<ConnectionId>,
}

/// How many connections there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) unverified: usize,
    pub(crate) agents: usize,
    pub(crate) administrators: usize,
}

#[derive(Debug)]
struct Connection {
    network: Network,
    /// Whoever was verified on it first; that it carries others as well changes nothing.
    caller: Option<Caller>,
    requests: usize,
    /// Since when it is idle, by the order in which connections became so.
    idle: Option<u64>,
}

/// Verified connections of one kind.
#[derive(Debug, Default)]
struct Kind {
    count: usize,
    idle: BTreeMap<u64, ConnectionId>,
}

/// What one key has in use. It is kept: there are no more than agents had keys in this run, of which each needs a token, and
/// tokens.
#[derive(Debug, Default)]
struct Key {
    connections: BTreeSet<ConnectionId>,
    requests: usize,
    /// When all of its requests would have come, had they come no faster than they may on average.
    even_at: Monotonic,
    /// The same of all their bytes.
    bytes_even_at: Monotonic,
    /// The same of those that are what it signed.
    signed_bytes_even_at: Monotonic,
}

impl Key {
    /// Counts a request, served or not; twice a burst is as far as that goes. Whose requests have too many bytes sends
    /// reports later: what its target is told does not wait for what was said of it.
    fn count(&mut self, now: Monotonic, places: &Places, purpose: Purpose) -> Result<(), Crowded> {
        let burst = places.request_every * places.requests_burst;
        let even_at = self.even_at.max(now) + places.request_every;
        self.even_at = even_at.min(now + burst * 2);
        let bytes_burst = time_for(places.bytes_burst, places);
        let bytes_until = match purpose {
            Purpose::Report => now + bytes_burst,
            Purpose::Other => now + bytes_burst * 2,
        };
        if even_at > now + burst * 2 {
            Err(Crowded::FloodOfKey)
        } else if even_at > now + burst {
            Err(Crowded::RateOfKey)
        } else if self.signed_bytes_even_at > now + bytes_burst * 2 {
            Err(Crowded::SignedBytesOfKey)
        } else if self.bytes_even_at > bytes_until {
            Err(Crowded::BytesOfKey)
        } else {
            Ok(())
        }
    }
}

/// How long it takes to send so many bytes, at the rate of one key.
fn time_for(bytes: usize, places: &Places) -> Duration {
    Duration::from_micros((bytes as u64 * 1_000_000) / (places.bytes_every_second.max(1) as u64))
}

/// All connections that have a place.
#[derive(Debug)]
pub(crate) struct Connections {
    places: Places,
    last: u64,
    last_idle: u64,
    connections: BTreeMap<ConnectionId, Connection>,
    unverified: BTreeSet<ConnectionId>,
    networks: BTreeMap<Network, BTreeSet<ConnectionId>>,
    agents: Kind,
    administrators: Kind,
    keys: BTreeMap<String, Key>,
    closed: BTreeMap<Closed, u64>,
}

impl Connections {
    pub(crate) fn new(places: Places) -> Self {
        Self {
            places,
            last: 0,
            last_idle: 0,
            connections: BTreeMap::new(),
            unverified: BTreeSet::new(),
            networks: BTreeMap::new(),
            agents: Kind::default(),
            administrators: Kind::default(),
            keys: BTreeMap::new(),
            closed: BTreeMap::new(),
        }
    }

    /// Gives a new connection a place, and says which one gives way for it.
    pub(crate) fn admit(&mut self, network: Network) -> (ConnectionId, Option<ConnectionId>) {
        let of_network = self.networks.get(&network).filter(|ids| ids.len() >= self.places.unverified_per_network);
        let gives_way = match of_network.and_then(BTreeSet::first) {
            Some(oldest) => Some((*oldest, Closed::Network)),
            None if self.unverified.len() >= self.places.unverified => {
                self.unverified.first().map(|oldest| (*oldest, Closed::Unverified))
            }
            None => None,
        };
        let gives_way = gives_way.map(|(oldest, why)| self.close(oldest, why));
        self.last += 1;
        let id = ConnectionId(self.last);
        self.connections.insert(id, Connection { network, caller: None, requests: 0, idle: None });
        self.unverified.insert(id);
        self.networks.entry(network).or_default().insert(id);
        (id, gives_way)
    }

    /// A request begins.
    pub(crate) fn begin(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.requests += 1;
        if let Some(idle) = connection.idle.take() {
            self.kind_of(id).idle.remove(&idle);
        }
    }

    /// The request under way on this connection is this caller's.
    pub(crate) fn verified(&mut self, now: Monotonic, id: ConnectionId, caller: &Caller, purpose: Purpose) -> Verdict {
        let crowded = |why| Verdict { served: Err(why), gives_way: None };
        let Some(connection) = self.connections.get(&id) else { return crowded(Crowded::Connections) };
        let is_new = connection.caller.is_none();
        if let Caller::Agent(key) = caller {
            let key = self.keys.entry(key.clone()).or_default();
            if let Err(why) = key.count(now, &self.places, purpose) {
                return crowded(why);
            }
            if key.requests >= self.places.requests_per_key {
                return crowded(Crowded::RequestsOfKey);
            }
        }
        let gives_way = if is_new {
            match self.place_for(caller) {
                Ok(gives_way) => gives_way.map(|(id, why)| self.close(id, why)),
                Err(why) => return crowded(why),
            }
        } else {
            None
        };
        if is_new {
            self.enlist(id, caller);
        }
        if let Caller::Agent(key) = caller {
            self.keys.entry(key.clone()).or_default().requests += 1;
        }
        Verdict { served: Ok(()), gives_way }
    }

    /// So many bytes came as this caller's. The request that has them is served; what follows may not be.
    pub(crate) fn has_sent(&mut self, now: Monotonic, caller: &Caller, bytes: usize) {
        let took = time_for(bytes, &self.places);
        if let Some(key) = self.key_of(caller) {
            key.bytes_even_at = key.bytes_even_at.max(now) + took;
        }
    }

    /// So many of them are what the caller has signed.
    pub(crate) fn has_signed(&mut self, now: Monotonic, caller: &Caller, bytes: usize) {
        let took = time_for(bytes, &self.places);
        if let Some(key) = self.key_of(caller) {
            key.signed_bytes_even_at = key.signed_bytes_even_at.max(now) + took;
        }
    }

    fn key_of(&mut self, caller: &Caller) -> Option<&mut Key> {
        match caller {
            Caller::Agent(name) => self.keys.get_mut(name),
            Caller::Administrator => None,
        }
    }

    /// A request ended. It was this caller's, if it was served as theirs.
    pub(crate) fn end(&mut self, id: ConnectionId, caller: Option<&Caller>) {
        if let Some(Caller::Agent(name)) = caller
            && let Some(key) = self.keys.get_mut(name)
        {
            key.requests = key.requests.saturating_sub(1);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.requests = connection.requests.saturating_sub(1);
        if connection.requests == 0 && connection.caller.is_some() {
            self.last_idle += 1;
            connection.idle = Some(self.last_idle);
            let order = self.last_idle;
            self.kind_of(id).idle.insert(order, id);
        }
    }

    /// It did not show in time whose it is.
    pub(crate) fn late(&mut self, id: ConnectionId) {
        if self.connections.contains_key(&id) {
            self.close(id, Closed::Late);
        }
    }

    /// It is closed, by whomever.
    pub(crate) fn gone(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (network, caller, idle) = (connection.network, connection.caller.clone(), connection.idle);
        if caller.is_some() {
            let kind = self.kind_of(id);
            kind.count -= 1;
            if let Some(idle) = idle {
                kind.idle.remove(&idle);
            }
        }
        match caller {
            Some(Caller::Agent(name)) => {
                if let Some(key) = self.keys.get_mut(&name) {
                    key.connections.remove(&id);
                }
            }
            Some(Caller::Administrator) => {}
            None => self.strike_unverified(id, network),
        }
        self.connections.remove(&id);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            unverified: self.unverified.len(),
            agents: self.agents.count,
            administrators: self.administrators.count,
        }
    }

    /// How many connections the listener closed, since it began, and why.
    pub(crate) fn closed(&self) -> &BTreeMap<Closed, u64> {
        &self.closed
    }

    /// Requests of one key that are being answered.
    #[cfg(test)]
    pub(crate) fn under_way(&self, key: &str) -> usize {
        self.keys.get(key).map_or(0, |key| key.requests)
    }

    /// Who must give way for a connection that is verified as this caller's.
    fn place_for(&self, caller: &Caller) -> Result<Option<(ConnectionId, Closed)>, Crowded> {
        let (kind, places) = match caller {
            Caller::Agent(_) => (&self.agents, self.places.agents),
            Caller::Administrator => (&self.administrators, self.places.administrators),
        };
        if let Caller::Agent(key) = caller
            && let Some(key) = self.keys.get(key).filter(|key| key.connections.len() >= self.places.per_key)
        {
            let idle = key.connections.iter().filter_map(|id| Some((self.connections.get(id)?.idle?, *id)));
            let (_, longest) = idle.min().ok_or(Crowded::ConnectionsOfKey)?;
            return Ok(Some((longest, Closed::Key)));
        }
        if kind.count < places {
            return Ok(None);
        }
        let (_, longest) = kind.idle.first_key_value().ok_or(Crowded::Connections)?;
        Ok(Some((*longest, Closed::Idle)))
    }

    fn enlist(&mut self, id: ConnectionId, caller: &Caller) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.caller = Some(caller.clone());
        let network = connection.network;
        self.strike_unverified(id, network);
        self.kind_of(id).count += 1;
        if let Caller::Agent(key) = caller {
            self.keys.entry(key.clone()).or_default().connections.insert(id);
        }
    }

    fn strike_unverified(&mut self, id: ConnectionId, network: Network) {
        self.unverified.remove(&id);
        if let Some(ids) = self.networks.get_mut(&network) {
            ids.remove(&id);
            if ids.is_empty() {
                self.networks.remove(&network);
            }
        }
    }

    fn close(&mut self, id: ConnectionId, why: Closed) -> ConnectionId {
        *self.closed.entry(why).or_default() += 1;
        self.gone(id);
        id
    }

    /// Of a connection that is verified.
    fn kind_of(&mut self, id: ConnectionId) -> &mut Kind {
        match self.connections.get(&id).and_then(|connection| connection.caller.as_ref()) {
            Some(Caller::Administrator) => &mut self.administrators,
            Some(Caller::Agent(_)) | None => &mut self.agents,
        }
    }
}

#[cfg(test)]
mod tests;
