//! Sessions on the wire: who may speak for a target, by the rule in [`holder`](super::holder).

use std::time::Duration;

use tideline_common::wire::v1::{
    Continuity, Handover, HubAddresses, Instance, PollSettings, Refusal, RefusalKind, SessionAnswer, SessionRequest,
};
use tideline_common::{Epoch, InstanceId, Monotonic, SessionId, SessionName, Shown, TargetId};

use super::holder::{Admitted, Asks, Holder, Record, Seen, Verdict};
use super::{Answer, Core, Effect, Effects, RequestId, Sets, history, refuse};
use crate::history_change::Proof;
use crate::ledger::TargetContinuity;
use crate::printable::is_printable;

/// Letters of a host's name that are kept: as many as Linux gives one.
const HOST_LETTERS_MAX: usize = 64;

/// Where a request comes from, as the hub's edge sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Perhaps a load balancer's.
    pub address: Option<String>,
    /// Seconds of Unix time. For people; nothing is decided by it.
    pub at: u64,
    /// Random, and fresh from the system for every request: what a machine that is set back would have twice is of no use.
    pub id: SessionId,
    /// How it shows what it knows of.
    pub proof: Proof,
}

/// Says that nothing was opened: the agent is another target's.
pub fn handing_over(handover: Handover) -> SessionAnswer {
    SessionAnswer {
        session: SessionName::default(),
        outdated: true,
        epoch: Epoch::default(),
        poll: PollSettings { wait_seconds: 0, stale_after_seconds: 0 },
        addresses: HubAddresses::default(),
        history: Continuity::default(),
        cluster: None,
        handover: Some(handover),
    }
}

/// A session that is offered, and what was shown for it.
pub(super) type Offered = (SessionName, Option<Shown>);

/// The sessions of one target.
#[derive(Debug)]
pub(super) struct Sessions {
    holder: Holder,
    /// As it was handed out to be persisted last, and the number of that among all.
    told: (u64, Record),
    /// How much of that is on disk.
    stored: u64,
    /// Who is to be told an offer once this much is on disk.
    offers: Vec<(u64, RequestId, Offered)>,
    /// When the others are looked at again.
    lapse_at: Option<Monotonic>,
}

impl Sessions {
    pub(super) fn new(record: Record, now: Monotonic) -> Self {
        let holder = Holder::new(record.clone(), now);
        Self { holder, told: (0, record), stored: 0, offers: Vec::new(), lapse_at: None }
    }

    pub(super) fn record(&self) -> &Record {
        self.holder.record()
    }

    fn held_by(&self) -> Option<InstanceId> {
        self.record().holder().map(|holder| holder.instance.id)
    }

    /// How much of the record was handed out.
    #[cfg(test)]
    pub(super) fn version(&self) -> u64 {
        self.told.0
    }

    /// Whoever waits for an offer.
    pub(super) fn waiting(&self) -> impl Iterator<Item = RequestId> {
        self.offers.iter().map(|(_, id, _)| *id)
    }
}

impl Core {
    /// Lets only the present session pass, or one that is offered: that is the present one from then on.
    pub(super) fn admit(
        &mut self,
        now: Monotonic,
        id: RequestId,
        key: TargetId,
        session: SessionName,
        out: &mut Effects,
    ) -> bool {
        let Some(target) = self.targets.get_mut(&key) else { return false };
        let former = target.sessions.held_by();
        let admitted = target.sessions.holder.admit(now, session);
        match admitted {
            Admitted::InUse => {}
            Admitted::Passed => {
                (target.seq, target.in_sync, target.stood) = (0, false, 0);
                let offered = target.offered.take_if(|(offered, _)| *offered == session);
                target.shown = offered.and_then(|(_, shown)| shown);
                // One that had the place before believes that what it said then stands. The other has spoken since.
                if target.sessions.held_by() != former {
                    target.memory = target.memory.wrapping_add(1);
                }
                if let Some(waiting) = target.waiting.take() {
                    self.polls.remove(&(waiting.until, key));
                    out.push(fenced(waiting.id, session));
                }
            }
            Admitted::Fenced(by) => out.push(fenced(id, by)),
            Admitted::Unknown => out.push(reopen(id)),
        }
        self.store(key, out);
        matches!(admitted, Admitted::InUse | Admitted::Passed)
    }

