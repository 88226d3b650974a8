//! What the end of an operation means.

use std::fmt::Write as _;
use std::sync::Arc;

use tideline_common::wire::v1::Progress;
use tideline_common::{ApplyPolicy, Entry, Monotonic, ObjectKey, Origin, Reason, Tombstone, Uid};

use super::Core;
use super::effect::{Effects, LeftToOthers, Op, OpId};
use super::event::{FieldConflict, LocalField, Observed, OpResult};
use super::observe::{Seen, Status};
use super::plan::{mark_of, record_of};
use super::remove::{Authorised, Inspection, RemovalState, may_replace};
use super::removing::Looked;
use super::work::{Doing, Flight, ReadFor};

/// After so many reads of a status that failed in a row, what there is to tell of its object is told without it.
const READS_MAX: u8 = 2;

impl Core {
    pub(super) fn executed(&mut self, now: Monotonic, id: OpId, result: OpResult, out: &mut Effects) {
        let Some(Flight { key, doing, begun }) = self.work.landed(id) else { return };
        let op = (id, &key, doing.does(), now.since(begun));
        for waiting in self.work.slots.judge(now, op, &result, self.work.last(), &mut self.jitter) {
            self.enqueue(&waiting);
        }
        if let Some(object) = self.objects.get_mut(&key) {
            object.flight = None;
        }
        match doing {
            Doing::Create { entry, policy } => {
                let write = Write { origin: Origin::Created, posted: true, local: Arc::default() };
                self.written(now, &entry, &policy, (write, None), result, out);
            }
            Doing::Apply { entry, policy, uid, origin, local } => {
                let write = Write { origin, posted: false, local };
                self.written(now, &entry, &policy, (write, Some(&uid)), result, out);
            }
            Doing::ReMark { entry, policy, uid, origin } => {
                // What entry of ours the mark is in by now is looked at by the next apply, if there ever is one.
                let write = Write { origin, posted: true, local: Arc::default() };
                self.written(now, &entry, &policy, (write, Some(&uid)), result, out);
            }
            Doing::ReTarget(seen) => self.mark_written(now, &key, &seen, result),
            Doing::DryRun { entry, policy, uid } => self.dry_run_ended(now, &entry, &policy, &uid, result, out),
            Doing::Replace => {
                if let Some(source) = self.desired.get(&key).map(|entry| entry.source.uid.clone()) {
                    self.forget_start_of_deleted(&key, &source, &result);
                }
                self.replaced(now, &key, result);
            }
            Doing::Remove { tombstone, .. } => {
                self.forget_start_of_deleted(&key, &tombstone.source, &result);
                self.removed(now, &tombstone, result, out);
            }
            Doing::Look { tombstone, .. } => self.looked(now, &tombstone, result, out),
            Doing::Read(what_for) => self.read(now, &key, what_for, result),
            Doing::Compare => self.compared(now, &key, result),
            Doing::Verify { entry, origin } => self.verified(now, &entry, origin, result),
        }
        self.resume_removals(&key);
        self.forget_if_empty(&key);
    }

