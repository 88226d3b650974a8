//! The rule against processes that start, work, die and are copied: every order of what happens up to a depth, and random
//! ones beyond it. Three processes: two of the original's home, which may live at once, and one of a copy of it.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::*;

mod claims;

const PROCESSES: usize = 3;
const CLONE: usize = 2;
/// Rounds in which everybody that lives does its next step: enough for any to come to rest.
const ROUNDS: usize = 24;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    /// No session.
    #[default]
    Asks,
    /// Offered, and not in the home yet.
    Offered(SessionName),
    Kept(SessionName),
    Frozen(Fenced),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    instance: u64,
    state: State,
    /// What it read of its home, or wrote there.
    persisted: SessionName,
    /// The newest that it has heard of.
    last: SessionNumber,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Open { instance: u64, persisted: SessionName, last: SessionNumber, fenced: Option<Fenced> },
    Use(SessionName),
    Goodbye(SessionName),
}

/// What may happen at all.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    starts: u8,
    /// How often the original's home is copied.
    copies: u8,
    /// The original's home is used by two at a time.
    siblings: bool,
    outages: bool,
    late: bool,
    days: u8,
    words: u8,
    crashes: u8,
    /// The hub is started on a copy of its store.
    back: u8,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing, independent of the others, is so")]
struct World {
    now: Monotonic,
    hub: Holder,
    /// What the hub's disk holds: a passage may be missing there.
    disk: Record,
    copy: Option<Record>,
    homes: [SessionName; 2],
    /// Which copy the clone's home is; 0 is the original.
    copies: u64,
    processes: [Option<Process>; PROCESSES],
    late: Option<Request>,
    /// The original's site does not reach the hub.
    offline: bool,
    cloned: bool,
    instances: u64,
    ids: u64,
    left: Bounds,
    /// By which home each instance is.
    of: Vec<u64>,
    /// The original that lived when the clone took its place, if that was by no way that is named.
    victim: Option<u64>,
    /// Then the two may be taken for one another, which is shown, and a person decides.
    set_back: bool,
    /// The clone had the place in a way that is named, or when no original lived.
    forgiven: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Step(usize),
    Start(usize),
    Kill(usize),
    Goodbye(usize),
    Copy,
    Delay(usize),
    LateArrives,
    Offline,
    Online,
    Day,
    Minute,
    Accept(usize),
    HubCrash,
    HubSaved,
    HubBack,
}

fn home_of(process: usize) -> usize {
    usize::from(process == CLONE)
}

fn asks(who: u64, persisted: SessionName, last: SessionNumber, fenced: Option<Fenced>) -> Asks {
    let instance = Instance { id: InstanceId(who), host: format!("host-{who}") };
    let capabilities = Capabilities::default();
    Asks { who: Seen { instance, address: None, since: 0 }, persisted, last, fenced, capabilities }
}

impl World {
    fn new(left: Bounds) -> Self {
        let now = Monotonic::from_millis(0);
        let mut world = Self {
            now,
            hub: Holder::new(Record::default(), now),
            disk: Record::default(),
            copy: None,
            homes: [SessionName::default(); 2],
            copies: 0,
            processes: [None; PROCESSES],
            late: None,
            offline: false,
            cloned: false,
            instances: 0,
            ids: 0,
            left,
            of: vec![u64::MAX],
            victim: None,
            set_back: false,
            forgiven: false,
        };
        world.start(0);
        (0..3).for_each(|_| world.step(0));
        assert!(world.works(0), "the first agent of a target waits");
        world
    }

    /// What tells one state from another: ages instead of times.
    fn fingerprint(&self) -> u64 {
        let hours = |at| self.now.since(at).as_secs() / 3600;
        let lapsed = self.now.since(self.hub.offered_at) >= OFFER_LAPSES;
        let mut hasher = DefaultHasher::new();
        (&self.hub.record, hours(self.hub.heard_at), hours(self.hub.other_heard_at), lapsed).hash(&mut hasher);
        (&self.disk, &self.copy, self.homes, self.processes, self.late, self.offline).hash(&mut hasher);
        let Bounds { starts, days, words, crashes, back, copies, siblings: _, outages: _, late: _ } = self.left;
        (
            self.cloned,
            self.copies,
            self.victim,
            self.forgiven,
            self.set_back,
            [starts, days, words, crashes, back, copies],
        )
            .hash(&mut hasher);
        hasher.finish()
    }

