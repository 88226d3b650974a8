//! Counts what can be disturbed, and disturbs it once, for a plan.

use std::collections::BTreeMap;

use tideline_agent::core::{Applied, Created, Effect, Event, Observed, Op, OpResult, Orphaned, OwnershipTransferred};
use tideline_agent::simulated_cluster::{Cluster, Local};
use tideline_common::wire::v1::Refusal;
use tideline_common::{GroupKind, ObjectKey};
use tideline_hub::link::core as link;

use super::effects::{self, AgentEffect, HubEffect};
use super::plan::{Absence, Disturbance, When};
use crate::journal::Journal;

/// What happened in a run, by number: the points at which another run of the same workload can be disturbed.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) agent: Vec<Happened>,
    pub(crate) hub: Vec<HubEffect>,
    /// The events that watches showed.
    pub(crate) news: Vec<ObjectKey>,
    /// Of each poll: how many commits there were.
    pub(crate) polls: Vec<usize>,
    /// Of each poll: how many polls were answered before.
    pub(crate) answers: Vec<usize>,
    pub(crate) messages: usize,
}

/// An effect of the agent.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) kinds: Vec<AgentEffect>,
    /// After how many of its writes a crash may cut it.
    pub(crate) cuts: Vec<usize>,
}

/// Writes of an agent to one key of the cluster, as the API server counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    pub(crate) created: u64,
    pub(crate) applied: u64,
    /// Marks written by themselves that were not there before.
    pub(crate) marked: u64,
    pub(crate) orphaned: u64,
    /// Deletions that were accepted.
    pub(crate) deleted: u64,
}

/// How a process ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) when: When,
    /// What of its data directory the next process finds.
    pub(crate) leaves: Leaves,
    pub(crate) absence: Absence,
}

/// What a process that ends leaves in its data directory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leaves {
    All,
    /// So many writes of the last batch, and everything before it.
    Torn(usize),
    /// The directory is gone, and the identity is in the Secret.
    Nothing,
}

#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// The workload has begun.
    armed: bool,
    plan: Option<Disturbance>,
    pub(crate) struck: bool,
    pub(crate) record: Record,
    pub(crate) writes: BTreeMap<ObjectKey, Writes>,
    /// The resource version that the last write of an agent left.
    last: BTreeMap<ObjectKey, u64>,
    /// Writes that were done and that no agent knows of any more: they may be repeated.
    pub(crate) unacknowledged: BTreeMap<ObjectKey, u64>,
    lists: BTreeMap<GroupKind, BTreeMap<ObjectKey, Observed>>,
    /// Of each event: the list of its kind before it, and the event.
    news: Vec<(Vec<Observed>, Event)>,
    answers: Vec<Result<link::Answer, Refusal>>,
    /// The next first list of this kind is the one before these events.
    pub(crate) stale_start: Option<(GroupKind, usize)>,
}

impl Probe {
    pub(crate) fn new(plan: Option<Disturbance>) -> Self {
        Self { plan, ..Self::default() }
    }

    pub(crate) fn arm(&mut self, cluster: &Cluster) {
        self.armed = true;
        for key in cluster.objects.keys() {
            if !self.lists.contains_key(&key.kind) {
                let list = cluster.list(&key.kind).into_iter().map(|observed| (observed.key.clone(), observed));
                self.lists.insert(key.kind.clone(), list.collect());
            }
        }
        self.writes.clear();
    }

    /// The workload is over, and the world comes to rest. Writes are still counted.
    pub(crate) fn disarm(&mut self) -> Record {
        self.armed = false;
        std::mem::take(&mut self.record)
    }

    fn strike<T>(&mut self, at: impl FnOnce(&Disturbance) -> Option<T>) -> Option<T> {
        let outcome = at(self.plan.as_ref().filter(|_| !self.struck)?);
        self.struck |= outcome.is_some();
        outcome
    }

