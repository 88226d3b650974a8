//! What the end of an operation means.

use std::fmt::Write as _;
use std::sync::Arc;

use tideline_common::wire::v1::Progress;
use tideline_common::{ApplyPolicy, Entry, Monotonic, ObjectKey, Origin, Reason, Tombstone, Uid};

use super::conclude::{TRIES_MAX, is_delayed};
use super::in_flight::{FollowUp, InFlight, Purpose};
use super::queue::Landed;
use super::removal_steps::LiveRead;
use crate::core::Core;
use crate::core::decide::plan::{mark_of, record_of};
use crate::core::decide::remove::{Authorised, Inspection, may_replace};
use crate::core::decide::set_back::read_by_itself;
use crate::core::interface::effect::{Effects, Op, OpId};
use crate::core::interface::observed::Observed;
use crate::core::interface::op_result::{
    Applied, Created, Deleted, Failure, Fate, FieldConflict, Inspected, NotDone, OpResult, Orphaned,
    OwnershipTransferred,
};
use crate::core::interface::write::{LeftToOthers, LocalField};
use crate::core::model::removal::is_of_api_server;
use crate::core::model::seen::Seen;

/// So often an object may be found to be another than was meant before that is a failure: once where somebody replaced it, and
/// again where that was seen late.
const MISSES_MAX: u32 = 3;
const MISSED: &str = "the object was replaced or deleted between read and write, several times in a row";

/// Fields named in a message: what fits its bound with room for long paths.
const CONFLICTS_NAMED_MAX: usize = 8;

/// By which kind of write an object is as it is.
#[derive(Clone, Debug)]
struct Write {
    origin: Origin,
    posted: bool,
    /// Fields that were left as somebody changed them.
    local: Arc<[LocalField]>,
}

/// How a step of a removal ended.
#[derive(Debug)]
pub(in crate::core) enum Step {
    /// No object exists.
    Gone,
    Orphaned,
    Finalizing,
    Inspected {
        foreign: u64,
        example: Option<String>,
        ours: u64,
        itself: Box<Observed>,
    },
}

impl From<Deleted> for Step {
    fn from(deleted: Deleted) -> Self {
        match deleted {
            Deleted::Gone => Self::Gone,
            Deleted::Finalizing => Self::Finalizing,
        }
    }
}

impl From<Orphaned> for Step {
    fn from(orphaned: Orphaned) -> Self {
        match orphaned {
            Orphaned::Done => Self::Orphaned,
            Orphaned::Gone => Self::Gone,
        }
    }
}

impl From<Inspected> for Step {
    fn from(inspected: Inspected) -> Self {
        match inspected {
            Inspected::Holds { foreign, example, ours, itself } => Self::Inspected { foreign, example, ours, itself },
            Inspected::Gone => Self::Gone,
        }
    }
}

impl Core {
    /// An operation has ended: what follows for its object and its removal, and whatever waited for its end.
    pub(in crate::core) fn executed(&mut self, now: Monotonic, id: OpId, result: OpResult, out: &mut Effects) {
        let Some(Landed { in_flight, result, freed }) = self.work.land(now, id, result, &mut self.jitter) else {
            return;
        };
        for waiting in freed {
            self.enqueue(&waiting);
        }
        let InFlight { key, purpose, begun: _, seen } = in_flight;
        if let Some(object) = self.model.objects.get_mut(&key) {
            object.work.end();
        }
        self.may_be_set_back(&key, seen.as_ref(), &result);
        let removal = purpose.removal().map(|(tombstone, _)| tombstone.clone());
        let follow_up = self.ended(now, &key, purpose, result, out);
        match (follow_up, removal) {
            (FollowUp::Requeue, _) => self.enqueue(&key),
            (FollowUp::BackOff(not_before), None) => self.retry(now, &key, not_before),
            (FollowUp::BackOff(not_before), Some(tombstone)) => {
                self.retry_removal(now, &tombstone, not_before);
                // What is refused is waited for no longer: that is not over soon.
                let passing = self.model.removals.get(&tombstone).filter(|removal| removal.waits_for_api_server());
                if let Some((removal, at)) = passing.and_then(|removal| Some((removal, removal.retry_at()?))) {
                    self.work.tries_wave_again(removal.wave(), at);
                }
                self.enqueue_untried(&key);
            }
            (FollowUp::Stale, None) => self.missed(now, &key),
            (FollowUp::Stale, Some(tombstone)) => self.removal_missed(now, &tombstone, out),
            (FollowUp::NextStepBegun | FollowUp::Concluded, _) => {}
        }
        self.resume_removals(&key);
        self.forget_if_empty(&key);
    }