    /// A creation ended, or an application onto an object, or that of a mark alone.
    fn written(
        &mut self,
        now: Monotonic,
        entry: &Arc<Entry>,
        policy: &Arc<ApplyPolicy>,
        (write, onto): (Write, Option<&Uid>),
        result: OpResult,
        out: &mut Effects,
    ) {
        let key = &entry.key;
        if onto.is_none()
            && leaves_unshown(&result)
            && let Some(object) = self.objects.get_mut(key)
        {
            object.unshown = true;
        }
        let current = self.desired.get(key) == Some(entry);
        if !current {
            // It changed, or went, while this was under way.
            self.enqueue(key);
        }
        match result {
            OpResult::Written { observed, conflicts } => {
                if onto.is_none() && self.assigns(key, &entry.source.uid) {
                    // Nothing stood there that could have been let go of. Of a source that left meanwhile it is to go itself.
                    self.nothing_overtaken(now, key);
                }
                self.stands(now, entry, policy, (write, onto), *observed, &conflicts);
                if current {
                    self.succeeded(now, key);
                }
                if key.kind.is("", "Namespace") {
                    self.wake_namespace(&key.name);
                }
            }
            OpResult::Exists(observed) => {
                self.read_by_itself(key, observed.mark.as_deref());
                let Some(object) = self.objects.get_mut(key) else { return };
                object.doubted = false;
                object.probe = Some(Seen::from(&*observed));
                if object.failures > 0 {
                    return self.retry(now, key, None);
                }
                self.enqueue(key);
            }
            OpResult::Gone | OpResult::PreconditionFailed => {
                let Some(object) = self.objects.get_mut(key) else { return };
                let another = |seen: &Seen| onto.is_some_and(|onto| *onto != seen.uid);
                if object.seen.as_ref().is_some_and(another) {
                    // What is there instead has been seen meanwhile, and the watch would not tell of it again.
                    return self.enqueue(key);
                }
                self.missed(now, key);
            }
            OpResult::Failed { reason, message, retry_after } if current => {
                if reason == Reason::Immutable
                    && let Some(onto) = onto
                    && self.dry_run(now, entry, policy, onto, out)
                {
                    return;
                }
                if reason == Reason::Throttled {
                    return self.throttled(now, key, message, retry_after);
                }
                if reason == Reason::Vanished {
                    return self.has_run_as_it_is(entry);
                }
                self.conclude(now, key, Progress::Failed, Some(reason), message);
                if reason == Reason::BodyMissing {
                    self.inputs.lost(&entry.input);
                    self.session.distrust();
                }
                self.retry(now, key, retry_after);
            }
            OpResult::Failed { .. } => {}
            // Somebody has deleted what was to be taken up.
            OpResult::Finalizing => {
                self.conclude(now, key, Progress::Pending, Some(Reason::Finalizing), String::new());
                self.retry(now, key, None);
            }
            OpResult::WouldBeCreated | OpResult::Emptiness { .. } | OpResult::Compared { .. } => {
                self.retry(now, key, None);
            }
        }
    }

    /// What was meant is gone, or another by now: it is looked at anew, at once if nothing has failed before. What is missed each
    /// time counts as tried: nothing waits for it any longer.
    pub(super) fn missed(&mut self, now: Monotonic, key: &ObjectKey) {
        let Some(object) = self.objects.get_mut(key) else { return };
        object.doubt();
        if object.failures >= MISSES_MAX {
            let message =
                "another object stands there than was seen before, or none, also after several tries".to_owned();
            self.conclude(now, key, Progress::Failed, Some(Reason::Conflict), message);
            return self.retry(now, key, None);
        }
        if object.failures > 0 {
            return self.retry(now, key, None);
        }
        object.failures = 1;
        self.enqueue(key);
    }

    /// An object stands as an entry says; the journal is to know.
    fn stands(
        &mut self,
        now: Monotonic,
        entry: &Entry,
        policy: &ApplyPolicy,
        (write, onto): (Write, Option<&Uid>),
        observed: Observed,
        conflicts: &[FieldConflict],
    ) {
        let key = &entry.key;
        if onto.is_none() {
            self.runs_anew(key, &entry.source.uid);
        }
        let mut record = record_of(entry, &Seen::from(&observed), write.origin, write.posted);
        record.left = left_to_others(conflicts, &observed).map(Arc::new);
        let object = self.objects.get(key);
        let former = object.as_ref().and_then(|object| object.record.as_ref());
        let known = former.filter(|former| former.uid == record.uid).and_then(|former| former.template);
        record.template = observed.template.or(known);
        if !write.local.is_empty() {
            // What was left as it was is still to be told; a look says what there is of it.
            record.local = write.local;
            record.drifted = former.and_then(|former| former.drifted.clone());
        }
        drop(object);
        if write.origin == Origin::Adopted {
            self.associates_adopted(key);
        }
        self.see(key, observed);
        if let Some(object) = self.objects.get_mut(key) {
            object.doubted = false;
        }
        self.set_record(key, record);
        self.note_created(entry, policy);
        self.dirty(key, now);
    }

    fn succeeded(&mut self, now: Monotonic, key: &ObjectKey) {
        if let Some(object) = self.objects.get_mut(key) {
            object.failures = 0;
        }
        if let Some(left) = self.stands_applied(now, key) {
            self.notice(now, key, Reason::FieldConflict, left.message.clone());
        }
        // What was seen meanwhile may be later than this write.
        self.enqueue(key);
    }

