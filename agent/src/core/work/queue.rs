//! What waits for its turn: objects by wave, removals after them and in reverse, reads and marks, and whatever is tried again
//! after a while. Everything is a queue; no event looks at every object.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::wire::v1::TargetCondition;
use tideline_common::{Digest, Entry, Monotonic, ObjectKey, Reason, Tombstone};

use super::aimd::{ConcurrencyReading, Sign};
use super::in_flight::{InFlight, Purpose, ReadFor, SeenVersion};
use super::limiter::{Admission, ConcurrencyLimiter, StuckFor};
use super::removal_waves::{Awaited, RemovalWaves, StepEnd};
use crate::core::Core;
use crate::core::counts::Counts;
use crate::core::interface::effect::{Effect, Effects, OpId, Timer};
use crate::core::interface::op_result::{Failure, OpResult};
use crate::core::jitter::Jitter;
use crate::core::model::key_ref::KeyRef;
use crate::core::model::object::{Object, may_be_stuck};
use crate::core::model::objects::Objects;
use crate::core::model::removal::Removal;
use crate::core::model::turn::Turn;

/// Between two passes over everything that is not known to be at rest. Events should make them needless.
const PASS_EVERY: Duration = Duration::from_mins(10);

/// The state of this room. What it says of an object's turn, and the object of itself, is changed together.
#[derive(Debug, Default)]
pub(in crate::core) struct Work {
    last: u64,
    in_flight: BTreeMap<OpId, InFlight>,
    limiter: ConcurrencyLimiter,
    /// By wave.
    ready: BTreeMap<i32, BTreeSet<KeyRef>>,
    removals: BTreeSet<(Reverse<i32>, Tombstone)>,
    reads: BTreeMap<ObjectKey, ReadFor>,
    /// Marks that may name a former target, where nothing is applied.
    marks: BTreeSet<ObjectKey>,
    retries: BTreeSet<(Monotonic, ObjectKey)>,
    removal_retries: BTreeSet<(Monotonic, Tombstone)>,
    /// How many entries of each wave were not tried since they changed.
    untried: Counts<i32>,
    removal_waves: RemovalWaves,
    /// What waits for a namespace.
    awaiting_namespace: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    pass_at: Option<Monotonic>,
    timer: Option<Monotonic>,
}

/// What is first in a queue, as far as the limiter allows.
#[derive(Debug)]
pub(in crate::core) enum Next<T> {
    /// It was taken out.
    Admitted(T),
    /// It was taken out, to wait: a webhook that is asked about it does not answer.
    Stuck(T),
    /// There is none, or it waits in the queue until something ends.
    None,
}

/// An operation that ended.
#[derive(Debug)]
pub(in crate::core) struct Landed {
    pub(in crate::core) in_flight: InFlight,
    pub(in crate::core) result: OpResult,
    /// What need not wait for a webhook any longer.
    pub(in crate::core) freed: BTreeSet<ObjectKey>,
}

/// Objects, and when each is looked at.
impl Work {
    /// Puts an object in the queue that is in none.
    pub(in crate::core) fn enqueue(&mut self, object: &mut Object, entry: &Arc<Entry>) {
        object.work.enqueue(entry.wave);
        self.ready.entry(entry.wave).or_default().insert(KeyRef::Of(Arc::clone(entry)));
    }

    /// Has an object tried again by then that is in no queue.
    pub(in crate::core) fn wait(&mut self, object: &mut Object, key: &ObjectKey, until: Monotonic) {
        object.work.wait(until);
        self.retries.insert((until, key.clone()));
    }

    /// The same of one that has failed: what it failed for may be over sooner.
    pub(in crate::core) fn back_off(&mut self, object: &mut Object, key: &ObjectKey, until: Monotonic) {
        self.wait(object, key, until);
        if object.outcome.reason == Some(Reason::NamespaceUnavailable) && key.is_namespaced() {
            self.awaiting_namespace.entry(Arc::clone(&key.namespace)).or_default().insert(key.clone());
        }
        if may_be_stuck(&object.outcome) {
            self.limiter.failed(key);
        }
    }

