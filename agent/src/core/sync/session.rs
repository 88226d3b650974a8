//! The conversation with the hub. It never stops: whatever goes wrong is tried again, only slower.
//!
//! ```text
//!  Off ─▶ Enrolling ─▶ Opening ─▶ Keeping ─▶ Polling ◀──── Switching
//!                                   │  ▲ nothing new            ▲ journal
//!                                   ▼  │                        │
//!                               Gathering ─── complete ──▶ Fetching
//!                                (pages)                  (bodies)
//!
//!  any of them ── no answer ──▶ Backoff ── timer ──▶ where it was
//!  any of them ── fenced ──▶ ReadingStoredSession, then Opening or Backoff
//!  any of them ── quarantined, deleted, … ──▶ Backoff, as `mode` describes
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use tideline_common::limits::POLL_WAIT_SECONDS_MIN;
use tideline_common::wire::v1::{
    ApprovedPage, BodiesRequest, DesiredAnswer, DesiredRequest, Refusal, RefusalKind, SessionRequest,
};
use tideline_common::{EntryState, Monotonic, SessionName};

use super::fetch::Fetch;
use super::gather::{Gather, LastAccepted, Question, Step, SyncError};
use crate::core::interface::effect::{Effect, Effects, Request, RequestId, Timer};
use crate::core::interface::event::{Answer, LinkFailure};
use crate::core::interface::write::{AgentMode, Write};
use crate::core::model::change::Change;
use crate::core::{Core, Phase};

/// Wait after a failure, doubled each time up to the second, with full jitter.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// A hub that answers "nothing new" sooner than this is not asked again before.
const POLL_PAUSE: Duration = Duration::from_secs(1);
/// A poll that fails after this long was cut by a middlebox that does not like to wait.
const POLL_CUT: Duration = Duration::from_secs(4);

mod enrol;
mod repair;
mod state;
mod stored_session;
mod sync_errors;

pub(in crate::core) use enrol::Token;
pub(in crate::core) use state::Session;
use state::{Link, Next, RETRY_REFUSED, SessionReadReason, SetFailure};

impl Core {
    pub(in crate::core) fn session_start(&mut self, out: &mut Effects) {
        let whole = |core: &Self, entry: &tideline_common::Entry| {
            core.model.policies.contains_key(&entry.policy)
                && (entry.state != EntryState::Apply || core.model.inputs.is_stored(&entry.input))
        };
        if !self.model.desired.iter().all(|(_, entry)| whole(self, entry)) {
            self.sync.session.distrust();
        }
        match self.model.target {
            Some(_) => self.open_session(out),
            None => self.enrol(out),
        }
    }

    /// The facts that are sent with a session changed.
    pub(in crate::core) fn renew_session(&mut self, out: &mut Effects) {
        self.sync.session.untold = true;
        if matches!(self.sync.session.link, Link::Polling { .. }) {
            self.open_session(out);
        }
    }

    pub(in crate::core) fn open_session(&mut self, out: &mut Effects) {
        let id = self.sync.session.request();
        self.sync.session.link = Link::Opening(id);
        // Requests in flight in the former session may be refused from now on, and that means nothing.
        self.sync.session.name = None;
        self.sync.session.untold = false;
        let request = SessionRequest {
            facts: self.sync.cluster_identity.facts().clone(),
            accepted: self.sync.sets.shown(),
            formers: self.model.formers.iter().collect(),
            asked_as: None,
            instance: self.config.instance.clone(),
            persisted: self.sync.session.persisted,
            last: self.sync.session.newest,
            fenced: self.sync.session.fenced,
            capabilities: self.config.capabilities.clone(),
        };
        out.push(Effect::Send { id, request: Request::Session(request) });
    }

    /// Asks for what is new, and lets the hub take its time.
    pub(in crate::core) fn poll(&mut self, now: Monotonic, out: &mut Effects) {
        let gather = match self.sync.sets.current() {
            Some(accepted) if !self.sync.session.repair.is_needed() => Gather::changes(accepted, &self.model.desired),
            Some(_) | None => self.sync.session.repair.everything(),
        };
        self.ask(now, Box::new(gather), out);
    }