    /// An entry that was accepted while an operation on its object was in flight had to wait for the end of that. A removal
    /// that backs off is no reason to wait longer: removals wait until every entry has been tried.
    fn enqueue_untried(&mut self, key: &ObjectKey) {
        if self.model.desired.get(key).is_some()
            && self.model.objects.get(key).is_some_and(|object| object.work.is_stranded())
        {
            self.enqueue_entry(key);
        }
    }

    /// The operation ended so.
    fn ended(
        &mut self,
        now: Monotonic,
        key: &ObjectKey,
        purpose: Purpose,
        result: OpResult,
        out: &mut Effects,
    ) -> FollowUp {
        match (purpose, result) {
            (Purpose::Create { entry, policy }, OpResult::Create(result)) => self.created(now, &entry, &policy, result),
            (Purpose::Apply { entry, policy, uid, origin, local }, OpResult::Apply(result)) => {
                let write = Write { origin, posted: false, local };
                self.applied(now, (&entry, &policy, &uid), write, result, out)
            }
            (Purpose::TransferOwnership { entry, policy, uid, origin }, OpResult::TransferOwnership(result)) => {
                // Which managedFields entry has the mark by now is for the next apply to find out, if there is one.
                let write = Write { origin, posted: true, local: Arc::default() };
                self.ownership_transferred(now, (&entry, &policy, &uid), write, result, out)
            }
            (Purpose::ReTarget(seen), OpResult::ReTarget(result)) => self.mark_written(now, key, &seen, result),
            (Purpose::DryRun { entry, policy, uid }, OpResult::DryRunCreate(result)) => {
                self.dry_run_ended(now, &entry, &policy, &uid, result, out)
            }
            (Purpose::Replace, OpResult::Delete(result)) => self.replaced(now, key, result),
            (Purpose::Remove { tombstone, .. }, OpResult::Delete(result)) => {
                self.step_ended(now, &tombstone, result.map(Step::from), out)
            }
            (Purpose::Remove { tombstone, .. }, OpResult::Orphan(result)) => {
                self.step_ended(now, &tombstone, result.map(Step::from), out)
            }
            (Purpose::Remove { tombstone, .. }, OpResult::Inspect(result)) => {
                self.step_ended(now, &tombstone, result.map(Step::from).map_err(NotDone::from), out)
            }
            (Purpose::ReadForRemoval { tombstone, .. }, OpResult::Get(result)) => {
                self.removal_read(now, &tombstone, result, out)
            }
            (Purpose::Read(what_for), OpResult::Get(result)) => self.read(now, key, what_for, result),
            (Purpose::Compare, OpResult::Compare(result)) => self.compared(now, key, result),
            (Purpose::Verify { entry, origin }, OpResult::Compare(result)) => {
                self.verified(now, &entry, origin, result)
            }
            // The executor is wrong; what it did is found when it is tried again.
            (Purpose::Remove { tombstone, .. } | Purpose::ReadForRemoval { tombstone, .. }, _) => {
                self.removed(now, &tombstone, Err(ended_as_another().into()), out)
            }
            (
                Purpose::Create { .. }
                | Purpose::Apply { .. }
                | Purpose::TransferOwnership { .. }
                | Purpose::ReTarget(_)
                | Purpose::DryRun { .. }
                | Purpose::Replace
                | Purpose::Read(_)
                | Purpose::Compare
                | Purpose::Verify { .. },
                _,
            ) => self.operation_failed(now, key, ended_as_another()),
        }
    }

