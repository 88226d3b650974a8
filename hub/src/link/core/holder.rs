//! Who holds a target: of all processes that have its key, the one whose session is in use. Pure: one target, no clock.
//!
//! ```text
//!   start ──▶ home knows the session in use? ── yes: the holder's restart ──▶ offer ── first use ──▶ holder
//!                 │ no: two live with one identity                             ▲
//!                 ▼                                                            │
//!               waits ── accepted by a person, or the holder is silent for 24 h, or said goodbye
//!
//!   fenced, and the session that fenced it is not in its home ──▶ gets the session back, if it was taken from it
//! ```
//!
//! A session passes with its first use, not when it is offered; an agent has it in its home by then. So whoever does not know
//! the session in use is of another home, and a late request of a process that is dead changes nothing: it knows of no newer
//! session, and uses none. The holder keeps its place as long as it is not displaced by one of the three ways that are named
//! above; what its own home knows is its restart, which waits for nothing.
//!
//! What is persisted ([`Record`]) is so before an offer is told. That a session has passed may be lost in a crash: the offer
//! is still there, and the next use of it repeats the passage.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tideline_common::wire::v1::{Fenced, Instance};
use tideline_common::{Capabilities, InstanceId, Monotonic, SessionId, SessionName, SessionNumber};

/// After so long without a word of the holder, counted while the hub runs, its place is free: it is not coming back by itself.
/// Also how long another instance is spoken of that is heard no more.
pub(super) const SILENT: Duration = Duration::from_hours(24);
/// What of the silence outlives the hub's process: in steps of ten minutes, so that one that waits costs six writes an hour and
/// not one for every time that it asks, and a hub that restarts every hour counts most of it.
const SILENCE_KEPT: Duration = Duration::from_mins(10);
/// How long a start that was offered a session keeps others waiting: it writes its home, and asks for its set. After that
/// another may be offered one, which ends the offer; there is never more than one.
const OFFER_LAPSES: Duration = Duration::from_secs(15);
/// By how much a process may know of later sessions than this hub gave, as where the hub was set back: one a second for half a
/// year. Whoever has the key and claims as much with every request needs 2^40 of them to come to the last number.
const AHEAD_MAX: u64 = 1 << 24;
/// Other instances that are spoken of. A person is to choose among them.
const OTHERS_MAX: usize = 3;

/// An instance as the hub sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    #[serde(flatten)]
    pub instance: Instance,
    /// Where its requests come from, as far as the hub can see: it may be a load balancer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Seconds of Unix time: of the holder since when it is, of another since when it asks. For people.
    pub since: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Offer {
    session: SessionName,
    to: Seen,
    #[serde(rename = "how")]
    ground: OfferGround,
    /// What it understands to whom it is offered.
    #[serde(default)]
    capabilities: Capabilities,
    /// Its home knows the session in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    restart: bool,
}

/// By what right a session is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum OfferGround {
    Start,
    /// The place was free: silence, goodbye, or a person's word.
    Vacant,
    /// It was taken from it by another that knew too little.
    Back,
}

/// What of a target's holder outlives the hub's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// The session in use, or that was last.
    session: SessionName,
    /// What the agent understands whose session it is.
    capabilities: Capabilities,
    /// The highest number that was ever offered, or heard of.
    newest: SessionNumber,
    /// Who uses the session. None: nobody ever did; or it is not known who.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Seen>,
    /// The holder goes on from the home of the one before it, or is the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    restart: bool,
    /// The session in use is known from one whom it fenced, and not from its holder: it was given in a history that this hub
    /// lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hearsay: bool,
    /// From whom the holder took the place by starting.
    #[serde(skip_serializing_if = "Option::is_none")]
    former: Option<InstanceId>,
    /// Who gets the place back when it asks next.
    #[serde(skip_serializing_if = "Option::is_none")]
    entitled: Option<InstanceId>,
    /// Whom a person wants to have the place, until it has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<InstanceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offer: Option<Offer>,
    /// The holder has ended in order.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    goodbye: bool,
    /// Whoever else lives with this identity, the latest heard first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<Seen>,
    /// What a person said last, as it was written: said once, it is done once.
    #[serde(skip_serializing_if = "String::is_empty")]
    word: String,
    /// For how many times [`SILENCE_KEPT`] the holder was silent, as far as that is kept.
    #[serde(skip_serializing_if = "is_zero")]
    silent_steps: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// A request for a session, as far as it matters here.