    fn ask(&mut self, now: Monotonic, gather: Box<Gather>, out: &mut Effects) {
        // An agent that is not active opens a session to find out whether it may use it.
        if self.sync.mode != AgentMode::Active && self.sync.session.name.is_none() {
            let at = self.sync.session.ask_at.max(now);
            return self.sync.session.back_off(at, Next::Open, out);
        }
        let Some(session) = self.sync.session.name.filter(|_| !self.sync.session.untold) else {
            return self.open_session(out);
        };
        let id = self.sync.session.request();
        let wait = self.sync.session.poll_wait().as_secs();
        // While the hub's history is broken, the agent asks for nothing but whether that is over.
        let may_wait = gather.may_wait() || self.sync.is_broken();
        let wait_seconds = if may_wait { wait } else { 0 };
        let Question { since, digest, after } = gather.question();
        self.sync.session.repair.asks(&gather);
        self.sync.session.link =
            if may_wait { Link::Polling { id, sent: now, gather } } else { Link::Gathering { id, gather } };
        let (approved, decommission) = (self.guards.approvals.arrived(), self.model.decommission);
        let (shown, history) = (self.sync.shown(), self.sync.history);
        let stands = if may_wait { self.report_that_stands(now) } else { None };
        let request = DesiredRequest {
            session,
            since,
            digest,
            after,
            wait_seconds,
            approved,
            decommission,
            shown,
            history,
            stands,
        };
        out.push(Effect::Send { id, request: Request::Desired(request) });
    }

    pub(in crate::core) fn link_due(&mut self, now: Monotonic, out: &mut Effects) {
        match std::mem::replace(&mut self.sync.session.link, Link::Off) {
            Link::Backoff(Next::Enrol) => self.enrol(out),
            Link::Backoff(Next::Open) => match self.sync.session.fenced {
                Some(fenced) => self.sync.session.read_stored_session(SessionReadReason::Fenced(fenced), out),
                None => self.open_session(out),
            },
            Link::Backoff(Next::Poll) => self.poll(now, out),
            Link::Backoff(Next::Gather(gather)) => self.ask(now, gather, out),
            Link::Fetching { fetch, paused: _ } => {
                self.sync.session.link = Link::Fetching { fetch, paused: false };
                self.fetch_more(out);
            }
            // The timer of an earlier pause.
            link @ (Link::Off
            | Link::Enrolling(_)
            | Link::Opening(_)
            | Link::Keeping(_)
            | Link::ReadingStoredSession(_)
            | Link::Polling { .. }
            | Link::Gathering { .. }
            | Link::Switching) => self.sync.session.link = link,
        }
    }

    pub(in crate::core) fn answered(
        &mut self,
        now: Monotonic,
        id: RequestId,
        result: Result<Answer, LinkFailure>,
        out: &mut Effects,
    ) {
        match &result {
            Err(LinkFailure::Refused(refusal)) if self.is_awaited(id) => self.refused(now, refusal, out),
            Ok(Answer::Desired(_) | Answer::Bodies(_) | Answer::Reported(_)) if self.is_awaited(id) => {
                self.reactivate(out);
            }
            Ok(_) | Err(_) => {}
        }
        if self.reporting.reports.is_flying(id) {
            return self.reported(now, result, out);
        }
        match std::mem::replace(&mut self.sync.session.link, Link::Off) {
            Link::Enrolling(asked) if asked == id => match result {
                Ok(Answer::Enrolled(answer)) => self.enrolled(now, answer, out),
                other => self.enrolment_failed(now, other.err().as_ref(), out),
            },
            Link::Opening(asked) if asked == id => match result {
                Ok(Answer::Session(answer)) => self.opened(now, answer, out),
                other => self.failed(now, Next::Open, other.err().as_ref(), out),
            },
            Link::Polling { id: asked, sent, gather } if asked == id => match result {
                Ok(Answer::Desired(answer)) => self.gathered(now, Some(sent), gather, answer, out),
                other => self.poll_failed(now, sent, other.err().as_ref(), out),
            },
            Link::Gathering { id: asked, gather } if asked == id => match result {
                Ok(Answer::Desired(answer)) => self.gathered(now, None, gather, answer, out),
                other => self.failed(now, Next::Gather(gather), other.err().as_ref(), out),
            },
            Link::Fetching { fetch, paused } if fetch.is_flying(id) => {
                self.fetched(now, id, fetch, paused, result, out);
            }
            // An answer that nobody waits for any more.
            link @ (Link::Off
            | Link::Enrolling(_)
            | Link::Opening(_)
            | Link::Keeping(_)
            | Link::ReadingStoredSession(_)
            | Link::Polling { .. }
            | Link::Gathering { .. }
            | Link::Fetching { .. }
            | Link::Switching
            | Link::Backoff(_)) => {
                self.sync.session.link = link;
                self.become_as_told(now, result, out);
            }
        }
    }