    /// An object is as it should be, but for what was left to others, which is returned.
    pub(super) fn stands_applied(&mut self, now: Monotonic, key: &ObjectKey) -> Option<Arc<LeftToOthers>> {
        let left = self.objects.get(key).and_then(|object| object.record.as_ref()?.left.clone());
        let message = left.as_ref().map(|left| left.message.clone()).unwrap_or_default();
        self.conclude(now, key, Progress::Applied, left.as_ref().map(|_| Reason::FieldConflict), message);
        left
    }

    /// Finds out whether what cannot be changed could be created again, if it may be deleted for that.
    fn dry_run(
        &mut self,
        now: Monotonic,
        entry: &Arc<Entry>,
        policy: &Arc<ApplyPolicy>,
        uid: &Uid,
        out: &mut Effects,
    ) -> bool {
        let Some((me, _)) = self.me().zip(self.may_replace(entry, policy, uid)) else { return false };
        let mark = Arc::new(mark_of(me, entry, policy, Origin::Created));
        let op = Op::DryRunCreate { entry: Arc::clone(entry), policy: Arc::clone(policy), mark };
        let doing = Doing::DryRun { entry: Arc::clone(entry), policy: Arc::clone(policy), uid: uid.clone() };
        self.execute(now, &entry.key, doing, op, out);
        true
    }

    fn may_replace(&self, entry: &Entry, policy: &ApplyPolicy, uid: &Uid) -> Option<Authorised> {
        // While history is broken nothing is deleted, not even to be made again.
        if !self.may_remove() || self.is_broken() {
            return None;
        }
        let object = self.objects.get(&entry.key)?;
        may_replace(entry, policy, (object.record.as_ref(), object.happened(&entry.source.uid)), uid)
    }

    /// What cannot be changed is deleted only if that is all that keeps it from being as its source says.
    fn dry_run_ended(
        &mut self,
        now: Monotonic,
        entry: &Arc<Entry>,
        policy: &ApplyPolicy,
        uid: &Uid,
        result: OpResult,
        out: &mut Effects,
    ) {
        let key = &entry.key;
        if self.desired.get(key) != Some(entry) {
            return self.enqueue(key);
        }
        match result {
            OpResult::WouldBeCreated => match self.may_replace(entry, policy, uid) {
                Some(authorised) => {
                    let op = authorised.op(Arc::clone(&entry.version), entry.impersonate.clone());
                    self.execute(now, key, Doing::Replace, op, out);
                }
                // Told otherwise meanwhile.
                None => self.retry(now, key, None),
            },
            OpResult::Failed { reason: Reason::Throttled, message, retry_after } => {
                self.throttled(now, key, message, retry_after);
            }
            OpResult::Failed { reason, message, retry_after } => {
                let message = format!(
                    "a field changed that cannot be changed in place, and the object is not deleted for it, because it could not be \
                     created again: {message}"
                );
                self.conclude(now, key, Progress::Failed, Some(reason), message);
                self.retry(now, key, retry_after);
            }
            OpResult::Written { .. }
            | OpResult::Exists(_)
            | OpResult::Gone
            | OpResult::Finalizing
            | OpResult::PreconditionFailed
            | OpResult::Emptiness { .. }
            | OpResult::Compared { .. } => self.retry(now, key, None),
        }
    }

    fn replaced(&mut self, now: Monotonic, key: &ObjectKey, result: OpResult) {
        match result {
            // Nothing is there now: whatever failed before, it is made again at once, and waits if that fails too.
            OpResult::Gone => {
                if let Some(object) = self.objects.get_mut(key) {
                    object.doubt();
                    object.failures = object.failures.max(1);
                }
                self.enqueue(key);
            }
            OpResult::PreconditionFailed => self.missed(now, key),
            OpResult::Finalizing => {
                self.conclude(now, key, Progress::Pending, Some(Reason::Finalizing), String::new());
                self.retry(now, key, None);
            }
            OpResult::Failed { reason, message, retry_after } => {
                self.conclude(now, key, Progress::Failed, Some(reason), message);
                self.retry(now, key, retry_after);
            }
            OpResult::Written { .. }
            | OpResult::WouldBeCreated
            | OpResult::Exists(_)
            | OpResult::Emptiness { .. }
            | OpResult::Compared { .. } => {
                self.retry(now, key, None);
            }
        }
    }

