use proptest::prelude::*;
use tideline_common::limits::{DESIRED_OBJECTS_MAX, REQUEST_BYTES_MAX};

use super::*;
use crate::limits::{REPORTED_BYTES_BASE, REPORTED_BYTES_PER_OBJECT};

const SMALL: Places = Places {
    unverified: 4,
    unverified_per_network: 2,
    agents: 3,
    administrators: 2,
    per_key: 2,
    requests_per_key: 3,
    request_every: Duration::from_millis(100),
    requests_burst: 1_000,
    bytes_every_second: 1_000,
    bytes_burst: 10_000,
};

const HERE: Network = Network(1);
const THERE: Network = Network(2);

fn agent(name: &str) -> Caller {
    Caller::Agent(name.to_owned())
}

/// A connection with one request under way that was verified as this caller's.
fn busy(connections: &mut Connections, network: Network, caller: &Caller) -> ConnectionId {
    let (id, _) = connections.admit(network);
    connections.begin(id);
    assert_eq!(connections.verified(Monotonic::START, id, caller, Purpose::Other).served, Ok(()));
    id
}

fn idle(connections: &mut Connections, network: Network, caller: &Caller) -> ConnectionId {
    let id = busy(connections, network, caller);
    connections.end(id, Some(caller));
    id
}

#[test]
fn the_oldest_unverified_connection_gives_way_when_all_places_are_taken() {
    let mut connections = Connections::new(SMALL);
    let verified = busy(&mut connections, HERE, &agent("a"));
    let four = [1, 2, 3, 4].map(|number| connections.admit(Network(number)));
    assert!(four.iter().all(|(_, gives_way)| gives_way.is_none()));
    assert_eq!(connections.admit(Network(5)).1, Some(four[0].0));
    assert_eq!(connections.admit(Network(6)).1, Some(four[1].0));
    assert_eq!(connections.closed(), &BTreeMap::from([(Closed::Unverified, 2)]));
    assert_eq!(connections.counts(), Counts { unverified: 4, agents: 1, administrators: 0 });
    connections.late(four[2].0);
    assert!(connections.admit(Network(7)).1.is_none(), "there is a place again");
    connections.begin(verified);
    assert_eq!(connections.verified(Monotonic::START, verified, &agent("a"), Purpose::Other).served, Ok(()));
}

#[test]
fn a_network_that_has_its_share_makes_none_but_its_own_give_way() {
    let mut connections = Connections::new(SMALL);
    let (other, _) = connections.admit(THERE);
    let flood: Vec<_> = (0..20).map(|_| connections.admit(HERE)).collect();
    let gone: BTreeSet<_> = flood.iter().filter_map(|(_, gives_way)| *gives_way).collect();
    assert_eq!(gone, flood[..18].iter().map(|(id, _)| *id).collect());
    assert!(!gone.contains(&other));
    assert_eq!(connections.closed(), &BTreeMap::from([(Closed::Network, 18)]));
}

#[test]
fn who_was_verified_counts_for_no_network() {
    let mut connections = Connections::new(SMALL);
    for name in ["a", "b", "c"] {
        busy(&mut connections, HERE, &agent(name));
    }
    for _ in 0..2 {
        assert!(connections.admit(HERE).1.is_none());
    }
}

#[test]
fn silent_connections_take_no_place_of_agents_and_administrators() {
    let mut connections = Connections::new(SMALL);
    let kept = [agent("a"), agent("b"), Caller::Administrator].map(|caller| busy(&mut connections, HERE, &caller));
    for number in 0..1_000 {
        let (_, gives_way) = connections.admit(Network(number));
        assert!(!gives_way.is_some_and(|id| kept.contains(&id)));
    }
    busy(&mut connections, HERE, &agent("c"));
    busy(&mut connections, HERE, &Caller::Administrator);
    assert_eq!(connections.counts(), Counts { unverified: 3, agents: 3, administrators: 2 });
}

#[test]
fn agents_take_no_place_of_administrators() {
    let mut connections = Connections::new(SMALL);
    for name in ["a", "b", "c"] {
        busy(&mut connections, HERE, &agent(name));
    }
    let (late, _) = connections.admit(HERE);
    connections.begin(late);
    assert_eq!(
        connections.verified(Monotonic::START, late, &agent("d"), Purpose::Other),
        Verdict { served: Err(Crowded::Connections), gives_way: None }
    );
    connections.gone(late);
    busy(&mut connections, HERE, &Caller::Administrator);
    busy(&mut connections, HERE, &Caller::Administrator);
}