    /// The new target was written before the core heard of it, so it stands, whatever the core has asked since.
    fn become_as_told(&mut self, now: Monotonic, result: Result<Answer, LinkFailure>, out: &mut Effects) {
        match result {
            Ok(Answer::Enrolled(answer)) => self.enrolled(now, answer, out),
            Ok(Answer::Session(answer)) if answer.handover.is_some() => self.opened(now, answer, out),
            Ok(Answer::Session(_) | Answer::Desired(_) | Answer::Bodies(_) | Answer::Reported(_)) | Err(_) => {}
        }
    }

    /// Whether an answer to this request is still about the agent as it is.
    fn is_awaited(&self, id: RequestId) -> bool {
        match &self.sync.session.link {
            Link::Enrolling(asked) | Link::Opening(asked) if *asked == id => true,
            Link::Polling { id: asked, .. } | Link::Gathering { id: asked, .. } if *asked == id => true,
            Link::Fetching { fetch, .. } if fetch.is_flying(id) => true,
            Link::Off
            | Link::Enrolling(_)
            | Link::Opening(_)
            | Link::Keeping(_)
            | Link::ReadingStoredSession(_)
            | Link::Polling { .. }
            | Link::Gathering { .. }
            | Link::Fetching { .. }
            | Link::Switching
            | Link::Backoff(_) => {
                self.reporting.reports.is_flying(id) && self.reporting.reports.is_of_session(self.sync.session.name)
            }
        }
    }

    /// Everything in flight to the hub is dropped; a session is asked for at `at`. A set that is being written is accepted all
    /// the same.
    pub(in crate::core) fn ask_again(&mut self, at: Monotonic, out: &mut Effects) {
        self.sync.session.name = None;
        self.sync.session.ask_at = at;
        match self.sync.session.link {
            // The next request waits until then.
            Link::Switching => return,
            Link::Fetching { .. } => self.sync.session.strays = true,
            Link::Off
            | Link::Enrolling(_)
            | Link::Opening(_)
            | Link::Keeping(_)
            | Link::ReadingStoredSession(_)
            | Link::Polling { .. }
            | Link::Gathering { .. }
            | Link::Backoff(_) => {}
        }
        let next = if self.model.target.is_none() || self.may_enrol_anew(at) { Next::Enrol } else { Next::Open };
        self.sync.session.back_off(at, next, out);
    }

    /// The hub does not know the session that it gave: it lost history. Requests in flight in it are dropped.
    fn session_unknown(&mut self, now: Monotonic, out: &mut Effects) {
        self.sync.session.name = None;
        if !matches!(self.sync.session.link, Link::Switching | Link::Opening(_)) {
            self.failed(now, Next::Open, None, out);
        }
    }

    fn gathered(
        &mut self,
        now: Monotonic,
        sent: Option<Monotonic>,
        mut gather: Box<Gather>,
        answer: DesiredAnswer,
        out: &mut Effects,
    ) {
        self.sync.session.polled_well();
        let last = LastAccepted {
            accepted: self.sync.sets.current(),
            floor: self.sync.floor(),
            decommission: self.model.decommission,
            desired: &self.model.desired,
            policies: &self.model.policies,
        };
        let step = match answer {
            DesiredAnswer::NothingNew => gather.nothing_new(&last),
            DesiredAnswer::Page(mut page) => {
                page.entries.iter_mut().for_each(|entry| self.model.shared.entry(entry));
                gather.page(page, &last)
            }
            DesiredAnswer::SnapshotRequired { epoch: _ } if gather.may_wait() => {
                return self.ask(now, Box::new(self.sync.session.repair.everything()), out);
            }
            // It began an answer, and had forgotten the rest before its end.
            DesiredAnswer::SnapshotRequired { epoch: _ } if gather.question().since.is_some() => {
                let next = Next::Gather(Box::new(self.sync.session.repair.everything()));
                return self.set_failed(now, SetFailure::Outdated, next, out);
            }
            DesiredAnswer::Approved(page) => {
                self.sync.session.succeeded();
                if self.approved(now, page) {
                    self.ask(now, gather, out);
                } else {
                    self.sync.session.back_off(now + POLL_PAUSE, Next::Gather(gather), out);
                }
                return;
            }
            DesiredAnswer::Broken => {
                self.sync.session.succeeded();
                self.history_broken(now);
                return self.pause_polling(now, sent, out);
            }
            DesiredAnswer::ReportAgain => {
                self.sync.session.succeeded();
                if self.reporting.reports.are_unknown(now) {
                    return self.ask(now, gather, out);
                }
                return self.sync.session.back_off(now + POLL_PAUSE, Next::Gather(gather), out);
            }
            DesiredAnswer::SnapshotRequired { .. } | DesiredAnswer::Unknown => Step::Again(SyncError::Unrelated),
        };
        match step {
            Step::Ask => {
                self.sync.session.succeeded();
                self.ask(now, gather, out);
            }
            Step::Complete(change) => self.gathered_all(change, out),
            Step::NothingNew => {
                self.sync.session.has_whole_set();
                self.history_whole(now);
                self.pause_polling(now, sent, out);
            }
            Step::Again(error) => {
                self.sync.session.sync_errors.found(error);
                let next = Next::Gather(Box::new(self.sync.session.repair.anew(&gather, error)));
                self.set_failed(now, SetFailure::Error(error), next, out);
            }
            Step::Refuse(error) => {
                self.sync.session.sync_errors.found(error);
                let wait = match self.sync.session.count_failed_set(SetFailure::Error(error)) {
                    1 => self.wait_after(1, None),
                    more => self.jitter.half(more - 1, RETRY_REFUSED.0, RETRY_REFUSED.1),
                };
                // Opening a session shows the hub what was seen of its history, which does not help where a set is too large.
                let next = if error == SyncError::TooLarge { Next::Poll } else { Next::Open };
                self.sync.session.back_off(now + wait, next, out);
            }
        }
    }

