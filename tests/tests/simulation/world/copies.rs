//! Two agents with one identity: a data directory was copied, or the Secret alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::{ApplyMode, Digest, Entry, InstanceId, ObjectKey, Uid};
use tideline_hub::link::core as link;

use super::{Agent, Happening, ToldMode, World};
use crate::faults::BAD_WIRE;
use crate::journal::Journal;

/// What of an agent is copied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Copied {
    Directory,
    /// The identity, without a journal.
    Secret,
}

/// Which of two agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Original,
    Copy,
}

impl Happening {
    /// The run of the agent that it happens to, if it concerns one.
    pub(super) fn run(&self) -> Option<u64> {
        match self {
            Self::Reply { to, .. } | Self::Unreached(to) => Some(to.run),
            Self::GiveUp { run, .. }
            | Self::AgentTimer { run, .. }
            | Self::Written { run }
            | Self::SessionKept { run }
            | Self::StoredSessionRead { run }
            | Self::Lands { run, .. }
            | Self::Ends { run, .. }
            | Self::Watch { run, .. }
            | Self::Relist { run, .. }
            | Self::Followed { run, .. }
            | Self::Refollow { run, .. }
            | Self::ListMetadata { run, .. }
            | Self::Killed { run }
            | Self::AgentStarts { run } => Some(*run),
            Self::Request(_)
            | Self::AgentEnds
            | Self::HubStarts
            | Self::HubWrites { .. }
            | Self::HubTimer { .. }
            | Self::Chore(_)
            | Self::OutageEnds
            | Self::PartitionEnds
            | Self::ShutOutEnds
            | Self::MoveEnds => None,
        }
    }
}

impl World {
    /// Has the following events concern the agent of this run.
    pub(super) fn turn_to(&mut self, run: Option<u64>) {
        if let Some(other) = &mut self.other
            && run == Some(other.run)
        {
            std::mem::swap(&mut self.agent, other);
        }
    }

    pub(super) fn for_each_agent(&mut self, mut does: impl FnMut(&mut Self)) {
        for _ in 0..=usize::from(self.other.is_some()) {
            does(self);
            if let Some(other) = &mut self.other {
                std::mem::swap(&mut self.agent, other);
            }
        }
    }

    /// Somebody copies the agent's data, and starts the copy in the same cluster.
    pub(crate) fn copy_agent(&mut self, what: Copied) {
        let journal = self.agent.journal.clone();
        self.start_copy(what, journal);
    }

    /// Starts a copy that was made of the agent, then or now.
    pub(crate) fn start_copy(&mut self, what: Copied, mut journal: Journal) {
        self.note(|| format!("a COPY of the agent is started: {what:?}"));
        if let Copied::Secret = what {
            journal.lose();
            self.lost_journal = true;
        }
        self.runs += 1;
        let copy = Agent { is_copy: true, ..Agent::new(self.runs, journal) };
        self.other = Some(Box::new(copy));
        let (run, after) = (self.runs, self.random.below(60_000));
        self.schedule(after, Happening::AgentStarts { run });
    }

    pub(crate) fn turn_to_the(&mut self, which: Which) {
        if let Some(other) = &mut self.other
            && other.is_copy == (which == Which::Copy)
        {
            std::mem::swap(&mut self.agent, other);
        }
    }

    /// The process ends, and is started again.
    pub(crate) fn restart(&mut self, which: Which) {
        self.turn_to_the(which);
        self.agent_crashes();
    }

    /// The process ends for good.
    pub(crate) fn stop(&mut self, which: Which) {
        self.turn_to_the(which);
        self.lose_agent();
        self.other = self.other.take().map(|other| {
            let stopped = std::mem::replace(&mut self.agent, *other);
            Box::new(stopped)
        });
    }

    /// Messages are lost, late, doubled and tampered with, until everything is healed.
    pub(crate) fn spoil_wire(&mut self) {
        self.note(|| "the wire is BAD".to_owned());
        self.faults = BAD_WIRE;
    }

    /// One of the two is partitioned from the hub, or connected again.
    pub(crate) fn set_cut_off(&mut self, which: Which, cut_off: bool) {
        self.note(|| format!("the {which:?} is cut off: {cut_off}"));
        self.turn_to_the(which);
        self.agent.cut_off = cut_off;
    }