    /// Takes an object out of queue and retries.
    pub(in crate::core) fn dequeue(&mut self, object: &mut Object, key: &ObjectKey) {
        match object.work.dequeue() {
            Turn::Queued { wave } => self.unqueue(wave, key),
            Turn::Waiting { until } => {
                self.retries.remove(&(until, key.clone()));
            }
            Turn::Idle => {}
        }
        self.limiter.forget(key);
        if let Some(awaiting_namespace) = self.awaiting_namespace.get_mut(&key.namespace) {
            awaiting_namespace.remove(key);
            if awaiting_namespace.is_empty() {
                self.awaiting_namespace.remove(&key.namespace);
            }
        }
    }

    fn unqueue(&mut self, wave: i32, key: &ObjectKey) {
        if let Some(names) = self.ready.get_mut(&wave) {
            names.remove(key);
            if names.is_empty() {
                self.ready.remove(&wave);
            }
        }
    }

    /// Takes the first object out of the queue whose wave may go and whose kind has not its share under way.
    pub(in crate::core) fn take_ready(&mut self, objects: &mut Objects) -> Option<ObjectKey> {
        let Self { ready, limiter, untried, .. } = self;
        // Every entry of the lower waves must have been tried.
        let last = untried.keys().next().copied().unwrap_or(i32::MAX);
        let (wave, key) =
            ready.range(..=last).find_map(|(wave, names)| Some((*wave, limiter.first_admitted(names)?)))?;
        self.unqueue(wave, &key);
        if let Some(object) = objects.get_mut(&key) {
            object.work.take_turn();
        }
        Some(key)
    }

    /// Takes an object out of the retries whose time has come.
    pub(in crate::core) fn take_retry(&mut self, now: Monotonic) -> Option<ObjectKey> {
        self.retries.first().filter(|(at, _)| *at <= now)?;
        self.retries.pop_first().map(|(_, key)| key)
    }

    /// What waited for this namespace.
    pub(in crate::core) fn take_awaiting(&mut self, namespace: &Arc<str>) -> BTreeSet<ObjectKey> {
        self.awaiting_namespace.remove(namespace).unwrap_or_default()
    }

    /// There is another entry in this wave. Later waves wait until it is tried.
    pub(in crate::core) fn untried(&mut self, wave: i32) {
        self.untried.up(wave);
    }

    /// An entry of this wave was tried, well or not, or is gone.
    pub(in crate::core) fn tried(&mut self, wave: i32) {
        self.untried.down(&wave);
    }

    /// Whether no entry is left to be tried. Removals wait for that.
    pub(in crate::core) fn all_tried(&self) -> bool {
        self.untried.is_empty()
    }

    /// Has an object read. Of several reasons the one that leads to most counts.
    pub(in crate::core) fn read(&mut self, key: ObjectKey, what_for: ReadFor) {
        let known = self.reads.entry(key).or_insert(what_for);
        *known = (*known).max(what_for);
    }

    pub(in crate::core) fn take_read(&mut self) -> Option<(ObjectKey, ReadFor)> {
        self.reads.pop_first()
    }

    pub(in crate::core) fn is_to_read(&self) -> bool {
        !self.reads.is_empty()
    }

    /// The mark of an object may name a former target.
    pub(in crate::core) fn mark(&mut self, key: ObjectKey) {
        self.marks.insert(key);
    }

    pub(in crate::core) fn next_mark(&mut self) -> Next<ObjectKey> {
        let Some(key) = self.marks.first() else { return Next::None };
        let admission = self.limiter.admits(key);
        next(admission, &mut self.limiter, || self.marks.pop_first())
    }
}

/// Removals, and when each is judged.
impl Work {
    /// Has a removal judged as soon as its wave may go.
    pub(in crate::core) fn enqueue_removal(&mut self, removal: &mut Removal, tombstone: &Tombstone) {
        self.dequeue_removal(removal, tombstone);
        removal.enqueue();
        self.removals.insert((Reverse(removal.wave()), tombstone.clone()));
    }

    /// As [`Objects::pack`], for removals that came all at once.
    pub(in crate::core) fn pack(&mut self) {
        self.removals = std::mem::take(&mut self.removals).into_iter().collect();
    }