#[test]
fn the_longest_idle_of_a_kind_gives_way_and_none_that_is_in_use() {
    let mut connections = Connections::new(SMALL);
    busy(&mut connections, HERE, &agent("a"));
    let later = busy(&mut connections, HERE, &agent("b"));
    let longest = idle(&mut connections, HERE, &agent("c"));
    connections.end(later, Some(&agent("b")));
    let mut verify = |name: &str| {
        let (id, _) = connections.admit(HERE);
        connections.begin(id);
        connections.verified(Monotonic::START, id, &agent(name), Purpose::Other)
    };
    assert_eq!(verify("d").gives_way, Some(longest));
    assert_eq!(verify("e").gives_way, Some(later));
    assert_eq!(verify("f"), Verdict { served: Err(Crowded::Connections), gives_way: None });
}

#[test]
fn a_key_makes_only_its_own_connections_give_way() {
    let mut connections = Connections::new(Places { agents: 100, ..SMALL });
    let other = idle(&mut connections, HERE, &agent("b"));
    let first = idle(&mut connections, HERE, &agent("a"));
    busy(&mut connections, HERE, &agent("a"));
    let (third, _) = connections.admit(HERE);
    connections.begin(third);
    let verdict = connections.verified(Monotonic::START, third, &agent("a"), Purpose::Other);
    assert_eq!(verdict, Verdict { served: Ok(()), gives_way: Some(first) });
    let (fourth, _) = connections.admit(HERE);
    connections.begin(fourth);
    let verdict = connections.verified(Monotonic::START, fourth, &agent("a"), Purpose::Other);
    assert_eq!(verdict, Verdict { served: Err(Crowded::ConnectionsOfKey), gives_way: None });
    connections.begin(other);
    assert_eq!(connections.verified(Monotonic::START, other, &agent("b"), Purpose::Other).served, Ok(()));
}

#[test]
fn a_key_has_so_many_requests_and_others_have_theirs() {
    let mut connections = Connections::new(SMALL);
    let id = busy(&mut connections, HERE, &agent("a"));
    for _ in 1..SMALL.requests_per_key {
        connections.begin(id);
        assert_eq!(connections.verified(Monotonic::START, id, &agent("a"), Purpose::Other).served, Ok(()));
    }
    connections.begin(id);
    assert_eq!(
        connections.verified(Monotonic::START, id, &agent("a"), Purpose::Other).served,
        Err(Crowded::RequestsOfKey)
    );
    connections.end(id, None);
    // A load balancer carries many over one connection.
    connections.begin(id);
    assert_eq!(connections.verified(Monotonic::START, id, &agent("b"), Purpose::Other).served, Ok(()));
    connections.end(id, Some(&agent("a")));
    connections.begin(id);
    assert_eq!(connections.verified(Monotonic::START, id, &agent("a"), Purpose::Other).served, Ok(()));
}

#[test]
fn a_key_that_is_too_fast_is_told_so_and_one_that_does_not_hear_is_found_out() {
    let mut connections = Connections::new(Places { requests_burst: 10, ..SMALL });
    let (id, _) = connections.admit(HERE);
    let mut at = |millis: u64, name: &str| {
        connections.begin(id);
        let served = connections.verified(Monotonic::from_millis(millis), id, &agent(name), Purpose::Other).served;
        connections.end(id, served.is_ok().then(|| agent(name)).as_ref());
        served
    };
    let burst: Vec<_> = (0..11).map(|_| at(0, "a")).collect();
    assert_eq!(burst.iter().filter(|served| served.is_ok()).count(), 10);
    assert_eq!(burst[10], Err(Crowded::RateOfKey));
    assert_eq!(at(0, "b"), Ok(()), "others are as fast as they were");
    // Two refusals, a moment each, and it is served as often as on average.
    for tenths in 2..100 {
        assert_eq!(at(tenths * 100, "a"), Ok(()), "{tenths}");
    }
    let flood: BTreeSet<_> = (0..30).map(|_| format!("{:?}", at(9_900, "a"))).collect();
    assert!(flood.contains("Err(FloodOfKey)"), "{flood:?}");
}