    /// The hub says what is approved. Returns whether that was news, so that there may be more.
    fn approved(&mut self, now: Monotonic, page: ApprovedPage) -> bool {
        let Some(fresh) = self.guards.approvals.take(now, page) else { return false };
        for removal in fresh {
            self.guards.approvals.apply(&mut self.model, &removal);
            // Removals of the key need not wait for their retry.
            self.enqueue(&removal.key);
            self.dirty(&removal.key, now);
        }
        true
    }

    /// A set failed, and is requested again: with growing pauses, for its pages and bodies arrived and will again.
    fn set_failed(&mut self, now: Monotonic, why: SetFailure, next: Next, out: &mut Effects) {
        let at = self.after_failed_set(now, why);
        self.sync.session.back_off(at, next, out);
    }

    fn after_failed_set(&mut self, now: Monotonic, why: SetFailure) -> Monotonic {
        now + match self.sync.session.count_failed_set(why) {
            1 => self.wait_after(1, None),
            more => self.jitter.half(more, RETRY.0, RETRY.1),
        }
    }

    /// Polls again; not at once if the answer came at once.
    fn pause_polling(&mut self, now: Monotonic, sent: Option<Monotonic>, out: &mut Effects) {
        match sent {
            Some(sent) if now.since(sent) >= POLL_PAUSE => self.poll(now, out),
            Some(_) | None => self.sync.session.back_off(now + POLL_PAUSE, Next::Poll, out),
        }
    }

    fn gathered_all(&mut self, change: Box<Change>, out: &mut Effects) {
        let needs = |entry: &&std::sync::Arc<tideline_common::Entry>| {
            entry.state == EntryState::Apply && !self.model.inputs.is_stored(&entry.input)
        };
        let unchanged =
            self.model.desired.iter().map(|(_, entry)| entry).filter(|_| self.sync.session.repair.is_needed());
        let mut known = BTreeSet::new();
        let needed = change.put.iter().chain(unchanged).filter(needs);
        let mut wanted: Vec<_> = needed.filter(|entry| known.insert(entry.input)).cloned().collect();
        wanted.sort_by(|a, b| a.key.cmp(&b.key));
        let fetch = Box::new(Fetch::new(change, wanted));
        self.sync.session.link = Link::Fetching { fetch, paused: false };
        self.fetch_more(out);
    }

    /// Asks for more bodies, if they are being fetched, or accepts the set when it has all.
    pub(in crate::core) fn fetch_more(&mut self, out: &mut Effects) {
        let Some(session) = self.sync.session.name else { return };
        let Link::Fetching { fetch, paused: false } = &mut self.sync.session.link else { return };
        while self.model.disk.has_room_for_bodies(fetch.bytes_in_flight()) {
            let id = self.sync.session.requests.next();
            let Some(wanted) = fetch.next(id) else { break };
            out.push(Effect::Send { id, request: Request::Bodies(BodiesRequest { session, wanted }) });
        }
        if fetch.is_done()
            && let Link::Fetching { fetch, .. } = std::mem::replace(&mut self.sync.session.link, Link::Switching)
        {
            self.sync.session.has_whole_set();
            self.begin_switch(fetch.change);
        }
    }

