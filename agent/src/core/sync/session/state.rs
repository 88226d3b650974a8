//! How far the conversation with the hub has come.

use std::collections::BTreeMap;
use std::time::Duration;

use tideline_common::limits::{POLL_WAIT_SECONDS_MAX, POLL_WAIT_SECONDS_MIN};
use tideline_common::wire::v1::{Fenced, PollSettings, SessionAnswer, TargetCondition};
use tideline_common::{Monotonic, SessionName, SessionNumber};

use super::repair::Repair;
use super::sync_errors::SyncErrors;
use crate::core::interface::effect::{Effect, Effects, RequestId, Timer};
use crate::core::sync::fetch::Fetch;
use crate::core::sync::gather::{Gather, SyncError};

/// Wait after the hub refused, doubled each time up to the second: only a person changes that.
pub(super) const RETRY_REFUSED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));

/// Polls that must succeed in a row before a longer one is tried again.
const POLLS_BEFORE_LONGER: u32 = 100;

#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing, independent of the others, is so")]
#[derive(Debug)]
pub(in crate::core) struct Session {
    pub(super) link: Link,
    pub(super) requests: RequestIds,
    /// The session that is open; none while another is being opened.
    pub(in crate::core) name: Option<SessionName>,
    /// The newest that is stored.
    pub(super) persisted: SessionName,
    /// The session of this process when another was found in use that is not in the session store.
    pub(super) fenced: Option<Fenced>,
    /// It reports that to the hub without being asked; a refusal of that alone is no further fencing.
    pub(in crate::core) proves_fenced: bool,
    /// The facts that are sent with it changed since.
    pub(super) untold: bool,
    /// The newest that it has heard of.
    pub(super) newest: SessionNumber,
    pub(super) settings: PollSettings,
    /// The longest wait that went well, in seconds.
    pub(super) wait_max: u64,
    pub(super) polls: u32,
    pub(super) failures: u32,
    /// How often a set failed since there was a complete one, whatever else went well meanwhile.
    pub(super) failed_sets: BTreeMap<SetFailure, u32>,
    pub(super) repair: Repair,
    pub(super) sync_errors: SyncErrors,
    /// Bodies came for a set that was not accepted: perhaps the next one does not name them.
    pub(super) strays: bool,
    /// The hub's last answer was that it does not know this target, whoever has fenced it before.
    pub(in crate::core) hub_unknown: bool,
    /// When an agent that is not active asks next.
    pub(super) ask_at: Monotonic,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            link: Link::Off,
            requests: RequestIds::default(),
            name: None,
            persisted: SessionName::default(),
            fenced: None,
            proves_fenced: false,
            untold: false,
            newest: SessionNumber::default(),
            settings: PollSettings { wait_seconds: POLL_WAIT_SECONDS_MAX, stale_after_seconds: 60 },
            wait_max: POLL_WAIT_SECONDS_MAX,
            polls: 0,
            failures: 0,
            failed_sets: BTreeMap::new(),
            repair: Repair::default(),
            sync_errors: SyncErrors::default(),
            strays: false,
            hub_unknown: false,
            ask_at: Monotonic::START,
        }
    }
}

#[derive(Debug)]
pub(super) enum Link {
    Off,
    Enrolling(RequestId),
    Opening(RequestId),
    /// The offered session is being stored; it is used only after that.
    Keeping(Box<SessionAnswer>),
    /// The session store is being read, for this reason.
    ReadingStoredSession(SessionReadReason),
    Polling {
        id: RequestId,
        sent: Monotonic,
        gather: Box<Gather>,
    },
    Gathering {
        id: RequestId,
        gather: Box<Gather>,
    },
    Fetching {
        fetch: Box<Fetch>,
        paused: bool,
    },
    Switching,
    Backoff(Next),
}

/// Why a set failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SetFailure {
    Error(SyncError),
    /// The hub has moved on: the delta since what was gathered, or bodies that it names, are no longer available.
    Outdated,
    /// Bodies came that are of no use.
    NoBodies,
}

/// Why the session store is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum SessionReadReason {
    /// The hub knows a newer session than this process.
    Outdated,
    /// This session fences this process.
    Fenced(Fenced),
}

/// Where to go on after a pause.
#[derive(Debug)]
pub(super) enum Next {
    Enrol,
    Open,
    Poll,
    Gather(Box<Gather>),
}

/// Numbers requests, each once in a run.
#[derive(Debug, Default)]
pub(super) struct RequestIds(pub(super) u64);

impl RequestIds {
    pub(super) fn next(&mut self) -> RequestId {
        self.0 += 1;
        RequestId(self.0)
    }
}

impl Session {
    /// Goes on from this stored session.
    pub(in crate::core) fn since(persisted: SessionName) -> Self {
        Self { persisted, newest: persisted.number, ..Self::default() }
    }

    pub(in crate::core) fn request(&mut self) -> RequestId {
        self.requests.next()
    }

    /// The new target is being written; a session follows.
    pub(in crate::core) fn switching(&mut self) {
        self.name = None;
        self.link = Link::Switching;
    }

    pub(in crate::core) fn stale_after(&self) -> Duration {
        Duration::from_secs(self.settings.stale_after_seconds.max(3))
    }

    /// How long the hub is given to answer a poll.
    pub(in crate::core) fn poll_wait(&self) -> Duration {
        Duration::from_secs(self.settings.wait_seconds.min(self.wait_max).max(POLL_WAIT_SECONDS_MIN))
    }

    /// Something is missing that only the hub has.
    pub(in crate::core) fn distrust(&mut self) {
        self.repair.distrust();
    }

    /// Whether bodies may be stored that no accepted set names; true once.
    pub(in crate::core) fn take_strays(&mut self) -> bool {
        std::mem::take(&mut self.strays)
    }

    /// Whether a token is shown to the hub now.
    pub(in crate::core) const fn is_enrolling(&self) -> bool {
        matches!(self.link, Link::Enrolling(_))
    }

    pub(super) fn back_off(&mut self, at: Monotonic, next: Next, out: &mut Effects) {
        self.link = Link::Backoff(next);
        out.push(Effect::SetTimer { timer: Timer::Link, at });
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Nothing of the hub's set is refused, or missing here.
    pub(super) fn has_whole_set(&mut self) {
        self.succeeded();
        self.failed_sets.clear();
        self.sync_errors = SyncErrors::default();
        self.repair.has_whole_set();
    }

    /// The faults of the hub's answers, counted.
    pub(in crate::core) fn conditions(&self) -> Vec<TargetCondition> {
        self.sync_errors.conditions()
    }

    pub(super) fn polled_well(&mut self) {
        self.polls += 1;
        if self.polls >= POLLS_BEFORE_LONGER {
            self.polls = 0;
            self.wait_max = (self.wait_max * 2).min(POLL_WAIT_SECONDS_MAX);
        }
    }

    pub(super) fn count_failed_set(&mut self, why: SetFailure) -> u32 {
        let count = self.failed_sets.entry(why).or_default();
        *count = count.saturating_add(1);
        *count
    }

    pub(super) fn read_stored_session(&mut self, why: SessionReadReason, out: &mut Effects) {
        self.link = Link::ReadingStoredSession(why);
        out.push(Effect::ReadStoredSession);
    }
}