    /// Takes a removal out of queue and retries.
    pub(in crate::core) fn dequeue_removal(&mut self, removal: &mut Removal, tombstone: &Tombstone) {
        match removal.dequeue() {
            Turn::Queued { wave } => {
                self.removals.remove(&(Reverse(wave), tombstone.clone()));
            }
            Turn::Waiting { until } => {
                self.removal_retries.remove(&(until, tombstone.clone()));
            }
            Turn::Idle => {}
        }
    }

    /// Has a removal tried again by then, and not before that.
    pub(in crate::core) fn retry_removal(&mut self, removal: &mut Removal, tombstone: &Tombstone, at: Monotonic) {
        self.dequeue_removal(removal, tombstone);
        removal.back_off(at);
        self.removal_retries.insert((at, tombstone.clone()));
    }

    /// Takes a removal out of the retries whose time has come.
    pub(in crate::core) fn take_removal_retry(&mut self, now: Monotonic) -> Option<Tombstone> {
        self.removal_retries.first().filter(|(at, _)| *at <= now)?;
        self.removal_retries.pop_first().map(|(_, tombstone)| tombstone)
    }

    /// The first removal, unless its wave has to wait.
    pub(in crate::core) fn first_removal(&self, now: Monotonic) -> Option<Tombstone> {
        let (Reverse(wave), tombstone) = self.removals.first()?;
        let waits = self.removal_waves.awaited_by(now, *wave).is_some() || !self.all_tried();
        (!waits).then(|| tombstone.clone())
    }

    pub(in crate::core) fn next_removal(&mut self, removals: &mut BTreeMap<Tombstone, Removal>) -> Next<Tombstone> {
        let Some((_, tombstone)) = self.removals.first() else { return Next::None };
        let admission = self.limiter.admits(&tombstone.key);
        next(admission, &mut self.limiter, || {
            let (_, tombstone) = self.removals.pop_first()?;
            if let Some(removal) = removals.get_mut(&tombstone) {
                removal.take_turn();
            }
            Some(tombstone)
        })
    }

    /// A removal of this wave waits for the disk.
    pub(in crate::core) fn hold_wave(&mut self, now: Monotonic, wave: i32) {
        self.removal_waves.begins(now, wave);
        self.removal_waves.joins(now, wave);
    }

    /// It has waited, whatever came of it: how long the disk took is no time in which the removal was tried.
    pub(in crate::core) fn release_wave(&mut self, now: Monotonic, wave: i32) {
        self.removal_waves.ends(now, wave, StepEnd::Done);
    }

    /// A removal of this wave is tried for the first time.
    pub(in crate::core) fn joins_wave(&mut self, now: Monotonic, wave: i32) {
        self.removal_waves.joins(now, wave);
    }

    /// A removal of this wave is tried again at this moment.
    pub(in crate::core) fn tries_wave_again(&mut self, wave: i32, at: Monotonic) {
        self.removal_waves.tries_again(wave, at);
    }

    /// An object of this wave is deleted, and waits for its finalizers.
    pub(in crate::core) fn finalizes(&mut self, now: Monotonic, wave: i32) {
        self.removal_waves.finalizes(now, wave);
    }

    /// It no longer waits: it is gone since this moment, or nobody asks for its removal any more.
    pub(in crate::core) fn finalized(&mut self, gone: Option<Monotonic>, wave: i32) {
        self.removal_waves.finalized(gone, wave);
    }

    /// When the wave that removals wait for is told, or given up.
    pub(in crate::core) fn next_wave_due(&self, now: Monotonic) -> Option<Monotonic> {
        let (Reverse(wave), _) = self.removals.first()?;
        self.removal_waves.next_due(now, *wave)
    }

