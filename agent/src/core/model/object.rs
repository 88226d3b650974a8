//! What is known of one object.

use std::sync::Arc;

use tideline_common::health::Health;
use tideline_common::wire::v1::{Progress, Terminal};
use tideline_common::{Digest, Entry, Monotonic, Reason, Uid};

use super::live_status::{LiveStatus, Status};
use super::presence::Presence;
use super::seen::Seen;
use super::turn::Turn;
use super::work_state::{AtRest, WorkState};
use crate::core::interface::effect::ListId;
use crate::core::interface::write::AppliedRecord;

/// One place at the cluster: assigned, or ours, or to be removed.
#[derive(Debug, Default)]
pub(in crate::core) struct Object {
    pub(in crate::core) record: Option<AppliedRecord>,
    /// Writes of the record that are not on disk yet; what they say is not reported before.
    pub(in crate::core) unrecorded: u32,
    /// What is known to stand there.
    pub(in crate::core) presence: Presence,
    /// When it is looked at, what is under way, and how that went.
    pub(in crate::core) work: WorkState,
    /// Corrections in a row, and when the last was made: somebody may be undoing them.
    pub(in crate::core) corrections: (u32, Monotonic),
    pub(in crate::core) outcome: Outcome,
    /// Something that happened once, and for which source.
    pub(in crate::core) terminal: Option<(Uid, Terminal)>,
    pub(in crate::core) live: Live,
    /// The metadata list that had it last.
    pub(in crate::core) listed_in: ListId,
    /// In what it differs from what was applied, where that is only to be reported.
    pub(in crate::core) drift: Option<Box<Drift>>,
    /// What the hub acknowledged last.
    pub(in crate::core) told: Option<ReportDigest>,
    /// The hub may have been told that it stands there for this source, and that nothing says why.
    pub(in crate::core) unexplained: Option<Uid>,
    /// What it stands as when it was compacted last. Of a set that changed whole it is compacted as that again, until its
    /// turn has come.
    pub(in crate::core) stood_as: Option<Arc<Entry>>,
}

/// How the last try went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) struct Outcome {
    pub(in crate::core) progress: Progress,
    pub(in crate::core) reason: Option<Reason>,
    pub(in crate::core) message: String,
}

impl Default for Outcome {
    fn default() -> Self {
        Self { progress: Progress::Pending, reason: None, message: String::new() }
    }
}

/// What is reported of the live object.
#[derive(Debug, Default)]
pub(in crate::core) struct Live {
    pub(in crate::core) health: Health,
    pub(in crate::core) message: String,
    /// The source generation that the status is about.
    pub(in crate::core) observed_generation: Option<i64>,
    pub(in crate::core) status: LiveStatus,
}

/// A report as 64-bit digests. A change goes unnoticed with a probability of 2^-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct ReportDigest {
    pub(in crate::core) facts: u64,
    pub(in crate::core) status: Option<u64>,
}

impl Object {
    /// What is seen there.
    pub(in crate::core) const fn seen(&self) -> Option<&Seen> {
        self.presence.seen()
    }

    /// What is known to stand there is not believed any more, until it is looked at.
    pub(in crate::core) fn doubt(&mut self) {
        self.presence.doubt();
        self.forget_live();
    }

    /// Nothing is seen there any more.
    pub(in crate::core) fn unsee(&mut self) {
        self.presence.hide();
        self.forget_live();
    }

    /// What stands there is earlier than what was seen: the cluster was set back. How far the local controller got is not known.
    pub(in crate::core) fn set_back(&mut self) {
        self.presence.hide();
        self.live.observed_generation = None;
    }

    /// The object of this UID is gone. Returns whether it was seen there.
    pub(in crate::core) fn vanished(&mut self, uid: &Uid) -> bool {
        let was_seen = self.presence.vanish(uid);
        if was_seen {
            self.forget_live();
        }
        was_seen
    }

    /// What is said of a live object is said of what is seen. How far the local controller got is known of the source.
    fn forget_live(&mut self) {
        self.live = Live { observed_generation: self.live.observed_generation, ..Live::default() };
    }

    /// What happened once to it, as this source's.
    pub(in crate::core) fn happened(&self, source: &Uid) -> Option<Terminal> {
        self.terminal.as_ref().filter(|(of, _)| of == source).map(|(_, fact)| *fact)
    }

    /// Under which wave it is in the queue and what the hub was told, if nothing else is known of it.
    pub(in crate::core) fn blank(&self) -> Option<(Option<i32>, Option<ReportDigest>)> {
        let Self {
            record: None,
            unrecorded: 0,
            presence,
            work,
            corrections: (0, Monotonic::START),
            outcome: Outcome { progress: Progress::Pending, reason: None, message },
            terminal: None,
            live: Live { health: Health::Unknown, message: said, observed_generation: None, status },
            listed_in: ListId(0),
            drift: None,
            told,
            unexplained: None,
            stood_as: _,
        } = self
        else {
            return None;
        };
        let queued = match work.at_rest()? {
            AtRest { turn: Turn::Idle, tried: false, failures: 0 } => None,
            AtRest { turn: Turn::Queued { wave }, tried: false, failures: 0 } => Some(wave),
            AtRest { turn: Turn::Idle | Turn::Queued { .. } | Turn::Waiting { .. }, .. } => return None,
        };
        let unseen = presence.is_plain()
            && !presence.is_unshown()
            && presence.seen().is_none()
            && matches!(status.get(), Status::None);
        (unseen && message.is_empty() && said.is_empty()).then_some((queued, *told))
    }

    /// Whether the object of this UID is what was seen here, or what the journal knows.
    pub(in crate::core) fn is_known_as(&self, uid: &Uid) -> bool {
        let seen = self.seen().map(|seen| &seen.uid);
        let recorded = self.record.as_ref().map(|record| &record.uid);
        seen == Some(uid) || recorded == Some(uid)
    }

    /// The local controller has seen our last apply: what it says now is about that source generation.
    pub(in crate::core) fn translate_generation(&mut self) {
        if let (Some(record), Some(seen)) = (&self.record, self.presence.seen())
            && record.uid == seen.uid
            && seen.observed_generation.is_some_and(|observed| observed >= record.generation)
        {
            self.live.observed_generation = Some(record.source_generation);
        }
    }
}

/// What was found the last time.
#[derive(Debug)]
pub(in crate::core) struct Drift {
    pub(in crate::core) of: Fingerprint,
    pub(in crate::core) message: String,
}

/// What a change of ours would change.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::core) struct Fingerprint {
    pub(in crate::core) managed: Option<Digest>,
    pub(in crate::core) generation: i64,
    /// Where the kind has no generation: who has taken a field may go on changing it.
    pub(in crate::core) version: Option<Arc<str>>,
    pub(in crate::core) labelled: bool,
    pub(in crate::core) marked: Option<Digest>,
}

/// Whose agent this is.
pub(in crate::core) use tideline_common::Owner as Me;

/// Whether it failed for what others of its kind in its namespace may fail for as well: a webhook, or no answer.
pub(in crate::core) fn may_be_stuck(outcome: &Outcome) -> bool {
    outcome.progress == Progress::Failed
        && matches!(outcome.reason, Some(Reason::Webhook | Reason::Denied | Reason::Unavailable))
}