    /// An operation on an assigned object failed.
    pub(in crate::core) fn operation_failed(&mut self, now: Monotonic, key: &ObjectKey, failure: Failure) -> FollowUp {
        if failure.reason == Reason::Throttled {
            return self.throttled(now, key, failure);
        }
        let Failure { reason, message, retry_after, fate: _ } = failure;
        self.conclude(now, key, Progress::Failed, Some(reason), message);
        FollowUp::BackOff(retry_after)
    }

    /// A creation ended. It may have found an object in its way.
    fn created(
        &mut self,
        now: Monotonic,
        entry: &Arc<Entry>,
        policy: &Arc<ApplyPolicy>,
        result: Result<Created, Failure>,
    ) -> FollowUp {
        let key = &entry.key;
        let creation = Tombstone { key: key.clone(), source: entry.source.uid.clone() };
        let is_known = self.model.creation_ended(&creation, &result);
        let follow_up = match result {
            Ok(Created::Vanished { template }) => {
                self.model.may_have_run(entry, template);
                self.guards.ran.may_have_run(&mut self.model, key, &entry.source.uid);
                FollowUp::Requeue
            }
            Ok(Created::Made(observed)) => {
                if self.model.assigns(key, &entry.source.uid) {
                    // Nothing existed that could have been orphaned. An object of a source that left meanwhile is removed as
                    // its own policy says.
                    self.nothing_overtaken(now, key);
                }
                let write = Write { origin: Origin::Created, posted: true, local: Arc::default() };
                self.stands(now, entry, policy, (write, None), *observed, &[])
            }
            Ok(Created::Exists(observed)) => {
                read_by_itself(&mut self.model, key, &observed);
                let Some(object) = self.model.objects.get_mut(key) else { return FollowUp::Requeue };
                object.presence.found_by_creation(Seen::from(&*observed));
                let failures = object.work.failures();
                // That it is another's, which was said of what stands there, is still so.
                let said = matches!(
                    object.outcome.reason,
                    Some(Reason::Unmanaged | Reason::Conflict | Reason::Copy | Reason::AgentTooOld)
                );
                if failures >= TRIES_MAX && !said && self.model.desired.get(key) == Some(entry) {
                    let message = "another client creates this object each time before the agent does".to_owned();
                    self.conclude(now, key, Progress::Failed, Some(Reason::Conflict), message);
                }
                if failures > 0 { FollowUp::BackOff(None) } else { FollowUp::Requeue }
            }
            Err(failure) => {
                // An API server that was not heard may have made it.
                if failure.fate == Fate::Unknown
                    && let Some(object) = self.model.objects.get_mut(key)
                {
                    object.presence.may_be_unshown();
                }
                self.write_failed(now, entry, failure)
            }
        };
        // After what is known: the journal may be cut between the two.
        if is_known {
            self.model.forget_creation(&creation);
        }
        follow_up
    }

    /// An apply ended.
    fn applied(
        &mut self,
        now: Monotonic,
        (entry, policy, onto): (&Arc<Entry>, &Arc<ApplyPolicy>, &Uid),
        write: Write,
        result: Result<Applied, NotDone>,
        out: &mut Effects,
    ) -> FollowUp {
        match result {
            Ok(Applied { observed, conflicts }) => {
                self.stands(now, entry, policy, (write, Some(onto)), *observed, &conflicts)
            }
            Err(NotDone::Stale) => self.replaced_meanwhile(&entry.key, onto),
            Err(NotDone::Failed(failure)) => self.change_failed(now, (entry, policy, onto), failure, out),
        }
    }

