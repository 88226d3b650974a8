//! What is begun next, and how: as much at once as the limiter allows, one operation per object.

use std::sync::Arc;
use std::time::Duration;

use tideline_common::wire::v1::Progress;
use tideline_common::{ApplyMode, ApplyPolicy, Entry, Monotonic, ObjectKey, Origin, Reason, Tombstone};

use super::conclude::RETRY;
use super::in_flight::{InFlight, Purpose, ReadFor, SeenVersion};
use super::limiter::{Cause, StuckFor};
use super::removal_steps::LiveRead;
use crate::core::Core;
use crate::core::decide::plan;
use crate::core::decide::plan::{Decision, NoAction, Situation};
use crate::core::decide::ran::{is_gone_unread, vanished};
use crate::core::decide::set_back::{NAMESPACE_SET_BACK, lists_first};
use crate::core::interface::effect::{ApplyTakeover, Earlier, Effect, Effects, Op, OpId};
use crate::core::interface::write::AppliedRecord;
use crate::core::model::disk::Then;
use crate::core::model::kinds::View;
use crate::core::model::object::{Me, may_be_stuck};
use crate::core::model::seen::Seen;

/// Corrections of one object that are made at once; further ones wait, as after failures.
const CORRECTIONS_AT_ONCE: u32 = 3;
/// Without a correction for this long, they count from zero again.
const CORRECTIONS_FORGOTTEN: Duration = Duration::from_mins(10);

/// With why it cannot be.
const UNRECORDED: &str = "not created before the journal has it, because a Job is to run once";
/// The hub knows for what, and says so.
const TOO_OLD: &str =
    "this version of the agent does not support what the entry requires; not applied. Upgrade the agent";
const MAY_HAVE_RUN: &str = "assigned before the hub lost history, so it may already have run; not created. To run it: tideline-hub \
                            release TARGET --reason MayHaveRun";

impl Core {
    pub(in crate::core) fn retries_due(&mut self, now: Monotonic) {
        self.work.timer_fired();
        while let Some(key) = self.work.take_retry(now) {
            self.enqueue(&key);
            // A status that could not be read is read again, if it still has to be told.
            self.dirty(&key, now);
        }
        while let Some(tombstone) = self.work.take_removal_retry(now) {
            if let Some(removal) = self.model.removals.get_mut(&tombstone) {
                self.work.enqueue_removal(removal, &tombstone);
            }
        }
        if self.begins(now) {
            self.guards.gates.due(now);
        }
        self.work.resume(now);
        if self.work.take_pass(now) {
            for key in self.model.objects.not_at_rest().cloned().collect::<Vec<_>>() {
                // As long as they are remembered, what is at rest is not compacted.
                if let Some(object) = self.model.objects.get_mut(&key)
                    && now.since(object.corrections.1) > CORRECTIONS_FORGOTTEN
                {
                    object.corrections = (0, Monotonic::START);
                }
                self.enqueue(&key);
            }
        }
    }

    /// Whether anything may begin at the cluster now.
    pub(in crate::core) fn begins(&self, now: Monotonic) -> bool {
        self.model.me().is_some() && self.may_change() && !lists_first(&self.model, now)
    }

    /// Begins whatever may begin now.
    pub(in crate::core) fn pump(&mut self, now: Monotonic, out: &mut Effects) {
        let Some(me) = self.model.me().filter(|_| self.begins(now)) else { return self.guards.gates.pause() };
        self.guards.gates.resume(now);
        self.work.schedule_pass(now);
        for key in self.guards.gates.take_released(now) {
            self.enqueue(&key);
        }
        for tombstone in self.guards.gates.take_freed() {
            self.resume_freed(now, &tombstone);
        }
        while self.work.has_room(now) {
            // Where nothing is to be done about an object, it takes no room, and tens of thousands may come in one step.
            self.model.compact_if_many();
            if let Some(key) = self.work.take_ready(&mut self.model.objects) {
                self.begin(now, me, &key, out);
            } else if let Some((key, what_for)) = self.work.take_read() {
                self.begin_read(now, &key, what_for, out);
            } else if let Some(key) = self.next_mark(now) {
                self.begin_mark(now, &key, out);
            } else if self.may_remove()
                && let Some(tombstone) = self.next_removal(now)
            {
                self.begin_removal(now, me, &tombstone, LiveRead::Nothing, out);
            } else {
                return;
            }
        }
        self.work.ran_out_of_room();
    }