    /// The wave that removals have been waiting for, if it is in the way for long.
    pub(in crate::core) fn awaited_wave(&self, now: Monotonic) -> Option<TargetCondition> {
        let (Reverse(wave), _) = self.removals.first()?;
        let waiting = self.removals.len();
        let awaited = match self.removal_waves.told_to(now, *wave)? {
            Awaited::Removing { wave, count } => {
                let of = self.in_flight.values().find(|op| op.purpose.removal().is_some_and(|(_, its)| its == wave));
                let example = of.map(|op| format!(", such as that of {}", op.key)).unwrap_or_default();
                format!("{count} removals of wave {wave} that are not answered{example}")
            }
            Awaited::Finalizing { wave, count } => format!("the finalizers of {count} objects of wave {wave}"),
        };
        let message = format!("{waiting} removals of lower waves wait for {awaited}");
        Some(TargetCondition { reason: Reason::WaitingForWave, count: waiting as u64, message })
    }
}

/// What is under way.
impl Work {
    /// Whether another operation may begin.
    pub(in crate::core) fn has_room(&mut self, now: Monotonic) -> bool {
        self.limiter.aimd.has_room(now, self.in_flight.len())
    }

    /// What is left in the queues waits for what is under way.
    pub(in crate::core) fn ran_out_of_room(&mut self) {
        if self.is_to_read() || !self.ready.is_empty() || !self.removals.is_empty() || !self.marks.is_empty() {
            self.limiter.aimd.is_full();
        }
    }

    /// Whether a write of this object would wait for a webhook that does not answer for others.
    pub(in crate::core) fn is_stuck(&self, key: &ObjectKey) -> bool {
        self.limiter.admits(key) == Admission::Stuck
    }

    /// Has an object wait until its kind is not stuck there any more. Returns why it is.
    pub(in crate::core) fn wait_for_webhook(&mut self, key: &ObjectKey) -> Option<StuckFor> {
        self.limiter.wait(key)
    }

    /// An operation on this object begins. `seen` is what is known to stand there.
    pub(in crate::core) fn start_operation(
        &mut self,
        now: Monotonic,
        key: &ObjectKey,
        purpose: Purpose,
        seen: Option<SeenVersion>,
    ) -> OpId {
        self.last += 1;
        let id = OpId(self.last);
        if let Some((_, wave)) = purpose.removal() {
            self.removal_waves.begins(now, wave);
        }
        self.limiter.began(key, purpose.access());
        self.in_flight.insert(id, InFlight { key: key.clone(), purpose, begun: now, seen });
        id
    }

    /// An operation that waited for the disk goes out now. False if it was called off.
    pub(in crate::core) fn goes_out(&mut self, now: Monotonic, id: OpId) -> bool {
        let waiting = self.in_flight.get_mut(&id);
        // How long the disk took says nothing of the API server.
        waiting.map(|in_flight| in_flight.begun = now).is_some()
    }

    /// An operation has ended. None if it is not under way.
    pub(in crate::core) fn land(
        &mut self,
        now: Monotonic,
        id: OpId,
        result: OpResult,
        jitter: &mut Jitter,
    ) -> Option<Landed> {
        let in_flight = self.in_flight.remove(&id)?;
        let InFlight { key, purpose, begun, seen: _ } = &in_flight;
        self.limiter.finished(key, purpose.access());
        if let Some((_, wave)) = purpose.removal() {
            let done = matches!(result, OpResult::Delete(Ok(_)) | OpResult::Orphan(Ok(_)));
            self.removal_waves.ends(now, wave, if done { StepEnd::Done } else { StepEnd::Undone });
        }
        let took = now.since(*begun);
        let op = (id, key, purpose.access(), took);
        let freed = self.limiter.judge(now, op, &result, self.last(), jitter);
        let unanswered = Sign::of(&result, took) == Sign::Unanswered;
        let result = if unanswered { result.map_failure(without_answer) } else { result };
        Some(Landed { in_flight, result, freed })
    }

    /// Takes back what was begun and not sent.
    pub(in crate::core) fn call_off(&mut self, id: OpId) -> Option<InFlight> {
        let in_flight = self.in_flight.remove(&id)?;
        self.limiter.finished(&in_flight.key, in_flight.purpose.access());
        Some(in_flight)
    }

    /// The removal that an operation is a step of.
    pub(in crate::core) fn removal_of(&self, id: OpId) -> Option<&Tombstone> {
        self.in_flight.get(&id)?.purpose.removal().map(|(tombstone, _)| tombstone)
    }