    fn ownership_transferred(
        &mut self,
        now: Monotonic,
        (entry, policy, onto): (&Arc<Entry>, &Arc<ApplyPolicy>, &Uid),
        write: Write,
        result: Result<OwnershipTransferred, NotDone>,
        out: &mut Effects,
    ) -> FollowUp {
        match result {
            Ok(OwnershipTransferred::Marked(observed)) => {
                self.stands(now, entry, policy, (write, Some(onto)), *observed, &[])
            }
            // Somebody has deleted the object that was to be adopted.
            Ok(OwnershipTransferred::Finalizing) => self.finalizes(now, &entry.key),
            Err(NotDone::Stale) => self.replaced_meanwhile(&entry.key, onto),
            Err(NotDone::Failed(failure)) => self.change_failed(now, (entry, policy, onto), failure, out),
        }
    }

    fn finalizes(&mut self, now: Monotonic, key: &ObjectKey) -> FollowUp {
        self.conclude(now, key, Progress::Pending, Some(Reason::Finalizing), String::new());
        FollowUp::BackOff(None)
    }

    /// The object was replaced before it was changed, or is gone.
    fn replaced_meanwhile(&self, key: &ObjectKey, onto: &Uid) -> FollowUp {
        // What is there instead may have been seen meanwhile, and the watch would not tell of it again.
        if self.model.shows_another(key, onto) { FollowUp::Requeue } else { FollowUp::Stale }
    }

    fn change_failed(
        &mut self,
        now: Monotonic,
        (entry, policy, onto): (&Arc<Entry>, &Arc<ApplyPolicy>, &Uid),
        failure: Failure,
        out: &mut Effects,
    ) -> FollowUp {
        let current = self.model.desired.get(&entry.key) == Some(entry);
        if current && failure.reason == Reason::Immutable && self.dry_run(now, entry, policy, onto, out) {
            return FollowUp::NextStepBegun;
        }
        self.write_failed(now, entry, failure)
    }

    /// A write failed for a reason of its own.
    fn write_failed(&mut self, now: Monotonic, entry: &Arc<Entry>, failure: Failure) -> FollowUp {
        let key = &entry.key;
        if self.model.desired.get(key) != Some(entry) {
            // It changed, or was deleted, while this was under way.
            return FollowUp::Requeue;
        }
        if failure.reason == Reason::Vanished {
            self.model.has_run_as_it_is(entry);
            return FollowUp::Requeue;
        }
        if failure.reason == Reason::BodyMissing {
            self.body_is_missing(entry);
        }
        self.operation_failed(now, key, failure)
    }

    /// It is fetched again, whatever it was needed for.
    pub(in crate::core) fn body_is_missing(&mut self, entry: &Entry) {
        self.model.inputs.lost(&entry.input);
        self.sync.session.distrust();
    }

    /// The object is gone, or was replaced: evaluated again, at once if nothing has failed before. What is missed each time
    /// counts as tried: nothing waits for it any longer.
    fn missed(&mut self, now: Monotonic, key: &ObjectKey) {
        let Some(object) = self.model.objects.get_mut(key) else { return };
        object.doubt();
        let failures = object.work.failures();
        if failures >= MISSES_MAX {
            self.conclude(now, key, Progress::Failed, Some(Reason::Conflict), MISSED.to_owned());
            return self.retry(now, key, None);
        }
        if failures > 0 {
            return self.retry(now, key, None);
        }
        object.work.fail_at_least(1);
        self.enqueue(key);
    }