    fn begin_read(&mut self, now: Monotonic, key: &ObjectKey, what_for: ReadFor, out: &mut Effects) {
        if self.model.objects.get(key).is_some_and(|object| !object.work.is_in_flight()) {
            let version = self.model.kinds.version(&key.kind);
            self.execute(now, key, Purpose::Read(what_for), Op::Get { key: key.clone(), version }, out);
        } else {
            self.reporting.reports.status_unread(key, self.model.objects.get_mut(key));
        }
    }

    pub(in crate::core) fn execute(
        &mut self,
        now: Monotonic,
        key: &ObjectKey,
        purpose: Purpose,
        op: Op,
        out: &mut Effects,
    ) {
        let id = self.start(now, key, purpose, &op);
        out.push(Effect::Execute { id, op });
    }

    fn start(&mut self, now: Monotonic, key: &ObjectKey, purpose: Purpose, op: &Op) -> OpId {
        let seen = self.model.objects.get(key).and_then(|object| object.seen().map(SeenVersion::from));
        let id = self.work.start_operation(now, key, purpose, seen);
        if let Some(object) = self.model.objects.get_mut(key) {
            object.work.begin(id);
            if op.writes() {
                object.presence.begin_write();
            }
        }
        id
    }

    /// Begins a creation. That of a Job is sent once the journal has it that it was begun: the process may end, or its answer be
    /// lost, and the Job run and be collected before anybody looks.
    fn create(&mut self, now: Monotonic, entry: &Arc<Entry>, policy: Arc<ApplyPolicy>, op: Op, out: &mut Effects) {
        let key = &entry.key;
        let purpose = Purpose::Create { entry: Arc::clone(entry), policy };
        let source = &entry.source.uid;
        if !key.kind.is_job() || self.model.creations.earlier(key, source) == Earlier::Unanswered {
            return self.execute(now, key, purpose, op, out);
        }
        if let Some(problem) = self.model.disk.problem() {
            let message = format!("{UNRECORDED}: {problem}");
            self.conclude(now, key, Progress::Pending, Some(Reason::Unavailable), message);
            return self.retry(now, key, None);
        }
        let id = self.start(now, key, purpose, &op);
        self.model.creation_begins(Tombstone { key: key.clone(), source: source.clone() }, id);
        self.model.disk.then(Then::Create(id, Box::new(op)));
    }

    /// The journal has it that a Job is about to be created. The agent may have been frozen since, or be about to end.
    pub(in crate::core) fn creation_recorded(&mut self, now: Monotonic, id: OpId, op: Op, out: &mut Effects) {
        if !self.work.goes_out(now, id) {
            return;
        }
        if let (Op::Create { entry, .. }, true) = (&op, self.begins(now)) {
            let creation = Tombstone { key: entry.key.clone(), source: entry.source.uid.clone() };
            self.model.creation_is_recorded(&creation);
            return out.push(Effect::Execute { id, op });
        }
        self.call_off(now, id, "not begun: the agent changes nothing at present".to_owned());
    }

    /// The journal cannot be written: what waits for it is tried again later, and takes no other object's turn meanwhile.
    pub(in crate::core) fn call_off_creations(&mut self, now: Monotonic) {
        let Some(problem) = self.model.disk.problem() else { return };
        let why = format!("{UNRECORDED}: {problem}");
        for id in self.model.creations.unrecorded() {
            self.call_off(now, id, why.clone());
        }
    }

    /// A creation that was not sent: no failure of the object, and no word about the API server.
    fn call_off(&mut self, now: Monotonic, id: OpId, why: String) {
        let Some(InFlight { key, purpose: Purpose::Create { entry, .. }, .. }) = self.work.call_off(id) else { return };
        if let Some(object) = self.model.objects.get_mut(&key) {
            object.work.end();
        }
        self.model.forget_creation(&Tombstone { key: key.clone(), source: entry.source.uid.clone() });
        if self.model.desired.get(&key) == Some(&entry) {
            self.conclude(now, &key, Progress::Pending, Some(Reason::Unavailable), why);
            self.retry(now, &key, None);
        } else {
            self.enqueue(&key);
        }
        self.resume_removals(&key);
        self.forget_if_empty(&key);
    }