#[test]
fn a_key_whose_few_requests_are_large_waits_until_they_are_paid_for() {
    let mut connections = Connections::new(SMALL);
    let (id, _) = connections.admit(HERE);
    let mut sends = |millis: u64, name: &str, bytes: usize| {
        connections.begin(id);
        let now = Monotonic::from_millis(millis);
        let served = connections.verified(now, id, &agent(name), Purpose::Report).served;
        if served.is_ok() {
            connections.has_sent(now, &agent(name), bytes);
        }
        connections.end(id, served.is_ok().then(|| agent(name)).as_ref());
        served
    };
    assert_eq!(sends(0, "a", 9_000), Ok(()));
    assert_eq!(sends(0, "a", 9_000), Ok(()), "what it takes is known when it was read");
    assert_eq!(sends(0, "a", 1), Err(Crowded::BytesOfKey));
    assert_eq!(sends(0, "b", 9_000), Ok(()), "others send as much as they did");
    assert_eq!(sends(7_999, "a", 1), Err(Crowded::BytesOfKey));
    assert_eq!(sends(8_000, "a", 0), Ok(()));
    // An hour of silence does not add up.
    assert_eq!(sends(3_600_000, "a", 11_000), Ok(()));
    assert_eq!(sends(3_600_000, "a", 0), Err(Crowded::BytesOfKey));
}

/// A hub that was started again asks for everything, and may ask once more before it has it.
#[test]
fn all_that_is_kept_of_a_target_may_be_said_twice_at_once_and_only_reports_wait_for_it() {
    let mut connections = Connections::new(Places::within(usize::MAX));
    let (id, _) = connections.admit(HERE);
    let mut sends = |purpose, bytes| {
        let now = Monotonic::START;
        connections.begin(id);
        let served = connections.verified(now, id, &agent("a"), purpose).served;
        if served.is_ok() {
            connections.has_sent(now, &agent("a"), bytes);
            connections.has_signed(now, &agent("a"), bytes);
        }
        connections.end(id, served.is_ok().then(|| agent("a")).as_ref());
        served
    };
    let kept = REPORTED_BYTES_BASE + REPORTED_BYTES_PER_OBJECT * DESIRED_OBJECTS_MAX;
    for _ in 0..(2 * kept).div_ceil(REQUEST_BYTES_MAX) {
        assert_eq!(sends(Purpose::Report, REQUEST_BYTES_MAX), Ok(()));
    }
    while sends(Purpose::Report, REQUEST_BYTES_MAX).is_ok() {}
    assert_eq!(sends(Purpose::Report, 1), Err(Crowded::BytesOfKey), "it is told to wait, and accused of nothing");
    for _ in 0..10 {
        assert_eq!(sends(Purpose::Other, 0), Ok(()));
    }
}

/// What was added to its requests on the way makes a key wait, and accuses nobody.
#[test]
fn of_bytes_that_a_key_did_not_sign_it_is_not_accused() {
    for (signed, crowded) in [(0, Crowded::BytesOfKey), (21_000, Crowded::SignedBytesOfKey)] {
        let mut connections = Connections::new(SMALL);
        let (id, _) = connections.admit(HERE);
        let now = Monotonic::START;
        assert_eq!(connections.verified(now, id, &agent("a"), Purpose::Other).served, Ok(()));
        connections.has_sent(now, &agent("a"), 21_000);
        connections.has_signed(now, &agent("a"), signed);
        assert_eq!(connections.verified(now, id, &agent("a"), Purpose::Other).served, Err(crowded));
    }
}

#[test]
fn places_follow_the_limit_of_descriptors() {
    let all = Places::within(1 << 20);
    assert_eq!((all.agents, all.administrators, all.unverified), (20_000, 1_024, 4_096));
    for descriptors in [0, 100, 192, 200, 256, 1_024, 4_096, DESCRIPTORS_WANTED - 1, DESCRIPTORS_WANTED] {
        let places = Places::within(descriptors);
        let most = places.total() + CONNECTIONS_CLOSING_MAX + DESCRIPTORS_RESERVED;
        assert!(
            most <= descriptors.max(DESCRIPTORS_RESERVED + CONNECTIONS_CLOSING_MAX + 3),
            "{descriptors}: {places:?}"
        );
        assert!(places.unverified_per_network >= 1 && places.agents >= 1 && places.administrators >= 1);
    }
    let usual = Places::within(1_024);
    assert_eq!((usual.agents, usual.administrators, usual.unverified), (520, 104, 208));
}

