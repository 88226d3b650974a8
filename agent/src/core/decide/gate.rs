//! Readiness gates: a wave starts when all lower waves of its Placement are ready, or past their deadline. New writes wait;
//! corrections of drift do not.
//!
//! ```text
//!  waves of one Placement:  -40 ready   0 not ready ◀─ the front   20 held   40 held
//!                                         │ ready, or given up after its deadline
//!                                         ▼
//!                                       0 open      20 goes, and is the front      40 held
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tideline_common::health::{Health, is_ready_by_itself};
use tideline_common::wire::v1::{Progress, TargetCondition, Terminal};
use tideline_common::{ApplyMode, ApplyPolicy, Entry, EntryState, Gate, Monotonic, ObjectKey, Reason, Tombstone};

use super::plan;
use crate::core::model::Model;
use crate::core::model::object::Object;
use crate::core::model::removal::Removal;

/// The gates of all Placements that have one.
#[derive(Debug, Default)]
pub(in crate::core) struct Gates {
    groups: BTreeMap<String, Group>,
    /// Placements with waiting objects that may go.
    changed: BTreeSet<String>,
    /// Removals that waited and may go.
    freed: BTreeSet<Tombstone>,
    /// Nothing begins for now, so no deadline runs.
    paused: bool,
}

/// The objects of one Placement.
#[derive(Debug, Default)]
struct Group {
    deadline: Duration,
    waves: BTreeMap<i32, Wave>,
    held: BTreeSet<(i32, ObjectKey)>,
    /// Since when something is held, and nothing that was held has gone.
    stuck_since: Option<Monotonic>,
    /// Removals of its former objects, which wait until nothing is held.
    removals: BTreeSet<Tombstone>,
}

#[derive(Debug, Default)]
struct Wave {
    members: usize,
    unready: BTreeSet<ObjectKey>,
    /// Since when something waits for it.
    since: Option<Monotonic>,
    /// Its deadline is over.
    given_up: bool,
}

/// What an object waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) struct Barrier {
    pub(in crate::core) placement: String,
    pub(in crate::core) wave: i32,
    /// One of those that are not ready.
    pub(in crate::core) example: ObjectKey,
}

impl Gates {
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether anything waits.
    pub(in crate::core) fn hold_any(&self) -> bool {
        self.groups.values().any(|group| !group.held.is_empty())
    }

    /// An entry is in the set, and not ready. A wave that was given up is waited for again; objects that wait already wait no
    /// longer for it than they would have.
    fn join(&mut self, gates: &[Gate], wave: i32, key: &ObjectKey) {
        for Gate { placement, deadline_seconds } in gates {
            let group = self.groups.entry(placement.clone()).or_default();
            group.deadline = Duration::from_secs(u64::from(*deadline_seconds));
            let wave = group.waves.entry(wave).or_default();
            wave.members += 1;
            wave.unready.insert(key.clone());
            wave.given_up = false;
            self.changed.insert(placement.clone());
        }
    }

    /// The entry is not in the set any more, or is another.
    fn leave(&mut self, gates: &[Gate], wave: i32, key: &ObjectKey) {
        for Gate { placement, .. } in gates {
            let Some(group) = self.groups.get_mut(placement) else { continue };
            group.held.remove(&(wave, key.clone()));
            if let Some(left) = group.waves.get_mut(&wave) {
                left.members = left.members.saturating_sub(1);
                left.unready.remove(key);
            }
            if group.waves.values().all(|wave| wave.members == 0) {
                self.freed.extend(self.groups.remove(placement).into_iter().flat_map(|group| group.removals));
            } else {
                self.changed.insert(placement.clone());
            }
        }
    }

    fn tell(&mut self, gates: &[Gate], wave: i32, key: &ObjectKey, ready: bool) {
        for Gate { placement, .. } in gates {
            let Some(wave) = self.groups.get_mut(placement).and_then(|group| group.waves.get_mut(&wave)) else {
                continue;
            };
            if !ready {
                wave.unready.insert(key.clone());
            } else if wave.unready.remove(key) && wave.unready.is_empty() {
                wave.since = None;
                wave.given_up = false;
                self.changed.insert(placement.clone());
            }
        }
    }