    fn reaches(&self, process: usize) -> bool {
        process == CLONE || !self.offline
    }

    fn actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        let left = &self.left;
        for process in 0..PROCESSES {
            match self.processes[process] {
                Some(alive) => {
                    all.push(Action::Kill(process));
                    if self.reaches(process) {
                        all.push(Action::Step(process));
                    }
                    if self.reaches(process) && matches!(alive.state, State::Kept(_)) {
                        all.push(Action::Goodbye(process));
                    }
                    if left.late && self.late.is_none() {
                        all.push(Action::Delay(process));
                    }
                    if left.words > 0 && self.hub.is_duplicate() {
                        all.push(Action::Accept(process));
                    }
                }
                None if left.starts > 0 => {
                    let sibling = self.processes.get(1 - process.min(1)).copied().flatten();
                    let may = if process == CLONE {
                        self.cloned
                    } else {
                        sibling.is_none_or(|other| left.siblings && other.state != State::Asks)
                    };
                    if may {
                        all.push(Action::Start(process));
                    }
                }
                None => {}
            }
        }
        if left.copies > 0 && self.processes[CLONE].is_none() {
            all.push(Action::Copy);
        }
        if self.late.is_some() {
            all.push(Action::LateArrives);
        }
        if left.outages {
            all.push(if self.offline { Action::Online } else { Action::Offline });
        }
        if left.days > 0 {
            all.push(Action::Day);
        }
        if self.hub.record.offer.is_some() {
            all.push(Action::Minute);
        }
        if left.crashes > 0 {
            all.push(Action::HubCrash);
        }
        if left.back > 0 {
            all.push(if self.copy.is_none() { Action::HubSaved } else { Action::HubBack });
        }
        all
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Step(process) => self.step(process),
            Action::Start(process) => {
                self.left.starts -= 1;
                self.start(process);
            }
            Action::Kill(process) => self.processes[process] = None,
            Action::Goodbye(process) => {
                if let Some(Process { state: State::Kept(session), .. }) = self.processes[process].take() {
                    self.hub_hears(Request::Goodbye(session));
                }
            }
            Action::Copy => {
                (self.cloned, self.left.copies) = (true, self.left.copies - 1);
                self.copies += 1;
                self.homes[1] = self.homes[0];
            }
            Action::Delay(process) => self.late = self.request(process),
            Action::LateArrives => {
                if let Some(request) = self.late.take() {
                    self.hub_hears(request);
                }
            }
            Action::Offline => self.offline = true,
            Action::Online => self.offline = false,
            Action::Day => {
                self.left.days -= 1;
                self.day();
            }
            Action::Minute => self.now = self.now + OFFER_LAPSES,
            Action::Accept(process) => {
                self.left.words -= 1;
                let instance = self.processes[process].expect("it lives").instance;
                self.hub.accept(InstanceId(instance), &format!("{instance} {}", self.left.words));
                self.persist();
            }
            Action::HubCrash => {
                self.left.crashes -= 1;
                self.hub = Holder::new(self.disk.clone(), self.now);
            }
            Action::HubSaved => {
                self.left.back -= 1;
                self.copy = Some(self.disk.clone());
            }
            Action::HubBack => {
                self.left.back -= 1;
                let copy = self.copy.take().expect("it was saved");
                self.copy = Some(std::mem::replace(&mut self.disk, copy));
                self.set_back = true;
                self.hub = Holder::new(self.disk.clone(), self.now);
            }
        }
    }

    /// Whoever lives and is reached goes on for a day.
    fn day(&mut self) {
        for _ in 0..3 {
            self.everybody();
            self.now = self.now + Duration::from_hours(8);
        }
        self.hub.lapse(self.now);
        self.persist();
    }

    fn everybody(&mut self) {
        for process in 0..PROCESSES {
            if self.processes[process].is_some() && self.reaches(process) {
                self.step(process);
            }
        }
    }

    fn start(&mut self, process: usize) {
        self.instances += 1;
        self.of.push(if process == CLONE { self.copies } else { 0 });
        let persisted = self.homes[home_of(process)];
        self.processes[process] =
            Some(Process { instance: self.instances, state: State::Asks, persisted, last: persisted.number });
    }

    fn persist(&mut self) {
        self.disk = self.hub.record().clone();
    }

    /// What a process says to the hub next, if that is what it does next.
    fn request(&self, process: usize) -> Option<Request> {
        let Process { instance, state, persisted, last } = self.processes[process]?;
        match state {
            State::Asks => Some(Request::Open { instance, persisted, last, fenced: None }),
            State::Offered(_) => None,
            State::Kept(session) => Some(Request::Use(session)),
            State::Frozen(fenced) => Some(Request::Open { instance, persisted, last, fenced: Some(fenced) }),
        }
    }

    fn step(&mut self, process: usize) {
        let Some(mut me) = self.processes[process] else { return };
        let persisted = self.homes[home_of(process)];
        match me.state {
            // A later process has its home.
            State::Offered(session) if persisted.number > session.number => return self.processes[process] = None,
            State::Frozen(fenced) if persisted.number > fenced.by.number || persisted == fenced.by => {
                return self.processes[process] = None;
            }
            State::Offered(session) => {
                self.homes[home_of(process)] = session;
                (me.persisted, me.state) = (session, State::Kept(session));
                self.processes[process] = Some(me);
                return;
            }
            State::Asks | State::Kept(_) | State::Frozen(_) => {}
        }
        let request = self.request(process).expect("it says something");
        let answer = self.hub_hears(request);
        let own = match me.state {
            State::Kept(session) => session,
            State::Frozen(fenced) => fenced.session,
            State::Asks | State::Offered(_) => me.persisted,
        };
        match answer {
            None | Some(Verdict::Busy(_)) => {}
            Some(Verdict::Offer(session)) => me.state = State::Offered(session),
            Some(Verdict::Outdated(session)) => (me.last, me.persisted) = (session.number, persisted),
            Some(Verdict::Fenced(by)) => me.state = State::Frozen(Fenced { session: own, by }),
            Some(Verdict::Reopen) => me.state = State::Asks,
            Some(Verdict::Absurd) => unreachable!("nobody claims more than was given"),
        }
        if let State::Offered(session) | State::Frozen(Fenced { by: session, .. }) = me.state {
            me.last = me.last.max(session.number);
        }
        self.processes[process] = Some(me);
    }

    /// The hub's answer; none where all is well.
    fn hub_hears(&mut self, request: Request) -> Option<Verdict> {
        match request {
            Request::Open { instance, persisted, last, fenced } => {
                self.ids += 1;
                let before = self.hub.record.session;
                let verdict = self.hub.ask(self.now, &asks(instance, persisted, last, fenced), SessionId(self.ids));
                assert!(!matches!(verdict, Verdict::Offer(_)) || self.hub.record.session == before, "it has passed");
                self.persist();
                Some(verdict)
            }
            Request::Use(session) => {
                let offer = self.hub.record.offer.clone().filter(|offer| offer.session == session);
                let displaced = self.hub.record.holder.clone();
                match self.hub.admit(self.now, session) {
                    Admitted::InUse => None,
                    Admitted::Passed => {
                        self.passed(&offer.expect("it was offered"), displaced);
                        None
                    }
                    Admitted::Fenced(by) => Some(Verdict::Fenced(by)),
                    Admitted::Unknown => Some(Verdict::Reopen),
                }
            }
            Request::Goodbye(session) => {
                self.hub.goodbye(session);
                None
            }
        }
    }

    fn passed(&mut self, offer: &Offer, displaced: Option<Seen>) {
        let is_clone = |instance: u64| self.of[usize::try_from(instance).expect("few")] > 0;
        let (by_clone, named) = (is_clone(offer.to.instance.id.0), offer.ground == OfferGround::Vacant);
        let alive = |instance: u64| self.processes.iter().flatten().any(|process| process.instance == instance);
        let victim = displaced.map(|seen| seen.instance.id.0).filter(|holder| alive(*holder) && !is_clone(*holder));
        self.victim = victim.filter(|_| by_clone && !named);
        self.forgiven |= by_clone && (named || victim.is_none());
    }

    fn works(&self, process: usize) -> bool {
        let Some(Process { instance, state: State::Kept(session), .. }) = self.processes[process] else { return false };
        session == self.hub.record.session && self.hub.is_holder(InstanceId(instance))
    }

    fn settle(&mut self) {
        self.offline = false;
        self.late = None;
        for _ in 0..ROUNDS {
            self.everybody();
            self.now = self.now + OFFER_LAPSES / 2;
        }
    }

    fn workers(&self) -> Vec<usize> {
        (0..PROCESSES).filter(|process| self.works(*process)).collect()
    }

    /// What is wrong once all that is under way has come to rest, without anybody's hands.
    fn rest(&self) -> Option<&'static str> {
        let mut rested = self.clone();
        rested.settle();
        let workers = rested.workers();
        if workers.len() > 1 {
            return Some("two work");
        }
        let alive: Vec<_> = rested.processes.iter().flatten().copied().collect();
        let victim_lives = rested.victim.is_some_and(|victim| alive.iter().any(|process| process.instance == victim));
        if workers == [CLONE] && victim_lives && !rested.forgiven && !rested.set_back {
            return Some("the clone works, and the original, alive, is frozen");
        }
        if alive.is_empty() || !workers.is_empty() {
            return None;
        }
        if let ([one], Some(holder)) = (alive.as_slice(), rested.hub.record.holder.clone()) {
            let home_of = |instance: u64| rested.of[usize::try_from(instance).expect("few")];
            if one.instance > holder.instance.id.0 && home_of(one.instance) == home_of(holder.instance.id.0) {
                return Some("the holder's own restart waits");
            }
        }
        rested.day();
        rested.day();
        rested.settle();
        rested.workers().is_empty().then_some("nobody works, ever")
    }
}