    /// Whether no answer gets through to this process.
    pub(super) fn is_cut_off(&self, run: u64) -> bool {
        let mut agents = std::iter::once(&self.agent).chain(self.other.as_deref());
        agents.any(|agent| agent.run == run && agent.cut_off)
    }

    fn instance(&mut self, which: Which) -> InstanceId {
        self.turn_to_the(which);
        InstanceId(self.agent.instance)
    }

    /// A person says which process is to have the target.
    pub(crate) fn accept_instance(&mut self, which: Which) {
        let instance = self.instance(which);
        self.note(|| format!("somebody ACCEPTS the {which:?}, {instance}"));
        let word = format!("{instance} {}", self.now);
        self.hub_steps(link::Event::InstanceAccepted { target: self.hub.target(), instance, word });
    }

    /// Whether this one and no other works, and the hub knows it as the holder; and whether it shows both.
    pub(crate) fn check_holder(&mut self, which: Which, both: bool) {
        let instance = self.instance(which);
        assert_eq!(self.agent.mode, ToldMode::Good, "the {which:?} is frozen");
        assert!(self.agent.core.is_some(), "the {which:?} does not live");
        if let Some(other) = self.other.as_ref().filter(|other| other.core.is_some()) {
            assert_ne!(other.mode, ToldMode::Good, "both work, and the {which:?} is to");
        }
        let record = self.hub.holder().expect("the target is known");
        let holder = record.holder().map(|holder| holder.instance.id);
        assert_eq!(holder, Some(instance), "the hub knows another holder than the {which:?}");
        assert_eq!(!record.others().is_empty(), both, "whether two live: {:?}", record.others());
    }

    /// Of two agents one works, and no more.
    pub(crate) fn turn_to_the_one_that_works(&mut self) {
        let works = |agent: &Agent| agent.core.is_some() && agent.mode == ToldMode::Good;
        let other = self.other.as_ref().is_some_and(|other| works(other));
        assert_ne!(works(&self.agent), other, "both work, or neither does");
        if let Some(other) = self.other.as_mut().filter(|_| other) {
            std::mem::swap(&mut self.agent, other);
        }
    }

    pub(crate) fn check_frozen(&mut self, which: Which) {
        self.turn_to_the(which);
        assert_eq!(self.agent.mode, ToldMode::Frozen, "the {which:?} is not frozen");
    }

    /// Processes that are down come up.
    pub(crate) fn heal_all(&mut self) {
        self.for_each_agent(Self::heal_agent);
        self.heal();
    }

    /// Whether objects of two namespaces, which are kept as their sources say, were applied of later generations than this
    /// journal knows, and nobody else manages some of them, who may have edited their marks.
    pub(crate) fn has_later_than(&self, journal: &Journal) -> bool {
        let follows = |entry: &&Arc<Entry>| {
            let policy = journal.policies.get(&entry.policy);
            !entry.implied && policy.is_some_and(|policy| policy.mode == ApplyMode::Continuous)
        };
        let later = journal.entries.values().filter(follows).filter(|entry| {
            let observed = self.cluster.observed(&entry.key);
            observed.filter(|it| it.labelled && it.managed.is_some() && it.others.is_none()).is_some_and(|it| {
                it.mark.is_some_and(|mark| mark.source.uid == entry.source.uid && mark.generation > entry.generation)
            })
        });
        let namespace =
            |key: &ObjectKey| if key.kind.is_namespace() { key.name.clone() } else { key.namespace.clone() };
        let namespaces: BTreeSet<_> = later.map(|entry| namespace(&entry.key)).collect();
        namespaces.len() > 1
    }

    /// The latest generation applied of each of our objects.
    pub(crate) fn applied(&self) -> BTreeMap<ObjectKey, (Uid, Option<Digest>)> {
        let ours = self.cluster.objects.iter().filter(|(_, local)| local.owner.is_some());
        ours.map(|(key, local)| (key.clone(), (local.uid.clone(), local.input))).collect()
    }

    /// Our objects at the cluster, by UID.
    pub(crate) fn uids(&self) -> BTreeMap<ObjectKey, Uid> {
        let ours = self.cluster.objects.iter().filter(|(_, local)| local.owner.is_some());
        ours.map(|(key, local)| (key.clone(), local.uid.clone())).collect()
    }
}