    /// Whether an object of this wave waits, and for what. It does until [`Gates::take_released`] names it.
    fn hold(&mut self, now: Monotonic, gates: &[Gate], wave: i32, key: &ObjectKey) -> Option<Barrier> {
        let mut barrier = None;
        for Gate { placement, .. } in gates {
            let Some(group) = self.groups.get_mut(placement) else { continue };
            let Some((front, blocking)) = group.waves.iter_mut().find(|(_, wave)| wave.blocks()) else { continue };
            let Some(example) = blocking.unready.first().filter(|_| *front < wave) else { continue };
            blocking.since.get_or_insert(now);
            let example = example.clone();
            let front = *front;
            group.held.insert((wave, key.clone()));
            group.stuck_since.get_or_insert(now);
            barrier.get_or_insert(Barrier { placement: placement.clone(), wave: front, example });
        }
        barrier
    }

    /// Whether a removal from one of these Placements waits, and for what: its replacement may be among the held objects. It
    /// does until [`Gates::take_freed`] names it.
    fn hold_removal(&mut self, gates: &[Gate], tombstone: &Tombstone) -> Option<String> {
        for Gate { placement, .. } in gates {
            if let Some(group) = self.groups.get_mut(placement).filter(|group| !group.held.is_empty()) {
                group.removals.insert(tombstone.clone());
                let what = group.waits_for(placement).unwrap_or_else(|| format!("waves of Placement {placement}"));
                return Some(format!(
                    "removal waits until its possible replacement is applied, which waits for {what}"
                ));
            }
        }
        None
    }

    pub(in crate::core) fn take_freed(&mut self) -> BTreeSet<Tombstone> {
        std::mem::take(&mut self.freed)
    }

    pub(in crate::core) fn pause(&mut self) {
        self.paused = true;
    }

    /// Waves that were waited for while nothing could begin get their full time from now on.
    pub(in crate::core) fn resume(&mut self, now: Monotonic) {
        if std::mem::take(&mut self.paused) {
            for group in self.groups.values_mut() {
                let waves = group.waves.values_mut().map(|wave| &mut wave.since);
                waves.chain([&mut group.stuck_since]).flatten().for_each(|since| *since = now);
            }
        }
    }

    /// Gives up on waves whose deadline is over.
    pub(in crate::core) fn due(&mut self, now: Monotonic) {
        for (placement, group) in &mut self.groups {
            if group.held.is_empty() {
                // The objects that waited have left.
                group.stuck_since = None;
                group.waves.values_mut().for_each(|wave| wave.since = None);
                continue;
            }
            let (deadline, all_had_time) = (group.deadline, group.stuck_until().is_some_and(|until| until <= now));
            let first_held = group.held.first().map_or(i32::MAX, |(wave, _)| *wave);
            for (number, wave) in &mut group.waves {
                let had_time = wave.since.is_some_and(|since| since + deadline <= now);
                // Waves that wait themselves have had no time.
                if had_time || (all_had_time && *number < first_held && wave.blocks()) {
                    wave.since = None;
                    wave.given_up = true;
                    self.changed.insert(placement.clone());
                }
            }
        }
    }

    pub(in crate::core) fn next_due(&self) -> Option<Monotonic> {
        let due = |group: &Group| {
            let deadline = group.deadline;
            let waves = group.waves.values().filter_map(move |wave| Some(wave.since? + deadline));
            waves.chain(group.stuck_until()).min()
        };
        self.groups.values().filter_map(due).min()
    }