    /// A step of a removal ended.
    fn removed(&mut self, now: Monotonic, tombstone: &Tombstone, result: OpResult, out: &mut Effects) {
        let key = &tombstone.key;
        if !self.retires(now, tombstone, &result) {
            return self.enqueue(key);
        }
        if self.desired.get(key).is_some() {
            // The place was assigned again while this was under way.
            if matches!(result, OpResult::Gone | OpResult::PreconditionFailed | OpResult::Written { .. })
                && let Some(object) = self.objects.get_mut(key)
            {
                object.doubt();
            }
            // What failed waits for its retry: the entry would have it tried again at once.
            let open = self.removals.contains_key(tombstone);
            if !open || !matches!(result, OpResult::Failed { .. }) {
                self.enqueue(key);
            }
            if !open {
                return;
            }
        }
        match result {
            OpResult::PreconditionFailed if self.desired.get(key).is_none() => {
                if let Some(object) = self.objects.get_mut(key) {
                    object.unsee();
                }
                let Some(removal) = self.removals.get_mut(tombstone) else { return };
                if removal.failures > 0 {
                    return self.retry_removal(now, tombstone, None);
                }
                removal.failures = 1;
                self.look(now, tombstone, out);
            }
            OpResult::Gone | OpResult::Written { .. } => {
                if let Some(object) = self.objects.get_mut(key) {
                    object.unsee();
                }
                self.clear_record_of_what_went(key);
                self.make_anew(tombstone);
                self.removal_done(now, tombstone);
            }
            // Something is there instead that is another's by now.
            OpResult::PreconditionFailed => {
                if let Some(object) = self.objects.get_mut(key) {
                    object.unsee();
                }
                self.make_anew(tombstone);
                self.removal_done(now, tombstone);
            }
            OpResult::Finalizing => {
                self.removal_state(now, tombstone, RemovalState::Finalizing);
                self.retry_removal(now, tombstone, None);
            }
            OpResult::Emptiness { foreign, example, ours } => {
                if foreign > 0 || ours > 0 {
                    let named = example.map(|example| format!(", such as {example}")).unwrap_or_default();
                    let message = format!("it holds {foreign} objects that are not ours{named}, and {ours} of ours");
                    self.removal_state(now, tombstone, RemovalState::Held(Reason::NotEmpty, message));
                    self.retry_removal(now, tombstone, None);
                } else if let Some(me) = self.me() {
                    let found = Looked::Inside(Inspection { foreign, ours });
                    self.begin_removal(now, me, tombstone, found, out);
                }
            }
            OpResult::Failed { reason: Reason::Throttled, retry_after, .. } => {
                self.removal_state(now, tombstone, RemovalState::Waiting);
                self.retry_removal(now, tombstone, retry_after);
            }
            OpResult::Failed { reason, message, retry_after } => {
                self.removal_state(now, tombstone, RemovalState::Held(reason, message));
                self.retry_removal(now, tombstone, retry_after);
            }
            OpResult::WouldBeCreated | OpResult::Exists(_) | OpResult::Compared { .. } => {
                self.retry_removal(now, tombstone, None);
            }
        }
    }

    /// What stands in the place of what was to be removed was read.
    fn looked(&mut self, now: Monotonic, tombstone: &Tombstone, result: OpResult, out: &mut Effects) {
        match (result, self.me()) {
            (OpResult::Written { observed, .. }, Some(me)) => {
                self.read_by_itself(&tombstone.key, observed.mark.as_deref());
                let found = Looked::There(Box::new(Seen::from(&*observed)));
                self.begin_removal(now, me, tombstone, found, out);
                let waits = self.objects.get(&tombstone.key).is_some_and(|object| object.retry_at.is_some());
                if self.desired.get(&tombstone.key).is_some() && !waits {
                    // What was assigned meanwhile has waited for this.
                    self.enqueue_entry(&tombstone.key);
                }
            }
            (result, _) => self.removed(now, tombstone, result, out),
        }
    }