    /// An effect of the agent is to be carried out. Returns how the agent ends over it, if it does.
    pub(crate) fn agent_effect(&mut self, effect: &Effect) -> Option<End> {
        if !self.armed {
            return None;
        }
        let number = self.record.agent.len();
        self.record.agent.push(Happened { kinds: effects::of_agent(effect), cuts: effects::cuts(effect) });
        self.strike(|plan| {
            let (at, when, leaves, absence) = match *plan {
                Disturbance::Agent { when, effect, absence } => (effect, when, Leaves::All, absence),
                Disturbance::Emptied { effect } => (effect, When::After, Leaves::Nothing, Absence::Brief),
                Disturbance::Torn { effect, writes } => (effect, When::After, Leaves::Torn(writes), Absence::Brief),
                ref _another => return None,
            };
            (at == number).then_some(End { when, leaves, absence })
        })
    }

    /// A message is sent. Returns whether it is lost.
    pub(crate) fn message(&mut self) -> bool {
        let number = self.record.messages;
        self.record.messages += usize::from(self.armed);
        let lost = Disturbance::Lost { message: number };
        self.armed && self.strike(|plan| (*plan == lost).then_some(())).is_some()
    }

    /// A poll arrives at a hub with so many commits. Returns which of its former states answers instead, or what.
    pub(crate) fn poll(&mut self, commits: usize) -> Option<Instead> {
        if !self.armed {
            return None;
        }
        let number = self.record.polls.len();
        self.record.polls.push(commits);
        self.record.answers.push(self.answers.len());
        self.strike(|plan| match *plan {
            Disturbance::StaleIndex { request, state } if request == number => Some(Instead::Former(state)),
            Disturbance::ReplayedIndex { request, answer } if request == number => Some(Instead::Replay(answer)),
            ref _another => None,
        })
    }

    pub(crate) fn answer(&self, number: usize) -> &Result<link::Answer, Refusal> {
        &self.answers[number]
    }

    pub(crate) fn answered(&mut self, answer: &Result<link::Answer, Refusal>) {
        if self.armed && matches!(answer, Ok(link::Answer::Desired(_))) {
            self.answers.push(answer.clone());
        }
    }

    /// A watch is to show an event.
    pub(crate) fn news(&mut self, event: &Event) -> Telling {
        if !self.armed {
            return Telling::AsUsual;
        }
        let (key, put) = match event {
            Event::Observed(observed) => (observed.key.clone(), Some((**observed).clone())),
            Event::Gone { key, .. } => (key.clone(), None),
            _ => panic!("this is no news: {event:?}"),
        };
        let number = self.record.news.len();
        let list = self.lists.entry(key.kind.clone()).or_default();
        self.news.push((list.values().cloned().collect(), event.clone()));
        match put {
            Some(observed) => drop(list.insert(key.clone(), observed)),
            None => drop(list.remove(&key)),
        }
        self.record.news.push(key);
        let telling = self.strike(|plan| match *plan {
            Disturbance::Deaf { news } if news == number => Some(Telling::Never),
            Disturbance::StaleList { news, state } if news == number => Some(Telling::Late(state)),
            Disturbance::StaleStart { news, state } if news == number => Some(Telling::AfterCrash(state)),
            ref _another => None,
        });
        telling.unwrap_or(Telling::AsUsual)
    }

    /// The list of a kind before these events, and the events of the kind since.
    pub(crate) fn former(&self, kind: &GroupKind, state: usize) -> (Vec<Observed>, Vec<Event>) {
        let since = self.news.iter().zip(&self.record.news).skip(state).filter(|(_, key)| key.kind == *kind);
        (self.news[state].0.clone(), since.map(|((_, event), _)| event.clone()).collect())
    }