    /// Decides about an assigned object and begins what was decided.
    fn begin(&mut self, now: Monotonic, me: Me, key: &ObjectKey, out: &mut Effects) {
        let Some(entry) = self.model.desired.get(key).cloned() else { return };
        let policy = self.model.policies.get(&entry.policy).cloned();
        if self.model.objects.get(key).is_none_or(|object| object.work.is_in_flight()) {
            // It is queued again when that ends, as what was not tried is.
            return;
        }
        if self.model.is_set_back_at(key) {
            // Its wave goes on elsewhere; it is looked at again once the hub was heard.
            return self.conclude(
                now,
                key,
                Progress::Pending,
                Some(Reason::Unavailable),
                NAMESPACE_SET_BACK.to_owned(),
            );
        }
        self.rename_policy(&entry, policy.as_deref());
        let Some(object) = self.model.objects.get_mut(key) else { return };
        let probe = object.presence.take_probe();
        let live = probe.is_some();
        let Some(object) = self.model.objects.get(key) else { return };
        let seen = probe.or_else(|| object.seen().cloned());
        let view = match self.model.kinds.view(key) {
            View::Lost if object.presence.is_doubted() => View::Current,
            view => view,
        };
        let anew = object.record.as_ref().is_none_or(|record| !plan::is_as_recorded(&entry, record));
        let behind = !live
            && seen
                .as_ref()
                .zip(object.record.as_ref())
                .is_some_and(|(seen, record)| seen.uid == record.uid && seen.is_before(&record.resource_version));
        // A list may show the mark of what was let go of since: taken for ours, it would be deleted one day.
        let unproven = !live
            && object.record.as_ref().is_none_or(|record| record.orphaning)
            && seen.as_ref().is_some_and(|seen| seen.mark.is_some());
        let decision =
            plan::plan(Situation::of(&self.model, me, &entry, policy.as_deref(), &object, seen.as_ref(), view));
        let unread = is_gone_unread(&object, &entry.source.uid, &decision);
        drop(object);
        if unread {
            return self.work.read(key.clone(), ReadFor::Write);
        }
        if unproven
            && matches!(decision, Decision::Apply { .. } | Decision::TransferOwnership { .. } | Decision::Record { .. })
        {
            return self.work.read(key.clone(), ReadFor::Write);
        }
        if behind && !anew && matches!(decision, Decision::Apply { .. } | Decision::TransferOwnership { .. }) {
            // A list or a watch shows how it was before our last write. What there is by now is read before anything is
            // written again: where the cluster was set back, it may be just that.
            return self.work.read(key.clone(), ReadFor::Write);
        }
        let writes = matches!(
            decision,
            Decision::Create | Decision::RunAnew(_) | Decision::Apply { .. } | Decision::TransferOwnership { .. }
        );
        if writes && anew && self.waits_for_its_wave(now, &entry) {
            return;
        }
        if writes && self.waits_for_a_webhook(now, key) {
            return;
        }
        self.carry_out(now, me, &entry, policy, seen, decision, out);
    }

