//! Who may speak for a target: its sessions, one open at a time, each with a higher number than any before.

use std::time::Duration;

use tideline_common::wire::v1::{HubAddresses, RefusalKind, SessionAnswer, SessionRequest};
use tideline_common::{Epoch, Monotonic, SessionNumber, TargetId};

use super::{Answer, Core, Effect, Effects, RequestId, Sets, proves_lost_history, refuse};

/// A process that was fenced gets the session back when nobody has used it for so long while this hub ran: what holds it is
/// not coming back by itself.
const HOLDER_SILENT: Duration = Duration::from_hours(24);

#[derive(Debug)]
pub(super) enum Session {
    /// No session since this hub started; the number is the last one given, by any run.
    Closed(SessionNumber),
    /// The number is being persisted; nobody was told yet.
    Opening {
        number: SessionNumber,
        request: RequestId,
    },
    Open(SessionNumber),
}

impl Core {
    /// Lets only the present session pass.
    pub(super) fn admit(
        &mut self,
        now: Monotonic,
        id: RequestId,
        target: TargetId,
        session: SessionNumber,
        out: &mut Effects,
    ) -> bool {
        let Some(known) = self.targets.get_mut(&target) else { return false };
        let (present, open) = match known.session {
            // After a restart of the hub the last session given goes on as if nothing had happened.
            Session::Open(number) | Session::Closed(number) => (number, true),
            Session::Opening { number, .. } => (number, false),
        };
        if open && present == session && session != SessionNumber::default() {
            known.heard_at = now;
            return true;
        }
        out.push(if session > present {
            refuse(id, RefusalKind::SessionUnknown, "this session is not known here; open another")
        } else {
            refuse(id, RefusalKind::Fenced, "a newer session of this identity is open")
        });
        false
    }

    pub(super) fn on_session(
        &mut self,
        now: Monotonic,
        sets: &impl Sets,
        id: RequestId,
        key: TargetId,
        request: SessionRequest,
        out: &mut Effects,
    ) {
        let Some(target) = self.targets.get_mut(&key) else { return };
        if let (Some(known), Some(claimed)) = (&target.cluster, &request.facts.cluster)
            && known != claimed
        {
            out.push(Effect::Quarantined { target: key, cluster: request.facts.cluster });
            out.push(refuse(id, RefusalKind::Quarantined, "this identity was enrolled from another cluster"));
            return;
        }
        target.cluster = target.cluster.take().or_else(|| request.facts.cluster.clone());
        if request.yields && now.since(target.heard_at) < HOLDER_SILENT {
            out.push(refuse(
                id,
                RefusalKind::Fenced,
                "a newer session of this identity is open, and its agent is heard from",
            ));
            return;
        }
        let (last, abandoned) = match target.session {
            Session::Closed(number) | Session::Open(number) => (number, None),
            Session::Opening { number, request } => (number, Some(request)),
        };
        if request.last < last {
            let epoch = sets.info(key).map_or(Epoch::default(), |info| info.version.epoch);
            let (poll, addresses) = (self.config.poll, HubAddresses::default());
            let answer = SessionAnswer { session: last, outdated: true, epoch, poll, addresses };
            out.push(Effect::Respond { id, answer: Ok(Answer::Session(answer)) });
            return;
        }
        if let Some(abandoned) = abandoned {
            out.push(refuse(abandoned, RefusalKind::Fenced, "a newer session is being opened"));
        }
        if let Some(waiting) = target.waiting.take() {
            self.polls.remove(&(waiting.until, key));
            out.push(refuse(waiting.id, RefusalKind::Fenced, "a newer session is being opened"));
        }
        // A number that an agent was given in a history that was lost is not given again.
        let number = request.last.next();
        target.session = Session::Opening { number, request: id };
        if let (Some(proven), Some(present)) = (request.accepted, sets.info(key))
            && proves_lost_history(proven, present)
        {
            out.push(Effect::RaiseEpoch { target: key, proven });
        }
        out.push(Effect::StoreSession { target: key, session: number, facts: request.facts });
    }

    pub(super) fn on_session_stored(
        &mut self,
        now: Monotonic,
        sets: &impl Sets,
        key: TargetId,
        session: SessionNumber,
        result: &Result<(), String>,
        out: &mut Effects,
    ) {
        let Some(target) = self.targets.get_mut(&key) else { return };
        let Session::Opening { number, request } = target.session else { return };
        if number != session {
            return;
        }
        if result.is_err() {
            // The number may have been written: it is never given again.
            target.session = Session::Closed(number);
            out.push(refuse(request, RefusalKind::Busy, "the hub cannot write its store at the moment"));
            return;
        }
        target.session = Session::Open(number);
        target.heard_at = now;
        target.seq = 0;
        let epoch = sets.info(key).map_or(Epoch::default(), |info| info.version.epoch);
        // The edge knows where the hub is reached.
        let (poll, addresses) = (self.config.poll, HubAddresses::default());
        let answer = SessionAnswer { session, outdated: false, epoch, poll, addresses };
        out.push(Effect::Respond { id: request, answer: Ok(Answer::Session(answer)) });
    }
}
