//! Sessions and where they are stored: an offered session is stored before it is used, and a process that is fenced reads its
//! session store for the session that fences it.
//!
//! ```text
//!   fenced by S ──▶ S, or a later one, is in the store? ── yes: a later process with this store; this one ends
//!                        │ no
//!                        ▼
//!                   two live with one identity: says so to the hub, and opens a session again when that lets it
//! ```

use tideline_common::limits::POLL_WAIT_SECONDS_MAX;
use tideline_common::wire::v1::{Continuity, Fenced, Handover, Refusal, RefusalKind, SessionAnswer};
use tideline_common::{Monotonic, SessionName};

use super::state::{Link, Next, SessionReadReason};
use crate::core::interface::effect::{Effect, Effects};
use crate::core::interface::write::{AgentMode, Enrolled};
use crate::core::sync::gather::SyncError;
use crate::core::sync::mode::HubVerdict;
use crate::core::{Core, Phase};

impl Core {
    pub(super) fn refused(&mut self, now: Monotonic, refusal: &Refusal, out: &mut Effects) {
        let own = self
            .sync
            .session
            .name
            .or(self.sync.session.fenced.map(|fenced| fenced.session))
            .unwrap_or(self.sync.session.persisted);
        if let Some(verdict) = HubVerdict::of(refusal) {
            self.take_verdict(now, verdict, out);
        }
        if refusal.refusal == RefusalKind::SessionUnknown {
            self.sync.session.fenced = None;
            self.session_unknown(now, out);
        }
        if let Some(by) = refusal.fenced_by {
            self.sync.session.newest = self.sync.session.newest.max(by.number);
            // It is told again, and has reported it already.
            let news = self.sync.session.fenced.is_none_or(|fenced| fenced.by != by);
            let fenced = Fenced { session: own, by };
            self.sync.session.fenced = Some(fenced);
            // A set that is being written is accepted first; the next request waits.
            if news && !matches!(self.sync.session.link, Link::Switching) {
                self.sync.session.proves_fenced = true;
                self.sync.session.read_stored_session(SessionReadReason::Fenced(fenced), out);
            }
        }
    }

    pub(super) fn opened(&mut self, now: Monotonic, answer: SessionAnswer, out: &mut Effects) {
        if let Some(Handover { target, name, .. }) = answer.handover {
            return self.become_target(now, Enrolled { target, name }, out);
        }
        if answer.history != Continuity::Whole {
            // Whether or not the session can be stored.
            self.history_broken(now);
        }
        self.sync.session.newest = self.sync.session.newest.max(answer.session.number);
        if answer.outdated {
            // Perhaps another process of this session store has opened it.
            return self.sync.session.read_stored_session(SessionReadReason::Outdated, out);
        }
        let cluster = answer.cluster.clone().or_else(|| self.sync.cluster_identity.cluster());
        out.push(Effect::KeepSession { session: answer.session, cluster });
        self.sync.session.link = Link::Keeping(Box::new(answer));
    }

    /// The session that was offered is stored, or could not be.
    pub(in crate::core) fn session_kept(
        &mut self,
        now: Monotonic,
        result: Result<SessionName, String>,
        out: &mut Effects,
    ) {
        let answer = match std::mem::replace(&mut self.sync.session.link, Link::Off) {
            Link::Keeping(answer) => answer,
            // Whatever came between: the offer is of no use any more.
            link => return self.sync.session.link = link,
        };
        match result {
            Ok(kept) if kept == answer.session => {
                self.sync.session.persisted = kept;
                self.session_usable(now, &answer, out);
            }
            Ok(newer) => self.replaced_by(newer, out),
            Err(_said_by_the_edge) => self.failed(now, Next::Open, None, out),
        }
    }

    /// The session may be used, and is this agent's with its first use.
    fn session_usable(&mut self, now: Monotonic, answer: &SessionAnswer, out: &mut Effects) {
        let SessionAnswer { session, outdated: _, epoch, poll, addresses: _, history, ref cluster, handover: _ } =
            *answer;
        if let Some(cluster) = cluster {
            self.sync.cluster_identity.is_of(cluster.clone());
        }
        self.sync.session.name = Some(session);
        (self.sync.session.fenced, self.sync.session.proves_fenced) = (None, false);
        self.sync.session.settings = poll;
        self.sync.session.wait_max = POLL_WAIT_SECONDS_MAX;
        self.reporting.reports.new_session();
        self.repeat_associated(now);
        if history != Continuity::Whole {
            self.sync.session.succeeded();
            return self.poll(now, out);
        }
        match self.sync.floor() {
            Some(accepted) if epoch < accepted.version.epoch => {
                self.sync.session.sync_errors.found(SyncError::Older);
                self.failed(now, Next::Open, None, out);
            }
            Some(accepted) if epoch > accepted.version.epoch => {
                self.sync.session.succeeded();
                self.ask(now, Box::new(self.sync.session.repair.everything()), out);
            }
            Some(_) | None => {
                self.sync.session.succeeded();
                self.poll(now, out);
            }
        }
    }

    /// Which session is stored by now. One that was not there before was stored by another process.
    pub(in crate::core) fn stored_session_read(
        &mut self,
        now: Monotonic,
        result: Result<SessionName, String>,
        out: &mut Effects,
    ) {
        let why = match std::mem::replace(&mut self.sync.session.link, Link::Off) {
            Link::ReadingStoredSession(why) => why,
            link => return self.sync.session.link = link,
        };
        match (why, result) {
            (_, Err(_said_by_the_edge)) => self.failed(now, Next::Open, None, out),
            (SessionReadReason::Outdated, Ok(persisted)) => {
                self.sync.session.persisted = persisted;
                self.open_session(out);
            }
            (SessionReadReason::Fenced(fenced), Ok(persisted))
                if persisted == fenced.by || persisted.number > fenced.by.number =>
            {
                self.replaced_by(persisted, out);
            }
            (SessionReadReason::Fenced(_), Ok(_)) => self.open_session(out),
        }
    }

    /// Whether a session is being opened in place of one that was used, and there is something to report in it.
    pub(in crate::core) fn renews_session(&self) -> bool {
        let opens =
            matches!(self.sync.session.link, Link::Opening(_) | Link::Keeping(_) | Link::ReadingStoredSession(_));
        self.sync.mode == AgentMode::Active
            && self.sync.session.name.is_none()
            && opens
            && self.reporting.reports.may_part()
    }

    /// A later process has taken over this one's session store.
    fn replaced_by(&mut self, by: SessionName, out: &mut Effects) {
        self.phase = Phase::Ended;
        out.push(Effect::Replaced { by });
    }
}