    pub(in crate::core) fn policies_in_flight(&self) -> impl Iterator<Item = Digest> {
        self.in_flight.values().filter_map(|in_flight| in_flight.purpose.policy())
    }

    pub(in crate::core) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// The operation that was begun last.
    pub(in crate::core) fn last(&self) -> OpId {
        OpId(self.last)
    }

    /// How much the API server is asked at once.
    pub(in crate::core) fn concurrency(&self) -> ConcurrencyReading {
        self.limiter.aimd.reading()
    }
}

/// When there is something to do without an event.
impl Work {
    pub(in crate::core) fn next_retry(&self) -> Option<Monotonic> {
        let retry = self.retries.first().map(|(at, _)| *at);
        let removal = self.removal_retries.first().map(|(at, _)| *at);
        [retry, removal, self.pass_at, self.limiter.aimd.resume_at()].into_iter().flatten().min()
    }

    pub(in crate::core) fn set_timer(&mut self, at: Option<Monotonic>, out: &mut Effects) {
        if let Some(at) = at
            && self.timer != Some(at)
        {
            self.timer = Some(at);
            out.push(Effect::SetTimer { timer: Timer::Retry, at });
        }
    }

    pub(in crate::core) fn timer_fired(&mut self) {
        self.timer = None;
    }

    /// The API server may be asked again, if it is time for that.
    pub(in crate::core) fn resume(&mut self, now: Monotonic) {
        self.limiter.aimd.resume(now);
    }

    /// Has everything that is not known to be at rest looked at after a while.
    pub(in crate::core) fn schedule_pass(&mut self, now: Monotonic) {
        self.pass_at.get_or_insert(now + PASS_EVERY);
    }

    /// Whether everything that is not known to be at rest is to be looked at now.
    pub(in crate::core) fn take_pass(&mut self, now: Monotonic) -> bool {
        self.pass_at.take_if(|at| *at <= now).is_some()
    }
}

impl Core {
    /// Has an object looked at now: its entry, and its removals.
    pub(in crate::core) fn enqueue(&mut self, key: &ObjectKey) {
        self.enqueue_entry(key);
        self.enqueue_removals(key);
        self.enqueue_mark(key);
    }

    /// Has its entry looked at now.
    pub(in crate::core) fn enqueue_entry(&mut self, key: &ObjectKey) {
        self.model.compact_if_many();
        let Some(object) = self.model.objects.get_mut(key) else { return };
        self.work.dequeue(object, key);
        if let Some(entry) = self.model.desired.get(key) {
            self.work.enqueue(object, entry);
        }
        self.take_up(key);
        self.look_for(key);
    }

    /// Takes an object out of queue and retries.
    pub(in crate::core) fn dequeue(&mut self, key: &ObjectKey) {
        if let Some(object) = self.model.objects.get_mut(key) {
            self.work.dequeue(object, key);
        }
    }

    /// A namespace is there: what waited for it is looked at.
    pub(in crate::core) fn wake_namespace(&mut self, namespace: &Arc<str>) {
        for key in self.work.take_awaiting(namespace) {
            self.enqueue(&key);
        }
    }
}

/// What an admission means for what is first in a queue.
fn next<T>(admission: Admission, limiter: &mut ConcurrencyLimiter, take: impl FnOnce() -> Option<T>) -> Next<T> {
    match admission {
        Admission::Free => take().map_or(Next::None, Next::Admitted),
        Admission::Stuck => take().map_or(Next::None, Next::Stuck),
        Admission::Full => {
            limiter.aimd.is_full();
            Next::None
        }
    }
}

/// A failure of a write that got no answer. An API server that gave it up for its webhooks says the same as one that has no time;
/// but this one has waited as long as it may, so that it was tried.
fn without_answer(failure: Failure) -> Failure {
    let Failure { reason, message, retry_after, fate } = failure;
    let message = if reason == Reason::Throttled {
        format!("the API server gave up the request, perhaps because admission webhooks do not answer: {message}")
    } else {
        message
    };
    Failure { reason: Reason::Unavailable, message, retry_after, fate }
}

#[cfg(test)]
mod tests;