    /// Where another policy has the same written, the journal learns its name, and nothing is done about the object: only what
    /// is told of it is another.
    fn rename_policy(&mut self, entry: &Entry, policy: Option<&ApplyPolicy>) {
        let object = self.model.objects.get(&entry.key);
        let Some((record, policy)) = object.as_ref().and_then(|object| object.record.as_ref()).zip(policy) else {
            return;
        };
        let former = self.model.policies.get(&record.policy);
        if former.is_some_and(|former| plan::is_written_alike(record, former, entry, policy)) {
            let record = AppliedRecord { policy: entry.policy, ..record.clone() };
            drop(object);
            self.model.set_record(&entry.key, record);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one decision and all it was made from")]
    fn carry_out(
        &mut self,
        now: Monotonic,
        me: Me,
        entry: &Arc<Entry>,
        policy: Option<Arc<ApplyPolicy>>,
        seen: Option<Seen>,
        decision: Decision,
        out: &mut Effects,
    ) {
        let key = &entry.key;
        match (decision, policy, seen) {
            (Decision::Nothing(NoAction::Drifted), Some(policy), Some(seen)) => {
                self.drifted(now, me, entry, policy, &seen, out);
            }
            (Decision::Nothing(_), _, seen) => {
                self.stands_as_assigned(now, key);
                self.orphan_unseen(now, me, key, seen, out);
            }
            (Decision::Record { origin, .. }, Some(policy), Some(seen)) => {
                self.model.set_record(key, plan::record_of(entry, &seen, origin, true));
                // Whoever made it may have ended before that was written.
                self.note_created(entry, &policy);
                self.stands_as_assigned(now, key);
            }
            (Decision::Verify { uid, origin }, Some(policy), _) => {
                let mark = Arc::new(plan::mark_of(me, entry, &policy, origin));
                let op = Op::Compare { entry: Arc::clone(entry), policy, mark, uid };
                self.execute(now, key, Purpose::Verify { entry: Arc::clone(entry), origin }, op, out);
            }
            (decision @ (Decision::Create | Decision::RunAnew(_)), Some(policy), _) => {
                let ran = if let Decision::RunAnew(ran) = decision { Some(ran) } else { None };
                let mark = Arc::new(plan::mark_of(me, entry, &policy, Origin::Created));
                let earlier = self.model.creations.earlier(key, &entry.source.uid);
                let op = Op::Create { entry: Arc::clone(entry), policy: Arc::clone(&policy), mark, ran, earlier };
                self.create(now, entry, policy, op, out);
            }
            (Decision::Apply { uid, takeover, origin }, Some(policy), _) => {
                if takeover != ApplyTakeover::Adopt && self.is_fought_over(now, entry) {
                    return;
                }
                let mark = Arc::new(plan::mark_of(me, entry, &policy, origin));
                let record = self.model.objects.get(key).and_then(|object| object.record.clone());
                let local = plan::left_alone(&policy, record.as_ref().filter(|record| record.uid == uid));
                let purpose = Purpose::Apply {
                    entry: Arc::clone(entry),
                    policy: Arc::clone(&policy),
                    uid: uid.clone(),
                    origin,
                    local: Arc::clone(&local),
                };
                let op = Op::Apply { entry: Arc::clone(entry), policy, mark, uid, takeover, local };
                self.execute(now, key, purpose, op, out);
            }
            (Decision::TransferOwnership { uid, origin }, Some(policy), _) => {
                if self.is_fought_over(now, entry) {
                    return;
                }
                let mark = Arc::new(plan::mark_of(me, entry, &policy, origin));
                let op = Op::TransferOwnership { entry: Arc::clone(entry), mark, uid: uid.clone() };
                self.execute(
                    now,
                    key,
                    Purpose::TransferOwnership { entry: Arc::clone(entry), policy, uid, origin },
                    op,
                    out,
                );
            }
            (Decision::Wait(Reason::Progressing), ..) => {}
            (Decision::Wait(reason), ..) => {
                self.conclude(now, key, Progress::Pending, Some(reason), String::new());
                self.retry(now, key, None);
            }
            (Decision::Withhold(reason), ..) => {
                let message = match reason {
                    Reason::OtherNamespace => {
                        format!("this agent keeps these namespaces only: {}", self.config.namespaces)
                    }
                    Reason::AgentTooOld => TOO_OLD.to_owned(),
                    Reason::MayHaveRun => MAY_HAVE_RUN.to_owned(),
                    Reason::Vanished => {
                        let object = self.model.objects.get(key);
                        vanished(object.and_then(|object| object.record.as_ref()?.template)).to_owned()
                    }
                    _ => String::new(),
                };
                self.conclude(now, key, Progress::Withheld, Some(reason), message);
                self.resume_removals(key);
            }
            (Decision::Skip(reason, why), _, seen) => {
                self.conclude(now, key, Progress::Withheld, Some(reason), why.to_owned());
                self.retry(now, key, None);
                self.orphan_unseen(now, me, key, seen, out);
            }
            (Decision::UpdateRecord, policy, _) => {
                let once = policy.is_some_and(|policy| policy.mode == ApplyMode::CreateOnly);
                let record = self.model.objects.get(key).and_then(|object| object.record.clone());
                if let Some(record) = record {
                    let impersonate = entry.impersonate.clone();
                    // What is never applied again claims nothing of anybody.
                    let left = record.left.clone().filter(|_| !once);
                    let record = AppliedRecord { policy: entry.policy, impersonate, orphaning: false, left, ..record };
                    self.model.set_record(key, record);
                }
                self.stands_as_assigned(now, key);
            }
            (Decision::Fail(reason, message), ..) => {
                self.conclude(now, key, Progress::Failed, Some(reason), message);
                // Of kinds and bodies an event tells; of what is in the way nothing does.
                if !matches!(reason, Reason::KindMissing | Reason::BodyMissing) {
                    self.retry(now, key, None);
                }
            }
            (
                Decision::Record { .. }
                | Decision::Verify { .. }
                | Decision::Create
                | Decision::RunAnew(_)
                | Decision::Apply { .. }
                | Decision::TransferOwnership { .. },
                ..,
            ) => unreachable!("they are decided only with a policy, and of what is seen"),
        }
    }

    /// Whether a write must wait because a webhook, or nobody, answers for others of its kind and namespace. It counts as
    /// tried: neither its wave nor what comes after waits with it.
    fn waits_for_a_webhook(&mut self, now: Monotonic, key: &ObjectKey) -> bool {
        if !self.work.is_stuck(key) {
            return false;
        }
        // What failed for itself says so, and waits for its own time.
        self.retry(now, key, None);
        if self.model.objects.get(key).is_some_and(|object| may_be_stuck(&object.outcome)) {
            self.mark_tried(key);
        } else if let Some(StuckFor { cause, message }) = self.work.wait_for_webhook(key) {
            let (reason, why) = match cause {
                Cause::Webhook => (Reason::Webhook, "an admission webhook fails for this kind in this namespace"),
                Cause::Silence => (Reason::Unavailable, "writes of this kind in this namespace get no answer"),
            };
            self.conclude(now, key, Progress::Pending, Some(reason), format!("waiting: {why}: {message}"));
        }
        true
    }

    /// Whether a correction must wait because it was undone before, and again.
    fn is_fought_over(&mut self, now: Monotonic, entry: &Entry) -> bool {
        let Some(object) = self.model.objects.get(&entry.key) else { return false };
        let correction = object.work.is_tried() && object.outcome.progress == Progress::Applied;
        drop(object);
        if !correction || !self.waits_to_correct(now, &entry.key) {
            return false;
        }
        let message =
            "another client keeps changing this object and the agent keeps reverting it; corrections now back off. \
                       Stop that client, or exempt the field in the Placement"
                .to_owned();
        self.reporting.kube_events.record(&self.model, now, &entry.key, Reason::Drifted, message);
        true
    }

    /// Counts a correction of an object, and whether it must wait for those before it: then it is tried again by itself. What
    /// else is found about the object meanwhile is no reason to try it sooner.
    pub(in crate::core) fn waits_to_correct(&mut self, now: Monotonic, key: &ObjectKey) -> bool {
        let Some(object) = self.model.objects.get_mut(key) else { return false };
        let (count, last) = object.corrections;
        let count = if now.since(last) > CORRECTIONS_FORGOTTEN { 0 } else { count };
        object.corrections = (count + 1, now);
        if count < CORRECTIONS_AT_ONCE {
            return false;
        }
        let wait = self.jitter.half(count - CORRECTIONS_AT_ONCE + 1, RETRY.0, RETRY.1);
        if now.since(last) >= wait {
            return false;
        }
        object.corrections = (count, last);
        let until = last + wait;
        self.work.dequeue(object, key);
        self.work.wait(object, key, until);
        true
    }

    /// Whether a write waits for an earlier wave; if so, that is reported.
    fn waits_for_its_wave(&mut self, now: Monotonic, entry: &Entry) -> bool {
        let Some(what) = self.guards.gates.holds_write(now, &self.model, entry) else { return false };
        self.conclude(now, &entry.key, Progress::Pending, Some(Reason::WaitingForWave), what);
        true
    }
}
