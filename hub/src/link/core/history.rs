//! Whether what an agent knows of is part of this hub's history.
//!
//! ```text
//!  poll ── of this history ─────────────────▶ answered
//!   │  └── broken, and recorded so ─▶ Broken, or waits, if the agent knows
//!   └───── not of this history ─▶ SessionUnknown ─▶ session, with the hub's own word ─▶ recorded ─▶ Broken
//! ```
//!
//! A poll names the newest set that the agent knows of; that is judged each time, for a machine that is set back while it
//! runs starts no session anew. Only a session shows the hub's own word of it.

use tideline_common::signature::{SigningKey, VerifyingKey};
use tideline_common::wire::v1::{Attested, Continuity, DesiredAnswer, DesiredRequest, RefusalKind, SessionRequest};
use tideline_common::{Epoch, Monotonic, RevisionPoint, Shown, TargetId, Version};

use super::{Answer, Core, Effect, Effects, Origin, Request, RequestId, Sets, Waiting, refuse, respond_desired, wait};
use crate::history_change::Proof;
use crate::ledger::{Absence, TargetContinuity};

impl Request {
    /// A request for a session, of a hub with this key.
    pub fn session(request: SessionRequest, from: Origin, hub: &VerifyingKey) -> Self {
        let own =
            |Attested { set, attestation }: Attested| attestation.is_by(hub) && attestation.version == set.version;
        let proof = if request.accepted.is_some_and(own) { Proof::OwnWord } else { Proof::Claim };
        Self::Session(Box::new(request), Origin { proof, ..from })
    }

    /// The newest set that the agent knows of, as far as this request says it.
    pub fn shown(&self, target: TargetId) -> Option<Shown> {
        match self {
            Self::Session(request, from) => request.accepted.map(|accepted| shown(target, accepted, from.proof)),
            Self::Desired(request) => request.shown,
            Self::Bodies(_) | Self::Reported(_) => None,
        }
    }
}

impl Answer {
    /// Signs the hub's word of the set that this tells of, if it does.
    #[must_use]
    pub fn sign(mut self, key: &SigningKey) -> Self {
        if let Self::Desired(DesiredAnswer::Page(page)) = &mut self {
            page.attestation = page.attestation.sign(key);
        }
        self
    }
}

/// What was shown without an attestation of it is in no history.
pub(super) fn shown(target: TargetId, Attested { set, attestation }: Attested, proof: Proof) -> Shown {
    let point = match proof {
        Proof::OwnWord => attestation.point,
        Proof::Claim if attestation.version == set.version => attestation.point,
        Proof::Claim => RevisionPoint::NOWHERE,
    };
    // An epoch is of one target. What the agent accepted as another that it was is of the same revisions.
    let epoch = if attestation.target == target { set.version.epoch } else { Epoch::default() };
    Shown { version: Version { epoch, ..set.version }, point }
}

pub(super) fn told(continuity: TargetContinuity) -> Continuity {
    match continuity {
        TargetContinuity::Whole { .. } => Continuity::Whole,
        TargetContinuity::Broken { .. } => Continuity::Broken,
    }
}

impl Core {
    /// The newest set that the agent knew of whose session is in use. Who is refused a session has no part in it.
    pub fn shown_by(&self, target: TargetId) -> Option<Shown> {
        self.targets.get(&target)?.shown
    }

    /// The same of the one to whom a session was offered last.
    pub fn shown_for_offer(&self, target: TargetId) -> Option<Shown> {
        self.targets.get(&target)?.offered?.1
    }

    /// Goes on with a poll if the agent may be told of its set, and says what follows from absence; else answers it.
    pub(super) fn admit_to_history(
        &mut self,
        now: Monotonic,
        sets: &impl Sets,
        id: RequestId,
        key: TargetId,
        request: &DesiredRequest,
        out: &mut Effects,
    ) -> Option<Absence> {
        if let (Some(target), Some(shown)) = (self.targets.get_mut(&key), request.shown) {
            target.shown = Some(shown);
        }
        match sets.continuity(key, request.shown) {
            // An agent that was set back, with its cluster: what a whole set lacks may have been let go of since, and only a
            // delta says so.
            TargetContinuity::Whole { .. }
                if request.since.is_none() && request.shown.is_some_and(|shown| sets.has_shown_later(key, shown)) =>
            {
                return Some(Absence::Unexplained);
            }
            TargetContinuity::Whole { absence } => return Some(absence),
            TargetContinuity::Broken { recorded: false } => {
                out.push(refuse(
                    id,
                    RefusalKind::SessionUnknown,
                    "the set that this agent knows of is not of this hub's history; open another session to show it",
                ));
            }
            TargetContinuity::Broken { recorded: true } if request.history == Continuity::Whole => {
                out.push(respond_desired(id, DesiredAnswer::Broken));
            }
            TargetContinuity::Broken { recorded: true } => {
                let until = now + wait(request.wait_seconds);
                let DesiredRequest { approved, decommission, shown, history, .. } = *request;
                let since = request.since.unwrap_or_default();
                self.wait(Waiting { id, until, since, approved, decommission, shown, history }, key, out);
            }
        }
        None
    }

    /// Tells a waiting agent that the history broke. True if it waits on, or was told.
    pub(super) fn tell_broken(&mut self, sets: &impl Sets, key: TargetId, out: &mut Effects) -> bool {
        let Some(target) = self.targets.get_mut(&key) else { return true };
        let Some(waiting) = &target.waiting else { return true };
        if told(sets.continuity(key, waiting.shown)) == Continuity::Whole {
            return false;
        }
        if let Some(waiting) = target.waiting.take_if(|waiting| waiting.history == Continuity::Whole) {
            self.polls.remove(&(waiting.until, key));
            out.push(respond_desired(waiting.id, DesiredAnswer::Broken));
        }
        true
    }
}

/// What a waiting agent is told when nothing happened for so long.
pub(super) fn nothing_happened(waiting: &Waiting) -> Effect {
    let answer = match waiting.history {
        Continuity::Whole => DesiredAnswer::NothingNew,
        Continuity::Broken | Continuity::Unknown => DesiredAnswer::Broken,
    };
    respond_desired(waiting.id, answer)
}