    /// An object is as its entry says; the journal is to know.
    fn stands(
        &mut self,
        now: Monotonic,
        entry: &Arc<Entry>,
        policy: &ApplyPolicy,
        (write, onto): (Write, Option<&Uid>),
        observed: Observed,
        conflicts: &[FieldConflict],
    ) -> FollowUp {
        let key = &entry.key;
        if onto.is_none() {
            self.guards.ran.runs_anew(&mut self.model, key, &entry.source.uid);
        }
        let mut record = record_of(entry, &Seen::from(&observed), write.origin, write.posted);
        record.left = left_to_others(conflicts, &observed).map(Arc::new);
        let object = self.model.objects.get(key);
        let former = object.as_ref().and_then(|object| object.record.as_ref());
        let known = former.filter(|former| former.uid == record.uid).and_then(|former| former.template);
        record.template = observed.template.or(known);
        if !write.local.is_empty() {
            // Fields left to others are still to be reported; a comparison finds them.
            record.local = write.local;
            record.drifted = former.and_then(|former| former.drifted.clone());
        }
        drop(object);
        if write.origin == Origin::Adopted {
            self.reporting.associates.adopted(key);
        }
        let fact = observed.terminal;
        self.see(key, observed);
        self.model.set_record(key, record);
        // Whatever mark the answer has by now: it was written for this source.
        if let Some(fact) = fact {
            self.guards.ran.note(&mut self.model, key, entry.source.uid.clone(), fact);
        }
        self.note_created(entry, policy);
        self.dirty(key, now);
        if self.model.desired.get(key) == Some(entry) {
            self.succeeded(now, key);
        }
        if key.kind.is_namespace() {
            self.wake_namespace(&key.name);
        }
        // It may have changed while this was under way, and what was seen meanwhile may be later than this write.
        FollowUp::Requeue
    }

    fn succeeded(&mut self, now: Monotonic, key: &ObjectKey) {
        if let Some(object) = self.model.objects.get_mut(key) {
            object.work.succeed();
        }
        if let Some(left) = self.stands_applied(now, key) {
            self.reporting.kube_events.record(&self.model, now, key, Reason::FieldConflict, left.message.clone());
        }
    }

    /// An object is as it should be, except for fields left to others, which are returned.
    pub(in crate::core) fn stands_applied(&mut self, now: Monotonic, key: &ObjectKey) -> Option<Arc<LeftToOthers>> {
        let left = self.model.objects.get(key).and_then(|object| object.record.as_ref()?.left.clone());
        let message = left.as_ref().map(|left| left.message.clone()).unwrap_or_default();
        self.conclude(now, key, Progress::Applied, left.as_ref().map(|_| Reason::FieldConflict), message);
        left
    }

    /// Finds out whether an immutable object could be created again, if it may be deleted for that.
    fn dry_run(
        &mut self,
        now: Monotonic,
        entry: &Arc<Entry>,
        policy: &Arc<ApplyPolicy>,
        uid: &Uid,
        out: &mut Effects,
    ) -> bool {
        let Some((me, _)) = self.model.me().zip(self.may_replace(entry, policy, uid)) else { return false };
        let mark = Arc::new(mark_of(me, entry, policy, Origin::Created));
        let op = Op::DryRunCreate { entry: Arc::clone(entry), policy: Arc::clone(policy), mark };
        let purpose = Purpose::DryRun { entry: Arc::clone(entry), policy: Arc::clone(policy), uid: uid.clone() };
        self.execute(now, &entry.key, purpose, op, out);
        true
    }

    fn may_replace(&self, entry: &Entry, policy: &ApplyPolicy, uid: &Uid) -> Option<Authorised> {
        // While history is broken nothing is deleted, not even to be created again.
        if !self.may_remove() || self.sync.is_broken() || self.model.is_set_back_at(&entry.key) {
            return None;
        }
        let object = self.model.objects.get(&entry.key)?;
        may_replace(entry, policy, (object.record.as_ref(), object.happened(&entry.source.uid)), uid)
    }

