//! What an attempt at an entry leads to: it is applied, it failed, or it is tried again after a while.
//!
//! An entry is *tried* once any attempt at it has come to something, well or not, or has been put off for so long that others
//! need not wait for it. Waves of entries, and removals after them, wait for that and for no success; a Placement that wants
//! more has gates.

use std::sync::Arc;
use std::time::Duration;

use tideline_common::wire::v1::{Progress, Terminal};
use tideline_common::{ApplyPolicy, Entry, Monotonic, ObjectKey, Reason};

use super::aimd::HOLD_MAX;
use super::in_flight::FollowUp;
use crate::core::Core;
use crate::core::decide::plan::is_made_once;
use crate::core::interface::op_result::Failure;
use crate::core::interface::write::AppliedRecord;
use crate::core::model::object::Outcome;

/// Wait after a failed operation, doubled each time up to the second.
pub(in crate::core) const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));
/// The longest wait after a throttled operation: the limiter keeps the agent from asking more often than the API server can
/// bear.
const RETRY_THROTTLED_MAX: Duration = Duration::from_secs(30);
/// After so many tries in a row an entry counts as tried, and delays no wave, as one for which the API server never has
/// time, or whose object somebody else recreates each time.
pub(in crate::core) const TRIES_MAX: u32 = 5;

/// Whether an entry that has failed so often, or is to wait for so long, delays others no longer.
pub(in crate::core) fn is_delayed(failures: u32, not_before: Option<Duration>) -> bool {
    failures >= TRIES_MAX || not_before.is_some_and(|wait| wait > HOLD_MAX)
}

impl Core {
    /// Nothing is to be done about an assigned object.
    pub(in crate::core) fn stands_as_assigned(&mut self, now: Monotonic, key: &ObjectKey) {
        let Some(object) = self.model.objects.get_mut(key) else { return };
        object.work.succeed();
        object.drift = None;
        if let Some(record) = object.record.as_ref().filter(|record| record.drifted.is_some()) {
            let record = AppliedRecord { drifted: None, local: Arc::default(), ..record.clone() };
            self.model.set_record(key, record);
        }
        self.stands_applied(now, key);
        self.resume_removals(key);
    }

    /// The entry was tried, with this outcome.
    pub(in crate::core) fn conclude(
        &mut self,
        now: Monotonic,
        key: &ObjectKey,
        progress: Progress,
        reason: Option<Reason>,
        message: String,
    ) {
        self.say(now, key, Outcome { progress, reason, message });
        self.mark_tried(key);
    }

    /// Has the outcome of an entry reported, and others tried that were refused as it was.
    fn say(&mut self, now: Monotonic, key: &ObjectKey, outcome: Outcome) {
        self.model.lacks_bodies |= outcome.reason == Some(Reason::BodyMissing);
        let failed = outcome.reason.filter(|_| outcome.progress == Progress::Failed);
        let refusal = |reason| (failed == Some(reason)).then_some(&*outcome.message);
        let let_through = self.model.forbidden_kinds.heard(key, refusal(Reason::Forbidden))
            | self.model.not_admitted.heard(key, refusal(Reason::Denied));
        if let_through && outcome.progress == Progress::Applied {
            let next = [self.model.forbidden_kinds.take_next(key), self.model.not_admitted.take_next(key)];
            for key in next.into_iter().flatten() {
                self.enqueue(&key);
            }
        }
        if let Some(object) = self.model.objects.get_mut(key)
            && object.outcome != outcome
        {
            object.outcome = outcome;
            self.dirty(key, now);
        }
    }

    /// It was throttled, which says nothing about the entry: it is tried again.
    pub(in crate::core) fn throttled(&mut self, now: Monotonic, key: &ObjectKey, failure: Failure) -> FollowUp {
        let Failure { reason, message, retry_after, fate: _ } = failure;
        self.say(now, key, Outcome { progress: Progress::Pending, reason: Some(reason), message });
        FollowUp::BackOff(retry_after)
    }

    /// The entry delays no later wave any more.
    pub(in crate::core) fn mark_tried(&mut self, key: &ObjectKey) {
        if let (Some(object), Some(entry)) = (self.model.objects.get_mut(key), self.model.desired.get(key))
            && object.work.mark_tried()
        {
            self.work.tried(entry.wave);
        }
        if let Some(progress) = self.model.objects.get(key).map(|object| object.outcome.progress) {
            self.audit.patrol.concluded(key, progress);
        }
        self.guards.gates.update(&self.model, key);
    }

    /// Has an object tried again after a while, longer each time. One that was tried often, or is to wait for long, delays no
    /// wave meanwhile.
    pub(in crate::core) fn retry(&mut self, now: Monotonic, key: &ObjectKey, not_before: Option<Duration>) {
        let Some(object) = self.model.objects.get_mut(key) else { return };
        self.work.dequeue(object, key);
        object.work.fail();
        let failures = object.work.failures();
        let delayed = is_delayed(failures, not_before);
        let throttled = object.outcome.reason == Some(Reason::Throttled);
        let longest = if throttled { RETRY_THROTTLED_MAX } else { RETRY.1 };
        let wait = self.jitter.half(failures, RETRY.0, longest);
        let turn = self.model.forbidden_kinds.next_turn(now, key, wait);
        let turn = turn.max(self.model.not_admitted.next_turn(now, key, wait)).unwrap_or(now + wait);
        self.work.back_off(object, key, turn.max(now + not_before.unwrap_or_default()));
        if delayed {
            self.mark_tried(key);
        }
        self.reporting.kube_events.failed(&self.model, now, key);
    }

    /// Remembers that a create-only object was created.
    pub(in crate::core) fn note_created(&mut self, entry: &Entry, policy: &ApplyPolicy) {
        if is_made_once(entry, policy) {
            self.guards.ran.note(&mut self.model, &entry.key, entry.source.uid.clone(), Terminal::CreatedOnce);
        }
    }
}
