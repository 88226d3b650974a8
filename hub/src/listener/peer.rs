//! A connection, and each of its requests, as the rest of the hub sees them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tideline_common::Monotonic;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::budget::{Budget, Share};
use super::connections::{Caller, Closed, ConnectionId, Connections, Counts, Crowded, Network, Places, Purpose};
use crate::limits::UNTAKEN_IN_A_ROW_MAX;

/// All connections of the listener. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    table: Mutex<Table>,
    budget: Budget,
    started: Instant,
}

#[derive(Debug)]
struct Table {
    connections: Connections,
    /// Ends a connection that gives way.
    gives_way: BTreeMap<ConnectionId, CancellationToken>,
}

/// What a scrape shows.
#[derive(Clone, Debug)]
pub(crate) struct Census {
    pub(crate) counts: Counts,
    pub(crate) closed: BTreeMap<Closed, u64>,
    /// Bytes of bodies being received.
    pub(crate) body_bytes: usize,
}

impl Peers {
    pub(crate) fn new(places: Places) -> Self {
        let table = Table { connections: Connections::new(places), gives_way: BTreeMap::new() };
        Self { inner: Arc::new(Inner { table: Mutex::new(table), budget: Budget::default(), started: Instant::now() }) }
    }

    /// Gives a new connection a place.
    pub(super) fn admit(&self, address: IpAddr) -> Connected {
        let gives_way = CancellationToken::new();
        let mut table = self.table();
        let (id, other) = table.connections.admit(network(address));
        table.gives_way.insert(id, gives_way.clone());
        table.end(other);
        drop(table);
        let now = Instant::now();
        let activity = Mutex::new(Activity { is_verified: false, under_way: 0, idle_since: now, untaken: 0 });
        let connection = Connection {
            peers: self.clone(),
            id,
            address,
            accepted: now,
            gives_way,
            leaves: CancellationToken::new(),
            activity,
        };
        Connected(Arc::new(connection))
    }

    pub(crate) fn census(&self) -> Census {
        let table = self.table();
        Census {
            counts: table.connections.counts(),
            closed: table.connections.closed().clone(),
            body_bytes: self.inner.budget.used(),
        }
    }

    /// A connection that nothing serves: what gives each of its requests a peer, and what says that it is to end.
    #[cfg(test)]
    pub(crate) fn unserved(&self) -> (impl Fn() -> Peer + use<>, CancellationToken) {
        let connected = self.admit(std::net::Ipv4Addr::LOCALHOST.into());
        let leaves = connected.leaves().clone();
        (move || connected.begin(), leaves)
    }

    #[cfg(test)]
    pub(super) fn under_way(&self, key: &str) -> usize {
        self.table().connections.under_way(key)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.inner.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn end(&mut self, id: Option<ConnectionId>) {
        if let Some(gives_way) = id.and_then(|id| self.gives_way.remove(&id)) {
            gives_way.cancel();
        }
    }
}

/// A connection, for the task that serves it. It gives its place back on drop.
#[derive(Debug)]
pub(super) struct Connected(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    peers: Peers,
    id: ConnectionId,
    address: IpAddr,
    accepted: Instant,
    /// It is to be closed at once.
    gives_way: CancellationToken,
    /// It is to be closed when what is under way is answered.
    leaves: CancellationToken,
    activity: Mutex<Activity>,
}

#[derive(Debug)]
struct Activity {
    is_verified: bool,
    under_way: usize,
    idle_since: Instant,
    /// How many requests in a row were answered and not taken.
    untaken: u32,
}

/// How long a connection may stay without use, and what comes and goes over it without an end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) handshake: Duration,
    pub(super) unverified: Duration,
    pub(super) idle: Duration,
    /// How long an answer may lie there of which nothing is read.
    pub(super) unread: Duration,
    /// How long a body may take, beside what its size allows.
    pub(super) body: Duration,
}

/// Why a connection ends that nobody but this listener ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// Nobody showed whose it is.
    Unverified,
    Idle,
}

impl Connected {
    pub(super) fn gives_way(&self) -> &CancellationToken {
        &self.0.gives_way
    }

    pub(super) fn leaves(&self) -> &CancellationToken {
        &self.0.leaves
    }

    /// Waits until it was without use for too long.
    pub(super) async fn overdue(&self, patience: Patience) -> Overdue {
        loop {
            let (due, why) = self.0.due(patience);
            if due <= Instant::now() {
                return why;
            }
            // What happens until then puts it off, and never brings it forward.
            tokio::time::sleep_until(due).await;
        }
    }

    /// Counts it as closed for being late.
    pub(super) fn is_late(&self) {
        self.0.peers.table().connections.late(self.0.id);
    }