    /// An immutable object is deleted only if nothing else keeps it from being as its source says.
    fn dry_run_ended(
        &mut self,
        now: Monotonic,
        entry: &Arc<Entry>,
        policy: &ApplyPolicy,
        uid: &Uid,
        result: Result<(), Failure>,
        out: &mut Effects,
    ) -> FollowUp {
        let key = &entry.key;
        if self.model.desired.get(key) != Some(entry) {
            return FollowUp::Requeue;
        }
        match result {
            Ok(()) => match self.may_replace(entry, policy, uid) {
                Some(authorised) => {
                    let op = authorised.op(Arc::clone(&entry.version), entry.impersonate.clone());
                    self.execute(now, key, Purpose::Replace, op, out);
                    FollowUp::NextStepBegun
                }
                // No longer permitted.
                None => FollowUp::BackOff(None),
            },
            Err(failure) if failure.reason == Reason::Throttled => self.operation_failed(now, key, failure),
            Err(failure) => {
                let message = format!(
                    "an immutable field changed; the object is not recreated, because the dry-run create was refused: {}",
                    failure.message
                );
                self.operation_failed(now, key, Failure { message, ..failure })
            }
        }
    }

    fn replaced(&mut self, now: Monotonic, key: &ObjectKey, result: Result<Deleted, NotDone>) -> FollowUp {
        if result.is_ok()
            && let Some(source) = self.model.desired.get(key).map(|entry| entry.source.uid.clone())
        {
            self.model.forget_start_of_deleted(key, &source);
        }
        match result {
            // No object exists now: whatever failed before, it is created again at once, and waits if that fails too.
            Ok(Deleted::Gone) => {
                if let Some(object) = self.model.objects.get_mut(key) {
                    object.doubt();
                    object.work.fail_at_least(1);
                }
                FollowUp::Requeue
            }
            Ok(Deleted::Finalizing) => self.finalizes(now, key),
            Err(NotDone::Stale) => FollowUp::Stale,
            Err(NotDone::Failed(failure)) => self.operation_failed(now, key, failure),
        }
    }

    /// An operation of a removal ended. What is gone, or will be, may be created again if it is assigned again.
    fn step_ended(
        &mut self,
        now: Monotonic,
        tombstone: &Tombstone,
        result: Result<Step, NotDone>,
        out: &mut Effects,
    ) -> FollowUp {
        if matches!(result, Ok(Step::Gone | Step::Finalizing)) {
            self.model.forget_start_of_deleted(&tombstone.key, &tombstone.source);
        }
        self.removed(now, tombstone, result, out)
    }

    /// A step of a removal ended.
    fn removed(
        &mut self,
        now: Monotonic,
        tombstone: &Tombstone,
        result: Result<Step, NotDone>,
        out: &mut Effects,
    ) -> FollowUp {
        let key = &tombstone.key;
        if !self.retires(now, tombstone, &result) {
            return FollowUp::Requeue;
        }
        if self.model.desired.get(key).is_some() {
            // The key was assigned again while this was under way.
            if matches!(result, Ok(Step::Gone | Step::Orphaned) | Err(NotDone::Stale))
                && let Some(object) = self.model.objects.get_mut(key)
            {
                object.doubt();
            }
            if !self.model.removals.contains_key(tombstone) {
                return FollowUp::Requeue;
            }
            // A failed removal waits for its retry: the entry would have it tried again at once.
            if !matches!(result, Err(NotDone::Failed(_))) {
                self.enqueue(key);
            }
        }
        match result {
            Ok(Step::Gone | Step::Orphaned) => {
                if let Some(object) = self.model.objects.get_mut(key) {
                    object.unsee();
                }
                self.model.clear_record_of_what_went(key);
                self.make_anew(tombstone);
                self.removal_done(now, tombstone);
                FollowUp::Concluded
            }
            Ok(Step::Finalizing) => {
                self.removal_finalizes(now, tombstone);
                FollowUp::BackOff(None)
            }
            Ok(Step::Inspected { foreign: 0, ours: 0, itself, .. }) => {
                if let Some(me) = self.model.me() {
                    read_by_itself(&mut self.model, key, &itself);
                    let seen = Box::new(Seen::from(&*itself));
                    let found = LiveRead::Inside(Inspection { foreign: 0, ours: 0 }, seen);
                    self.begin_removal(now, me, tombstone, found, out);
                }
                FollowUp::NextStepBegun
            }
            Ok(Step::Inspected { foreign, example, ours, .. }) => {
                let named = example.map(|example| format!(", such as {example}")).unwrap_or_default();
                let message = format!(
                    "it still contains {foreign} objects not managed by this agent{named}, and {ours} managed by it"
                );
                self.removal_is_held(now, tombstone, Reason::NotEmpty, message);
                FollowUp::BackOff(None)
            }
            Err(NotDone::Stale) => FollowUp::Stale,
            Err(NotDone::Failed(Failure { reason, message, retry_after, fate: _ })) => {
                let Some(removal) = self.model.removals.get(tombstone) else { return FollowUp::Concluded };
                if removal.is_finalizing() {
                    // Its deletion was accepted. That it could not be looked at says nothing else, and lower waves go on waiting
                    // for its finalizers.
                    let refusal = (reason == Reason::Forbidden).then_some(&*message);
                    self.model.forbidden_kinds.heard(key, refusal);
                } else if is_of_api_server(reason) && !is_delayed(removal.failures() + 1, retry_after) {
                    // It is held once it is known that this is not over soon.
                    self.removal_waits(now, tombstone);
                } else {
                    self.removal_is_held(now, tombstone, reason, message);
                }
                FollowUp::BackOff(retry_after)
            }
        }
    }