    /// An object was read.
    fn read(&mut self, now: Monotonic, key: &ObjectKey, what_for: ReadFor, result: OpResult) {
        match result {
            OpResult::Written { observed, .. } => {
                // Nothing else is decided by it, and nothing would tell when it changes.
                let seen = Seen::from(&*observed);
                if self.desired.get(key).is_some()
                    && let Some(object) = self.objects.get_mut(key)
                    // Something newer may have been heard before this answer.
                    && !object.seen.as_ref().is_some_and(|newer| seen.is_older_than(newer))
                {
                    object.probe = Some(seen);
                }
                self.look_at(key, *observed);
            }
            OpResult::Failed { reason, message, retry_after } => {
                // A report without it would make the hub forget the status that it has.
                if let Some(object) = self.objects.get_mut(key)
                    && let Status::Awaited { failed } = object.live.status
                {
                    let failed = failed.saturating_add(1);
                    // It is read because there is something to tell: that is not kept back for a status that stays unread.
                    let untold = object.told.is_none() || failed >= READS_MAX;
                    object.live.status =
                        if untold { Status::Unreadable { failed } } else { Status::Dropped { failed } };
                    // That it stands as it should does not say that it can be read.
                    object.failures = object.failures.max(u32::from(failed) - 1);
                    if untold {
                        self.dirty(key, now);
                    }
                }
                let untried = self.objects.get(key).is_some_and(|object| !object.tried);
                if what_for == ReadFor::Write && untried && self.desired.get(key).is_some() {
                    if reason == Reason::Throttled {
                        return self.throttled(now, key, message, retry_after);
                    }
                    self.conclude(now, key, Progress::Failed, Some(reason), message);
                }
                return self.retry(now, key, retry_after);
            }
            OpResult::Gone => {
                if self.desired.get(key).is_some()
                    && let Some(object) = self.objects.get_mut(key)
                {
                    object.doubt();
                }
            }
            OpResult::WouldBeCreated
            | OpResult::Exists(_)
            | OpResult::Finalizing
            | OpResult::PreconditionFailed
            | OpResult::Emptiness { .. }
            | OpResult::Compared { .. } => {}
        }
        if let Some(object) = self.objects.get_mut(key)
            && let Status::Awaited { .. } = object.live.status
        {
            object.live.status = Status::None;
        }
        self.dirty(key, now);
        self.enqueue(key);
    }
}

/// Whether a creation that ended so may have left something there, or found it: an API server that had no time, or was not
/// heard, may have done it.
fn leaves_unshown(result: &OpResult) -> bool {
    match result {
        OpResult::Exists(_) => true,
        OpResult::Failed { reason, .. } => matches!(reason, Reason::Unavailable | Reason::Throttled),
        OpResult::Written { .. }
        | OpResult::WouldBeCreated
        | OpResult::Gone
        | OpResult::PreconditionFailed
        | OpResult::Finalizing
        | OpResult::Emptiness { .. }
        | OpResult::Compared { .. } => false,
    }
}

fn left_to_others(conflicts: &[FieldConflict], observed: &Observed) -> Option<LeftToOthers> {
    let mut message = String::new();
    for FieldConflict { manager, field } in conflicts.iter().take(CONFLICTS_NAMED_MAX) {
        let comma = if message.is_empty() { "left to others: " } else { ", " };
        let _ = write!(message, "{comma}{field} ({manager})");
    }
    (!conflicts.is_empty()).then_some(LeftToOthers { message, others: observed.others })
}

/// So often an object may be found to be another than was meant before that is a failure: once where somebody replaced it, and
/// again where that was seen late.
const MISSES_MAX: u32 = 3;

/// Fields named in a message: what fits its bound with room for long paths.
const CONFLICTS_NAMED_MAX: usize = 8;

/// What kind of write an object stands from.
#[derive(Clone, Debug)]
struct Write {
    origin: Origin,
    posted: bool,
    /// What was left as somebody made it.
    local: Arc<[LocalField]>,
}

#[cfg(test)]
mod tests;