    /// A request has come over it.
    pub(super) fn begin(&self) -> Peer {
        self.0.peers.table().connections.begin(self.0.id);
        self.0.activity().under_way += 1;
        Peer(Arc::new(UnderWay { connection: Arc::clone(&self.0), caller: OnceLock::new() }))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut table = self.0.peers.table();
        table.connections.gone(self.0.id);
        table.gives_way.remove(&self.0.id);
    }
}

impl Connection {
    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self, patience: Patience) -> (Instant, Overdue) {
        let activity = self.activity();
        if !activity.is_verified {
            (self.accepted + patience.unverified, Overdue::Unverified)
        } else if activity.under_way > 0 {
            // It is idle no earlier than this.
            (Instant::now() + patience.idle, Overdue::Idle)
        } else {
            (activity.idle_since + patience.idle, Overdue::Idle)
        }
    }
}

/// One request, in its extensions: whoever finds out whom it is from says so here, before its body is read.
///
/// It is under way until every clone of this is dropped; body and answer have one each.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<UnderWay>);

#[derive(Debug)]
struct UnderWay {
    connection: Arc<Connection>,
    caller: OnceLock<Caller>,
}

impl Peer {
    /// The other end of the connection: a client's, or a load balancer's.
    pub(crate) fn address(&self) -> IpAddr {
        self.0.connection.address.to_canonical()
    }

    /// The request was proven to be this caller's: its body may be read, and its connection has a place from now on.
    ///
    /// # Errors
    ///
    /// When the caller has too much in use, and is to be told so, and nothing else.
    pub(crate) fn verified(&self, caller: Caller, purpose: Purpose) -> Result<(), Crowded> {
        let connection = &self.0.connection;
        if self.0.caller.get().is_some() {
            return Ok(());
        }
        let mut table = connection.peers.table();
        let now = Monotonic::START + connection.peers.inner.started.elapsed();
        let verdict = table.connections.verified(now, connection.id, &caller, purpose);
        table.end(verdict.gives_way);
        drop(table);
        match verdict.served {
            Ok(()) => {
                let mut activity = connection.activity();
                (activity.is_verified, activity.untaken) = (true, 0);
                drop(activity);
                // Nobody else sets it: a request is verified by the one task that answers it.
                let _first = self.0.caller.set(caller);
                Ok(())
            }
            Err(crowded) => {
                match crowded {
                    Crowded::Connections | Crowded::ConnectionsOfKey => connection.leaves.cancel(),
                    Crowded::RequestsOfKey
                    | Crowded::RateOfKey
                    | Crowded::BytesOfKey
                    | Crowded::FloodOfKey
                    | Crowded::SignedBytesOfKey => {}
                }
                Err(crowded)
            }
        }
    }

    /// The request was signed and is answered, and not taken: it is of nobody known, or was heard before. A connection over which nothing else comes
    /// is to end, whoever it was verified for once.
    pub(crate) fn untaken(&self) {
        let connection = &self.0.connection;
        let mut activity = connection.activity();
        activity.untaken += 1;
        if activity.untaken >= UNTAKEN_IN_A_ROW_MAX {
            connection.leaves.cancel();
        }
    }

    /// So many bytes of the request have arrived, or became so many more when it was unpacked: those count, however few
    /// travelled, whatever is asked with them, and also if it breaks off.
    pub(crate) fn has_sent(&self, bytes: usize) {
        self.count(|connections, now, caller| connections.has_sent(now, caller, bytes));
    }

    /// So many bytes are what the key has signed.
    pub(crate) fn has_signed(&self, bytes: usize) {
        self.count(|connections, now, caller| connections.has_signed(now, caller, bytes));
    }

    fn count(&self, count: impl FnOnce(&mut Connections, Monotonic, &Caller)) {
        let peers = &self.0.connection.peers;
        if let Some(caller) = self.0.caller.get() {
            let now = Monotonic::START + peers.inner.started.elapsed();
            count(&mut peers.table().connections, now, caller);
        }
    }

    /// Who it is from, once that was verified, and the room for bodies of such.
    pub(super) fn share(&self) -> Option<Share> {
        let caller = self.0.caller.get()?;
        Some(self.0.connection.peers.inner.budget.share(caller))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.peers.table().connections.end(connection.id, self.caller.get());
        let mut activity = connection.activity();
        activity.under_way -= 1;
        activity.idle_since = Instant::now();
    }
}

/// A site has one address of IPv4, and a /64 of IPv6, in which it may take any.
fn network(address: IpAddr) -> Network {
    match address.to_canonical() {
        IpAddr::V4(address) => Network(u128::from(address.to_bits())),
        IpAddr::V6(address) => Network(address.to_bits() >> 64 << 64),
    }
}