    /// Objects that waited and are to be evaluated again. Those that go on waiting have a deadline.
    pub(in crate::core) fn take_released(&mut self, now: Monotonic) -> BTreeSet<ObjectKey> {
        let mut released = BTreeSet::new();
        for placement in std::mem::take(&mut self.changed) {
            let Some(group) = self.groups.get_mut(&placement) else { continue };
            group.waves.retain(|_, wave| wave.members > 0);
            group.waves.values_mut().filter(|wave| !wave.blocks()).for_each(|wave| wave.since = None);
            let mut blocking = group.waves.iter_mut().find(|(_, wave)| wave.blocks());
            let front = blocking.as_ref().map_or(i32::MAX, |(wave, _)| **wave);
            while group.held.first().is_some_and(|(wave, _)| *wave <= front) {
                released.extend(group.held.pop_first().map(|(_, key)| key));
                group.stuck_since = (!group.held.is_empty()).then_some(now);
            }
            if group.held.is_empty() {
                // They are judged again, and may wait again: the entry that left may have been replaced by another for the same
                // object.
                self.freed.append(&mut group.removals);
            } else if let Some((_, wave)) = &mut blocking {
                wave.since.get_or_insert(now);
            }
        }
        released
    }

    /// Waves that were given up, with one of the objects that are not ready.
    fn given_up(&self) -> impl Iterator<Item = (&str, &Group, i32, &Wave)> {
        self.groups.iter().flat_map(|(placement, group)| {
            let given_up = group.waves.iter().filter(|(_, wave)| wave.given_up);
            given_up.map(move |(number, wave)| (placement.as_str(), group, *number, wave))
        })
    }

    /// An entry is in the set from now on.
    pub(in crate::core) fn enter(&mut self, model: &Model, entry: &Entry) {
        if let Some(policy) = model.policies.get(&entry.policy) {
            self.join(&policy.gates, entry.wave, &entry.key);
        }
    }

    /// An entry leaves the set, or another is put in its place.
    pub(in crate::core) fn exit(&mut self, model: &Model, entry: &Entry) {
        if let Some(policy) = model.policies.get(&entry.policy) {
            self.leave(&policy.gates, entry.wave, &entry.key);
        }
    }

    /// Something about an object changed: perhaps it is ready now, or is not any more.
    pub(in crate::core) fn update(&mut self, model: &Model, key: &ObjectKey) {
        if self.is_empty() {
            return;
        }
        let (Some(entry), Some(object)) = (model.desired.get(key), model.objects.get(key)) else { return };
        let Some(policy) = model.policies.get(&entry.policy).filter(|policy| !policy.gates.is_empty()) else {
            return;
        };
        // A create-only object may have been unassigned meanwhile, and is then created anew.
        let again = Tombstone { key: key.clone(), source: entry.source.uid.clone() };
        let judged = model.removals.get(&again).is_none_or(Removal::is_done);
        self.tell(&policy.gates, entry.wave, key, judged && is_ready(entry, policy, &object));
    }

    /// Whether a write waits for an earlier wave, and for which.
    pub(in crate::core) fn holds_write(&mut self, now: Monotonic, model: &Model, entry: &Entry) -> Option<String> {
        let policy = model.policies.get(&entry.policy).filter(|policy| !policy.gates.is_empty())?;
        let Barrier { placement, wave, example } = self.hold(now, &policy.gates, entry.wave, &entry.key)?;
        let why = why_unready(model, &example);
        Some(format!("wave {wave} of Placement {placement} is not ready: {example}: {why}"))
    }

    /// Whether a removal waits for a wave of a Placement that had the object, and for which.
    pub(in crate::core) fn holds_removal(&mut self, model: &Model, tombstone: &Tombstone) -> Option<String> {
        // An object that is assigned again is not removed: that must be known before it is created anew.
        if self.is_empty() || model.is_assigned_again(tombstone) {
            return None;
        }
        let recorded = model.objects.get(&tombstone.key).and_then(|object| Some(object.record.as_ref()?.policy));
        let last = model.removals.get(tombstone).and_then(Removal::last_policy);
        let policy = last.or(recorded).and_then(|policy| model.policies.get(&policy))?;
        self.hold_removal(&policy.gates, tombstone)
    }