    fn fetched(
        &mut self,
        now: Monotonic,
        id: RequestId,
        mut fetch: Box<Fetch>,
        paused: bool,
        result: Result<Answer, LinkFailure>,
        out: &mut Effects,
    ) {
        let (progress, failure) = match result {
            Ok(Answer::Bodies(answer)) => {
                let fetched = fetch.answered(id, answer);
                for (input, text) in fetched.bodies {
                    self.model.inputs.keep(input);
                    self.model.disk.write(Write::Body { input, text });
                }
                if fetched.outdated {
                    self.sync.session.strays = true;
                    // The set has moved on. Bodies that arrived whole are kept, and the next set does not ask for them.
                    if fetch.whole() > 0 {
                        let wait = self.wait_after(1, None);
                        return self.sync.session.back_off(now + wait, Next::Poll, out);
                    }
                    return self.set_failed(now, SetFailure::Outdated, Next::Poll, out);
                }
                (fetched.progress, None)
            }
            other => {
                fetch.failed(id);
                (false, other.err())
            }
        };
        self.sync.session.link = Link::Fetching { fetch, paused };
        if progress || paused {
            if progress {
                self.sync.session.succeeded();
            }
            self.fetch_more(out);
        } else {
            let at = match &failure {
                Some(failure) => self.after_failure(now, Some(failure)),
                None => self.after_failed_set(now, SetFailure::NoBodies),
            };
            if let Link::Fetching { paused, .. } = &mut self.sync.session.link {
                *paused = true;
            }
            out.push(Effect::SetTimer { timer: Timer::Link, at });
        }
    }

    fn poll_failed(&mut self, now: Monotonic, sent: Monotonic, failure: Option<&LinkFailure>, out: &mut Effects) {
        // A gateway that waits no longer says so itself.
        let cut = matches!(
            failure,
            Some(LinkFailure::Unreachable { retry_after: None, .. } | LinkFailure::NotTheHub { retry_after: None, .. })
        );
        if cut && now.since(sent) >= POLL_CUT {
            let waited = self.sync.session.settings.wait_seconds.min(self.sync.session.wait_max);
            self.sync.session.wait_max = (waited / 2).max(POLL_WAIT_SECONDS_MIN);
            self.sync.session.polls = 0;
        }
        // What it said may not have arrived, and who answers the next one may be another run of the hub.
        self.reporting.reports.doubt(now);
        self.failed(now, Next::Poll, failure, out);
    }

    fn failed(&mut self, now: Monotonic, next: Next, failure: Option<&LinkFailure>, out: &mut Effects) {
        let at = self.after_failure(now, failure);
        let next = if self.may_prove_more(now, failure) { Next::Enrol } else { next };
        self.sync.session.back_off(at, next, out);
    }

    fn after_failure(&mut self, now: Monotonic, failure: Option<&LinkFailure>) -> Monotonic {
        self.sync.session.failures = self.sync.session.failures.saturating_add(1);
        now + self.wait_after(self.sync.session.failures, failure)
    }

    /// How long to pause after so many failures, of which this is the last.
    pub(in crate::core) fn wait_after(&mut self, failures: u32, failure: Option<&LinkFailure>) -> Duration {
        let usual = self.jitter.full(failures, RETRY.0, RETRY.1);
        match failure {
            None => usual,
            Some(LinkFailure::Unreachable { retry_after, .. } | LinkFailure::NotTheHub { retry_after, .. }) => {
                usual.max(retry_after.unwrap_or_default())
            }
            Some(LinkFailure::Refused(Refusal { refusal, retry_after_seconds, .. })) => {
                let asked = Duration::from_secs(retry_after_seconds.unwrap_or_default());
                match refusal {
                    // Not all agents that were told the same may come back at the same moment.
                    RefusalKind::Busy => asked + usual,
                    RefusalKind::Unauthenticated | RefusalKind::UnknownTarget | RefusalKind::TokenRefused => {
                        self.jitter.half(failures, RETRY_REFUSED.0, RETRY_REFUSED.1).max(asked)
                    }
                    RefusalKind::Malformed
                    | RefusalKind::TooLarge
                    | RefusalKind::Unknown
                    | RefusalKind::BadRequestNumber
                    | RefusalKind::Fenced
                    | RefusalKind::SessionUnknown
                    | RefusalKind::Quarantined
                    | RefusalKind::Revoked
                    | RefusalKind::TargetGone => usual.max(asked),
                }
            }
        }
    }

    /// Whether reports can be sent at all.
    pub(in crate::core) fn session_name(&self) -> Option<SessionName> {
        self.sync.session.name.filter(|_| self.phase != Phase::Ended)
    }
}

#[cfg(test)]
mod tests;