#[derive(Clone, Debug)]
pub(super) struct Asks {
    pub(super) who: Seen,
    pub(super) persisted: SessionName,
    pub(super) last: SessionNumber,
    pub(super) fenced: Option<Fenced>,
    pub(super) capabilities: Capabilities,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// To be told once the record is persisted.
    Offer(SessionName),
    /// It knows too little to ask: this is the session in use.
    Outdated(SessionName),
    /// Another start is under way, for so long at most.
    Busy(Duration),
    /// This session is in use.
    Fenced(SessionName),
    /// It may open a session, as any other.
    Reopen,
    /// It claims a session that no history of this hub can have given.
    Absurd,
}

/// Whether a session may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    InUse,
    /// With this use it has passed.
    Passed,
    Fenced(SessionName),
    /// It is not known here.
    Unknown,
}

/// The holder of one target.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    record: Record,
    /// When the holder was last heard, or when this run of the hub began to wait for it.
    heard_at: Monotonic,
    /// The same of any other.
    other_heard_at: Monotonic,
    /// When the last offer was made.
    offered_at: Monotonic,
}

impl Holder {
    pub(super) fn new(record: Record, now: Monotonic) -> Self {
        Self { record, heard_at: now, other_heard_at: now, offered_at: now }
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// Answers a request for a session. `id` is random, and used for none before.
    pub(super) fn ask(&mut self, now: Monotonic, asks: &Asks, id: SessionId) -> Verdict {
        if self.is_absurd(asks) {
            return Verdict::Absurd;
        }
        self.lapse(now);
        if self.is_holder(asks.who.instance.id) {
            self.heard(now);
            self.record.goodbye = false;
        } else {
            self.keep_silence(now);
        }
        match asks.fenced {
            Some(fenced) => self.ask_again(now, asks, fenced, id),
            None => self.ask_first(now, asks, id),
        }
    }

    fn is_absurd(&self, asks: &Asks) -> bool {
        let given = self.record.session.number.max(self.record.newest).0;
        let fenced = asks.fenced.iter().flat_map(|fenced| [fenced.session.number, fenced.by.number]);
        let claimed = [asks.last, asks.persisted.number].into_iter().chain(fenced).max().unwrap_or_default();
        claimed.0.saturating_sub(given) > AHEAD_MAX
    }

    fn ask_first(&mut self, now: Monotonic, asks: &Asks, id: SessionId) -> Verdict {
        let who = asks.who.instance.id;
        let present = self.record.session;
        if asks.last < present.number {
            return Verdict::Outdated(present);
        }
        if let Some(offer) = &self.record.offer {
            if offer.to.instance.id == who {
                return Verdict::Offer(offer.session);
            }
            let left = OFFER_LAPSES.saturating_sub(now.since(self.offered_at));
            // Though its home may know the offer: a copy of that home knows it too.
            if !left.is_zero() {
                return Verdict::Busy(left);
            }
        }
        let known = self.knows(asks.persisted);
        let vacant = self.is_vacant(now, who, known);
        if self.record.entitled == Some(who) {
            return self.offer(now, asks, OfferGround::Back, id);
        }
        if vacant && self.is_duplicate() {
            return self.offer(now, asks, OfferGround::Vacant, id);
        }
        let stranger = !known && !present.is_none() && !self.is_holder(who);
        if stranger && !vacant {
            self.other(now, &asks.who);
            return Verdict::Fenced(present);
        }
        // What was offered since the session in use, and is in its home, was offered to the process before it.
        let inherited =
            self.record.offer.as_ref().filter(|_| asks.persisted.number > present.number).map(|offer| offer.ground);
        self.offer(now, asks, inherited.unwrap_or(OfferGround::Start), id)
    }

    /// One that was fenced asks, and has not found in its home what fenced it.
    fn ask_again(&mut self, now: Monotonic, asks: &Asks, fenced: Fenced, id: SessionId) -> Verdict {
        let who = asks.who.instance.id;
        if self.is_holder(who) {
            return Verdict::Reopen;
        }
        let record = &mut self.record;
        if fenced.by.number > record.session.number {
            record.session = fenced.by;
            record.newest = record.newest.max(fenced.by.number);
            (record.holder, record.hearsay, record.former, record.offer) = (None, true, None, None);
            self.heard(now);
            self.other(now, &asks.who);
            return Verdict::Fenced(fenced.by);
        }
        if self.is_vacant(now, who, self.knows(asks.persisted)) {
            return self.offer(now, asks, OfferGround::Vacant, id);
        }
        if fenced.by == self.record.session && !self.record.hearsay {
            self.other(now, &asks.who);
            if self.record.former == Some(who) {
                self.record.entitled = Some(who);
                // Not offered at once: it may be dead, and then no start shall wait for it.
                return Verdict::Reopen;
            }
        } else {
            self.other_heard(now, who);
        }
        Verdict::Fenced(self.record.session)
    }

    /// Whether a request in this session is taken, and what follows for the place.
    pub(super) fn admit(&mut self, now: Monotonic, session: SessionName) -> Admitted {
        let present = self.record.session;
        if session == present && !session.is_none() {
            // By its name alone it is not known whose it is.
            if self.record.holder.is_none() {
                return Admitted::Unknown;
            }
            self.heard(now);
            self.record.goodbye = false;
            return Admitted::InUse;
        }
        if session.number > present.number {
            return match self.record.offer.take_if(|offer| offer.session == session) {
                Some(offer) => {
                    self.pass(now, offer);
                    Admitted::Passed
                }
                None => Admitted::Unknown,
            };
        }
        Admitted::Fenced(present)
    }

    fn pass(&mut self, now: Monotonic, offer: Offer) {
        let Offer { session, to, ground, capabilities, restart } = offer;
        let record = &mut self.record;
        let displaced = record.holder.take().filter(|holder| holder.instance.id != to.instance.id);
        record.former = displaced.as_ref().filter(|_| ground == OfferGround::Start).map(|holder| holder.instance.id);
        record.others.retain(|other| other.instance.id != to.instance.id);
        if let (OfferGround::Back, Some(displaced)) = (ground, displaced) {
            record.others.insert(0, displaced);
            record.others.truncate(OTHERS_MAX);
            self.other_heard_at = now;
        }
        if record.accepted == Some(to.instance.id) {
            record.accepted = None;
            // Who else lives will say so.
            record.others.clear();
        }
        (record.session, record.capabilities, record.restart) = (session, capabilities, restart);
        record.newest = record.newest.max(session.number);
        record.holder = Some(to);
        record.offer = None;
        (record.hearsay, record.goodbye, record.entitled) = (false, false, None);
        self.heard(now);
    }

    fn offer(&mut self, now: Monotonic, asks: &Asks, ground: OfferGround, id: SessionId) -> Verdict {
        let own = self.knows(asks.persisted) || self.is_holder(asks.who.instance.id);
        let restart = ground == OfferGround::Start && own;
        let record = &mut self.record;
        let number = record.session.number.max(record.newest).max(asks.last).next();
        record.newest = number;
        let session = SessionName { number, id };
        let (to, capabilities) = (asks.who.clone(), asks.capabilities.clone());
        record.offer = Some(Offer { session, to, ground, capabilities, restart });
        self.offered_at = now;
        Verdict::Offer(session)
    }

    /// The holder ends in order.
    pub(super) fn goodbye(&mut self, session: SessionName) {
        self.record.goodbye |= session == self.record.session;
    }

    /// A person chooses, in these words, among those that are shown.
    pub(super) fn accept(&mut self, instance: InstanceId, word: &str) {
        let other = self.record.others.iter().any(|other| other.instance.id == instance);
        if self.record.word == word || !(other || self.is_holder(instance)) {
            return;
        }
        word.clone_into(&mut self.record.word);
        if other {
            self.record.accepted = Some(instance);
        } else {
            self.record.others.clear();
            self.record.accepted = None;
        }
    }

    /// Time has passed: another instance that was heard no more for long is spoken of no more.
    pub(super) fn lapse(&mut self, now: Monotonic) {
        if self.others_lapse_at().is_some_and(|at| at <= now) {
            self.record.others.clear();
            self.record.accepted = None;
        }
    }

    /// When [`Holder::lapse`] has something to do.
    pub(super) fn others_lapse_at(&self) -> Option<Monotonic> {
        self.is_duplicate().then(|| self.other_heard_at + SILENT)
    }

    fn is_duplicate(&self) -> bool {
        !self.record.others.is_empty()
    }

    fn is_holder(&self, instance: InstanceId) -> bool {
        self.record.is_held_by(instance)
    }

    /// Whether a home was given the session in use: then it is the holder's own. A later one it was offered, or a hub that was
    /// set back since has given it.
    fn knows(&self, persisted: SessionName) -> bool {
        persisted == self.record.session || persisted.number > self.record.session.number
    }

    fn is_vacant(&self, now: Monotonic, who: InstanceId, known: bool) -> bool {
        let kept = SILENCE_KEPT.saturating_mul(self.record.silent_steps);
        let silent = kept.saturating_add(now.since(self.heard_at)) >= SILENT;
        // Where two are known to live, the place of one that ends is kept for its restart.
        let left = self.record.goodbye && (known || !self.is_duplicate());
        silent || left || self.record.accepted == Some(who)
    }

    fn heard(&mut self, now: Monotonic) {
        self.heard_at = now;
        self.record.silent_steps = 0;
    }

    fn keep_silence(&mut self, now: Monotonic) {
        let steps = now.since(self.heard_at).as_secs() / SILENCE_KEPT.as_secs();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.record.silent_steps = self.record.silent_steps.saturating_add(steps);
        self.heard_at = self.heard_at + SILENCE_KEPT.saturating_mul(steps);
    }

    fn other(&mut self, now: Monotonic, who: &Seen) {
        let others = &mut self.record.others;
        if !others.iter().any(|other| other.instance.id == who.instance.id) {
            others.insert(0, who.clone());
            others.truncate(OTHERS_MAX);
        }
        self.other_heard_at = now;
    }

    fn other_heard(&mut self, now: Monotonic, who: InstanceId) {
        if self.record.others.iter().any(|other| other.instance.id == who) {
            self.other_heard_at = now;
        }
    }
}

impl Record {
    /// As it is once this instance uses that session.
    #[cfg(test)]
    pub(super) fn held(session: SessionName, instance: Instance) -> Self {
        let holder = Some(Seen { instance, address: None, since: 0 });
        Self { session, capabilities: Capabilities::all(), newest: session.number, holder, ..Self::default() }
    }

    /// The session in use, or that was last.
    pub fn session(&self) -> SessionName {
        self.session
    }

    /// What the agent understands whose session it is.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Who uses the session, if that is known.
    pub fn holder(&self) -> Option<&Seen> {
        self.holder.as_ref()
    }

    /// Whoever else lives with this identity, the latest heard first.
    pub fn others(&self) -> &[Seen] {
        &self.others
    }

    /// Whom a person has chosen, who has not asked since.
    pub fn accepted(&self) -> Option<InstanceId> {
        self.accepted
    }

    /// Whether somebody has the place by now who knows nothing of what was said by whoever had it, as `former` has it.
    pub fn is_taken_over(&self, former: &Self) -> bool {
        self.session != former.session && self.holder.is_some() && !self.restart
    }

    /// Nobody has the place any more, and whoever asks first gets it: the key is another's. The session stays, so that no
    /// number is given twice, and who knows it goes on.
    #[must_use]
    pub fn vacated(self) -> Self {
        let Self { session, capabilities, newest, word, .. } = self;
        Self { session, capabilities, newest, word, goodbye: true, ..Self::default() }
    }

    fn is_held_by(&self, instance: InstanceId) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.instance.id == instance)
    }
}

#[cfg(test)]
mod tests;