    /// An operation was carried out; `before` is its object before that.
    pub(crate) fn finished(&mut self, op: &Op, result: &OpResult, before: Option<&Local>) {
        let stood = before.is_some_and(|local| !local.deleting);
        let (key, version) = match (op, result) {
            (Op::Create { entry, .. }, OpResult::Create(Ok(Created::Made(observed))))
            | (Op::Apply { entry, .. }, OpResult::Apply(Ok(Applied { observed, .. }))) => {
                (&entry.key, Some(&observed.resource_version))
            }
            (
                Op::TransferOwnership { entry, .. },
                OpResult::TransferOwnership(Ok(OwnershipTransferred::Marked(observed))),
            ) => {
                // Whether or not anybody hears of it: its record can be read from the cluster, and is not written again.
                let changed = before.is_some_and(|local| local.version.to_string() != *observed.resource_version);
                self.writes.entry(entry.key.clone()).or_default().marked += u64::from(changed);
                return;
            }
            (Op::Delete { key, .. }, OpResult::Delete(Ok(_))) if stood => (key, None),
            (Op::Orphan { key, .. }, OpResult::Orphan(Ok(Orphaned::Done))) => (key, None),
            _ => return,
        };
        match version {
            Some(version) => drop(self.last.insert(key.clone(), version.parse().expect("it is a number"))),
            None => drop(self.last.remove(key)),
        }
        let writes = self.writes.entry(key.clone()).or_default();
        match op {
            Op::Create { .. } => writes.created += 1,
            Op::Apply { .. } => writes.applied += 1,
            Op::Delete { .. } => writes.deleted += 1,
            Op::Orphan { .. } => writes.orphaned += 1,
            Op::DryRunCreate { .. }
            | Op::TransferOwnership { .. }
            | Op::ReTarget { .. }
            | Op::Inspect { .. }
            | Op::Get { .. }
            | Op::Compare { .. } => {}
        }
    }

    /// An agent ended, and this is what the next one knows.
    pub(crate) fn agent_ended(&mut self, journal: &Journal) {
        for (key, version) in &self.last {
            let known = journal.applied.get(key).and_then(|record| record.resource_version.parse().ok());
            if known.is_none_or(|known: u64| known < *version) {
                *self.unacknowledged.entry(key.clone()).or_default() += 1;
            }
        }
        for tombstone in journal.removing.keys() {
            if self.writes.get(&tombstone.key).is_some_and(|writes| writes.orphaned > 0) {
                *self.unacknowledged.entry(tombstone.key.clone()).or_default() += 1;
            }
        }
        // Whatever comes of it, it is counted once.
        self.last.clear();
    }
}

/// The key that an operation is about.
pub(crate) fn place_of(op: &Op) -> &ObjectKey {
    match op {
        Op::Create { entry, .. }
        | Op::DryRunCreate { entry, .. }
        | Op::Apply { entry, .. }
        | Op::TransferOwnership { entry, .. }
        | Op::Compare { entry, .. } => &entry.key,
        Op::ReTarget { key, .. }
        | Op::Delete { key, .. }
        | Op::Orphan { key, .. }
        | Op::Inspect { key, .. }
        | Op::Get { key, .. } => key,
    }
}

/// What answers a poll instead of the hub.
#[derive(Debug)]
pub(crate) enum Instead {
    /// A replica that has heard of so many commits, and one more.
    Former(usize),
    /// This answer to an earlier one.
    Replay(usize),
}

/// Whether and how a watch shows an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Telling {
    AsUsual,
    Never,
    /// With all events since, after a list from before them.
    Late(usize),
    /// The same, to an agent that has just started.
    AfterCrash(usize),
}

/// How a hub ends, by the effects of its core and its writer.
#[derive(Debug, Default)]
pub(crate) struct HubProbe {
    pub(crate) armed: bool,
    plan: Option<Disturbance>,
    pub(crate) struck: bool,
    pub(crate) effects: Vec<HubEffect>,
    /// What was on the disk after each commit.
    pub(crate) commits: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl HubProbe {
    pub(crate) fn new(plan: Option<Disturbance>) -> Self {
        Self { plan, ..Self::default() }
    }

    /// Returns when the hub ends over this effect, and for how long, if it does.
    pub(crate) fn effect(&mut self, kind: HubEffect) -> Option<(When, Absence)> {
        if !self.armed {
            return None;
        }
        let number = self.effects.len();
        self.effects.push(kind);
        match self.plan {
            Some(Disturbance::Hub { when, effect, absence }) if effect == number => {
                self.struck = true;
                Some((when, absence))
            }
            Some(_) | None => None,
        }
    }
}