#[derive(Clone, Debug)]
enum Step {
    Admit(u128),
    Request(usize, u8),
    End(usize),
    Gone(usize),
    Late(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4u128).prop_map(Step::Admit),
        6 => (any::<usize>(), 0..5u8).prop_map(|(which, who)| Step::Request(which, who)),
        4 => any::<usize>().prop_map(Step::End),
        1 => any::<usize>().prop_map(Step::Gone),
        1 => any::<usize>().prop_map(Step::Late),
    ];
    prop::collection::vec(step, 0..200)
}

fn who(number: u8) -> Option<Caller> {
    match number {
        0 => None,
        1 => Some(Caller::Administrator),
        name => Some(agent(&name.to_string())),
    }
}

/// What the table must agree with: who is open, and what is under way.
#[derive(Default)]
struct World {
    open: BTreeMap<ConnectionId, Network>,
    verified: BTreeSet<ConnectionId>,
    under_way: Vec<(ConnectionId, Option<Caller>)>,
}

impl World {
    /// Whether this one may be closed to make room.
    fn lose(&mut self, id: ConnectionId) {
        let used = self.under_way.iter().any(|(on, _)| *on == id);
        assert!(!(self.verified.contains(&id) && used), "a connection in use gave way");
        assert!(self.open.remove(&id).is_some(), "a connection that was closed gave way");
        self.verified.remove(&id);
    }

    fn agrees(&self, connections: &Connections) {
        let (counts, places) = (connections.counts(), SMALL);
        assert_eq!(counts.unverified + counts.agents + counts.administrators, self.open.len());
        assert_eq!(counts.agents + counts.administrators, self.verified.len());
        assert!(counts.unverified <= places.unverified && counts.agents <= places.agents);
        assert!(counts.administrators <= places.administrators);
        for network in self.open.values() {
            let of_it = self.open.iter().filter(|(id, from)| *from == network && !self.verified.contains(id));
            assert!(of_it.count() <= places.unverified_per_network);
        }
        let used: BTreeMap<_, _> = connections.keys.iter().map(|(name, key)| (name.clone(), key.requests)).collect();
        for (name, requests) in used {
            let of_it = self.under_way.iter().filter(|(_, caller)| *caller == Some(agent(&name)));
            assert_eq!(of_it.count(), requests);
        }
        let idle = connections.agents.idle.len() + connections.administrators.idle.len();
        let used: BTreeSet<_> = self.under_way.iter().map(|(id, _)| *id).collect();
        assert_eq!(idle, self.verified.difference(&used).count());
    }
}

proptest! {
    #[test]
    fn no_place_is_given_twice_and_none_in_use_is_taken(steps in steps()) {
        let (mut connections, mut world) = (Connections::new(SMALL), World::default());
        for step in steps {
            let pick = |which: usize, world: &World| world.open.keys().copied().nth(which % world.open.len().max(1));
            match step {
                Step::Admit(network) => {
                    let oldest = world.open.keys().find(|id| !world.verified.contains(id)).copied();
                    let (id, gives_way) = connections.admit(Network(network));
                    if let Some(gone) = gives_way {
                        let of_network = world.open[&gone] == Network(network);
                        prop_assert!(of_network || Some(gone) == oldest);
                        world.lose(gone);
                    }
                    world.open.insert(id, Network(network));
                }
                Step::Request(which, number) => {
                    let Some(id) = pick(which, &world) else { continue };
                    connections.begin(id);
                    let mut caller = who(number);
                    if let Some(claimed) = &caller {
                        let verdict = connections.verified(Monotonic::START, id, claimed, Purpose::Other);
                        let Verdict { served, gives_way } = verdict;
                        if served.is_ok() { world.verified.insert(id); } else { caller = None; }
                        if let Some(gone) = gives_way {
                            world.under_way.push((id, caller.clone()));
                            world.lose(gone);
                            world.under_way.pop();
                        }
                    }
                    world.under_way.push((id, caller));
                }
                Step::End(which) => {
                    if world.under_way.is_empty() { continue }
                    let (id, caller) = world.under_way.remove(which % world.under_way.len());
                    connections.end(id, caller.as_ref());
                }
                Step::Gone(which) | Step::Late(which) => {
                    let Some(id) = pick(which, &world) else { continue };
                    if matches!(step, Step::Late(_)) { connections.late(id); } else { connections.gone(id); }
                    world.open.remove(&id);
                    world.verified.remove(&id);
                }
            }
            world.agrees(&connections);
        }
    }
}