    /// Placements in which something waits for a wave, and those whose waves went on though an earlier one was not ready.
    pub(in crate::core) fn conditions(&self, model: &Model) -> impl Iterator<Item = TargetCondition> {
        let waiting = self.groups.iter().filter(|(_, group)| !group.held.is_empty());
        let waiting = waiting.filter_map(|(placement, group)| {
            let count = group.held.len() + group.removals.len();
            let message = format!("{count} objects wait for {}", group.waits_for(placement)?);
            Some(TargetCondition { reason: Reason::WaitingForWave, count: count as u64, message })
        });
        let given_up = self.given_up().map(|(placement, group, number, wave)| {
            let example = wave.unready.first();
            let example = example.map(|key| format!(": {key}: {}", why_unready(model, key))).unwrap_or_default();
            TargetCondition {
                reason: Reason::WaitingForWave,
                count: wave.unready.len() as u64,
                message: format!(
                    "wave {number} of Placement {placement} was not ready within {} s{example}; the next wave was started",
                    group.deadline.as_secs()
                ),
            }
        });
        given_up.chain(waiting)
    }
}

impl Group {
    /// The wave that is not ready, with one of its objects.
    fn waits_for(&self, placement: &str) -> Option<String> {
        let (number, wave) = self.waves.iter().find(|(_, wave)| wave.blocks())?;
        let example = wave.unready.first()?;
        Some(format!("wave {number} of Placement {placement}: {example} is not ready"))
    }

    /// By when each wave in turn has had its time, whatever joined meanwhile: nothing waits longer than that.
    fn stuck_until(&self) -> Option<Monotonic> {
        // A wave that has just lost its last member may get it back in the same change, and is kept until then.
        let waves = self.waves.values().filter(|wave| wave.members > 0).count();
        let waves = u32::try_from(waves).unwrap_or(u32::MAX);
        Some(self.stuck_since? + self.deadline.saturating_mul(waves.max(1)))
    }
}

impl Wave {
    fn blocks(&self) -> bool {
        !self.unready.is_empty() && !self.given_up
    }
}

fn why_unready(model: &Model, key: &ObjectKey) -> String {
    let Some(object) = model.objects.get(key) else { return "it is not there yet".to_owned() };
    let why = match (object.outcome.message.as_str(), object.live.message.as_str()) {
        (message, _) if !message.is_empty() && object.outcome.progress != Progress::Applied => message,
        (_, message) if !message.is_empty() => message,
        (_, _) => "it is not ready yet",
    };
    why.to_owned()
}

/// Whether an entry was carried out and its object is healthy. An entry that is not to be applied delays nobody.
fn is_ready(entry: &Entry, policy: &ApplyPolicy, object: &Object) -> bool {
    match entry.state {
        EntryState::Hold(_) | EntryState::Withheld(_) => return true,
        EntryState::Apply => {}
    }
    if object.outcome.progress != Progress::Applied {
        return false;
    }
    let terminal = object.happened(&entry.source.uid);
    let current = object.record.as_ref().is_some_and(|record| match policy.mode {
        ApplyMode::CreateOnly => record.source == entry.source.uid,
        ApplyMode::Continuous => plan::is_as_recorded(entry, record),
    });
    match (object.seen(), terminal) {
        (Some(_), _) => current && (object.live.health == Health::Ready || !is_ready_by_itself(&entry.key.kind)),
        // Done once, and gone by now: a Job that was cleaned up.
        (None, Some(Terminal::Finished | Terminal::CreatedOnce)) => true,
        // Nobody has seen whether it ended.
        (None, Some(Terminal::Started)) => policy.mode == ApplyMode::CreateOnly,
        (None, Some(Terminal::MayHaveRun | Terminal::Released | Terminal::Unknown) | None) => false,
    }
}

#[cfg(test)]
mod tests;