    /// The object to be removed is gone, or was replaced.
    fn removal_missed(&mut self, now: Monotonic, tombstone: &Tombstone, out: &mut Effects) {
        if let Some(object) = self.model.objects.get_mut(&tombstone.key) {
            object.unsee();
        }
        if self.model.desired.get(&tombstone.key).is_some() {
            // Its successor is that of the entry.
            self.make_anew(tombstone);
            return self.removal_done(now, tombstone);
        }
        let Some(removal) = self.model.removals.get_mut(tombstone) else { return };
        if removal.failures() == 0 {
            removal.fail();
            return self.read_for_removal(now, tombstone, out);
        }
        if removal.failures() >= MISSES_MAX && !removal.is_finalizing() {
            self.removal_is_held(now, tombstone, Reason::Conflict, MISSED.to_owned());
        }
        self.retry_removal(now, tombstone, None);
    }

    /// The object under the key of a removal was read.
    fn removal_read(
        &mut self,
        now: Monotonic,
        tombstone: &Tombstone,
        result: Result<Option<Box<Observed>>, Failure>,
        out: &mut Effects,
    ) -> FollowUp {
        let observed = match result {
            Ok(Some(observed)) => observed,
            Ok(None) => return self.removed(now, tombstone, Ok(Step::Gone), out),
            Err(failure) => return self.removed(now, tombstone, Err(failure.into()), out),
        };
        let Some(me) = self.model.me() else { return FollowUp::BackOff(None) };
        read_by_itself(&mut self.model, &tombstone.key, &observed);
        let found = LiveRead::There(Box::new(Seen::from(&*observed)));
        self.begin_removal(now, me, tombstone, found, out);
        let waits = self.model.objects.get(&tombstone.key).is_some_and(|object| object.work.is_waiting());
        if self.model.desired.get(&tombstone.key).is_some() && !waits {
            // The new entry has waited for this.
            self.enqueue_entry(&tombstone.key);
        }
        FollowUp::NextStepBegun
    }
}

/// The failure of an operation that ended in a way that it cannot.
fn ended_as_another() -> Failure {
    Failure::new(Reason::Unavailable, "the operation ended as only another could")
}

fn left_to_others(conflicts: &[FieldConflict], observed: &Observed) -> Option<LeftToOthers> {
    let mut message = String::new();
    for FieldConflict { manager, field } in conflicts.iter().take(CONFLICTS_NAMED_MAX) {
        let comma = if message.is_empty() { "left to others: " } else { ", " };
        let _ = write!(message, "{comma}{field} ({manager})");
    }
    (!conflicts.is_empty()).then_some(LeftToOthers { message, others: observed.others })
}

#[cfg(test)]
mod tests;