    pub(super) fn on_session(
        &mut self,
        now: Monotonic,
        sets: &impl Sets,
        id: RequestId,
        key: TargetId,
        (request, from): (SessionRequest, Origin),
        out: &mut Effects,
    ) {
        let Some(target) = self.targets.get_mut(&key) else { return };
        let asks = request.instance.id;
        let is_another = match (&target.cluster, &request.facts.cluster) {
            (Some(known), Some(claimed)) => {
                let is_another = known != claimed;
                target.stranger = is_another.then_some(asks);
                is_another
            }
            // One that named another cluster, and may not ask now, is still in that. It may be a new process by now; the one at
            // work goes on.
            (Some(_), None) => {
                let holder = target.sessions.held_by();
                target.stranger.is_some_and(|stranger| stranger == asks || holder != Some(asks))
            }
            (None, _) => false,
        };
        if is_another {
            out.push(Effect::Quarantined { target: key, cluster: request.facts.cluster });
            out.push(refuse(id, RefusalKind::Quarantined, "this identity was enrolled from another cluster"));
            return;
        }
        target.cluster = target.cluster.take().or_else(|| request.facts.cluster.clone());
        let SessionRequest {
            facts,
            accepted,
            instance,
            persisted,
            last,
            fenced: was_fenced,
            capabilities,
            formers: _,
            asked_as: _,
        } = request;
        let shown = accepted.map(|accepted| history::shown(key, accepted, from.proof));
        let lost = shown.filter(|_| sets.continuity(key, shown) == TargetContinuity::Broken { recorded: false });
        let host = instance.host.chars().filter(|c| is_printable(*c)).take(HOST_LETTERS_MAX).collect();
        let who = Seen { instance: Instance { host, ..instance }, address: from.address, since: from.at };
        let verdict =
            target.sessions.holder.ask(now, &Asks { who, persisted, last, fenced: was_fenced, capabilities }, from.id);
        match verdict {
            Verdict::Offer(session) => {
                target.offered = Some((session, shown));
                if let Some(shown) = lost {
                    out.push(Effect::Shown { target: key, shown, proof: from.proof });
                }
                out.push(Effect::Facts { target: key, facts });
                self.store(key, out);
                self.offer(sets, id, key, (session, shown), out);
                return;
            }
            Verdict::Outdated(session) => self.answer(sets, id, key, ((session, shown), true), out),
            Verdict::Busy(left) => out.push(busy(id, left)),
            Verdict::Fenced(by) => out.push(fenced(id, by)),
            Verdict::Reopen => out.push(reopen(id)),
            Verdict::Absurd => {
                let message = "it claims a session that this hub cannot have given in any history";
                out.push(refuse(id, RefusalKind::Malformed, message));
            }
        }
        self.store(key, out);
    }

    /// Tells an offer, now or when it is on disk.
    fn offer(&mut self, sets: &impl Sets, id: RequestId, key: TargetId, offered: Offered, out: &mut Effects) {
        let Some(target) = self.targets.get_mut(&key) else { return };
        let needs = target.sessions.told.0;
        if target.sessions.stored < needs {
            target.sessions.offers.push((needs, id, offered));
        } else {
            self.answer(sets, id, key, (offered, false), out);
        }
    }

    pub(super) fn on_holder_stored(&mut self, sets: &impl Sets, key: TargetId, stored: u64, out: &mut Effects) {
        let Some(target) = self.targets.get_mut(&key) else { return };
        target.sessions.stored = target.sessions.stored.max(stored);
        let told: Vec<_> = target.sessions.offers.extract_if(.., |(needs, ..)| *needs <= stored).collect();
        for (_, id, offered) in told {
            self.answer(sets, id, key, (offered, false), out);
        }
    }

    fn answer(
        &mut self,
        sets: &impl Sets,
        id: RequestId,
        key: TargetId,
        ((session, shown), outdated): (Offered, bool),
        out: &mut Effects,
    ) {
        let epoch = sets.info(key).map_or(Epoch::default(), |info| info.version.epoch);
        // The edge knows where the hub is reached.
        let (poll, addresses) = (self.config.poll, HubAddresses::default());
        let history = history::told(sets.continuity(key, shown));
        let cluster = self.targets.get(&key).and_then(|target| target.recorded.clone());
        let answer = SessionAnswer { session, outdated, epoch, poll, addresses, history, cluster, handover: None };
        out.push(Effect::Respond { id, answer: Ok(Answer::Session(answer)) });
    }

    /// The holder ends in order.
    pub(super) fn goodbye(&mut self, key: TargetId, session: SessionName, out: &mut Effects) {
        if let Some(target) = self.targets.get_mut(&key) {
            target.sessions.holder.goodbye(session);
            self.store(key, out);
        }
    }

    /// A person chooses among those that live with this identity.
    pub(super) fn on_accepted(&mut self, key: TargetId, instance: InstanceId, word: &str, out: &mut Effects) {
        if let Some(target) = self.targets.get_mut(&key) {
            target.sessions.holder.accept(instance, word);
            self.store(key, out);
        }
    }

    /// Instances that were heard no more for long are spoken of no more.
    pub(super) fn lapse(&mut self, now: Monotonic, out: &mut Effects) {
        while let Some(&(at, key)) = self.lapses.first().filter(|(at, _)| *at <= now) {
            self.lapses.remove(&(at, key));
            if let Some(target) = self.targets.get_mut(&key) {
                target.sessions.lapse_at = None;
                target.sessions.holder.lapse(now);
                self.store(key, out);
            }
        }
    }

    /// Has the holder persisted, if it is another by now.
    fn store(&mut self, key: TargetId, out: &mut Effects) {
        let stores = &mut self.stores;
        let Some(Sessions { holder, told: (version, told), lapse_at, .. }) =
            self.targets.get_mut(&key).map(|target| &mut target.sessions)
        else {
            return;
        };
        if let (None, Some(at)) = (&lapse_at, holder.others_lapse_at()) {
            *lapse_at = Some(at);
            self.lapses.insert((at, key));
        }
        if told != holder.record() {
            *stores += 1;
            *version = *stores;
            holder.record().clone_into(told);
            out.push(Effect::StoreHolder { target: key, version: *version, record: Box::new(told.clone()) });
        }
    }
}

fn fenced(id: RequestId, by: SessionName) -> Effect {
    let message = format!("another agent with this identity holds the target, in session {by}");
    let refusal = Refusal { fenced_by: Some(by), ..Refusal::new(RefusalKind::Fenced, message) };
    Effect::Respond { id, answer: Err(refusal) }
}

fn busy(id: RequestId, left: Duration) -> Effect {
    let refusal = Refusal::new(RefusalKind::Busy, "another agent with this identity is starting");
    Effect::Respond { id, answer: Err(refusal.retry_after(left.as_secs() + 1)) }
}

fn reopen(id: RequestId) -> Effect {
    refuse(id, RefusalKind::SessionUnknown, "this session is not known here; open another")
}