/// Every order of what may happen, breadth first, until so many states were seen.
fn explore(bounds: Bounds, usually: usize) {
    let states = std::env::var("TIDELINE_STATES").map_or(usually, |text| text.parse().expect("it is a number"));
    let mut seen = HashSet::new();
    let mut frontier = vec![(World::new(bounds), Vec::new())];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (world, trace) in std::mem::take(&mut frontier) {
            for action in world.actions() {
                let mut after = world.clone();
                after.act(action);
                if !seen.insert(after.fingerprint()) {
                    continue;
                }
                let trace: Vec<Action> = trace.iter().copied().chain([action]).collect();
                if let Some(wrong) = after.rest() {
                    panic!("{wrong}, after {trace:?}: {after:?}");
                }
                if seen.len() >= states {
                    return;
                }
                next.push((after, trace));
            }
        }
        frontier = next;
    }
}

/// Long random orders.
fn walk(bounds: Bounds, walks: u64) {
    let walks = std::env::var("TIDELINE_SEEDS").map_or(walks, |text| text.parse().expect("it is a number"));
    for seed in 0..walks {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random >> 11).expect("64 bits") % n
        };
        let (mut world, mut trace) = (World::new(bounds), Vec::new());
        for _ in 0..40 {
            let actions = world.actions();
            let action = actions[below(actions.len())];
            world.act(action);
            trace.push(action);
            if let Some(wrong) = world.rest() {
                panic!("{wrong}, seed {seed}, after {trace:?}: {world:?}");
            }
        }
    }
}

const CLONED: Bounds =
    Bounds { starts: 3, copies: 2, siblings: true, outages: true, late: true, days: 1, words: 1, crashes: 1, back: 0 };
const ALONE: Bounds = Bounds { starts: 4, copies: 0, words: 0, crashes: 2, ..CLONED };
/// One process at a time in each home: with two, and two stores of the hub in turn, some restart waits for a day.
const SET_BACK: Bounds =
    Bounds { siblings: false, starts: 3, copies: 2, late: false, days: 0, words: 0, crashes: 0, back: 2, ..CLONED };

#[test]
fn a_clone_never_displaces_a_living_original_but_by_a_named_way() {
    explore(CLONED, 40_000);
    walk(Bounds { starts: 12, days: 3, words: 3, crashes: 3, ..CLONED }, 400);
}

#[test]
fn no_restart_of_the_holder_waits_and_late_requests_change_nothing() {
    explore(ALONE, 30_000);
    walk(Bounds { starts: 16, crashes: 8, ..ALONE }, 400);
}

#[test]
fn a_hub_that_was_set_back_freezes_nobody_for_ever() {
    explore(SET_BACK, 30_000);
    walk(Bounds { starts: 12, back: 8, ..SET_BACK }, 300);
}
