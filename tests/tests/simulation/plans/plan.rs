//! What is disturbed, once, and where: by number, counted from the start of a workload.

use std::fmt;

use super::probe::Record;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the effect begins; everything in flight is lost.
    Before,
    /// When it is done; so is everything in flight, but nobody hears of it.
    After,
}

/// How long a process is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// It is back before anybody does anything else.
    Brief,
    /// The workload goes on meanwhile.
    Long,
}

impl Absence {
    pub(crate) const fn millis(self) -> u64 {
        match self {
            Self::Brief => 400,
            Self::Long => 100_000,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// The agent's process ends at an effect of its core.
    Agent { when: When, effect: usize, absence: Absence },
    /// It ends when an effect is done, and its data directory is lost with it; the Secret has its identity.
    Emptied { effect: usize },
    /// It ends while its journal writes a batch, of which the first writes are on the disk.
    Torn { effect: usize, writes: usize },
    /// The hub's process ends at an effect of its core, or of its writer.
    Hub { when: When, effect: usize, absence: Absence },
    /// A poll is answered by a replica that has heard of no commit after this one.
    StaleIndex { request: usize, state: usize },
    /// A poll gets the answer to an earlier one.
    ReplayedIndex { request: usize, answer: usize },
    /// A watch breaks at this event, and the next list is from before it. What it missed comes late.
    StaleList { news: usize, state: usize },
    /// The agent ends at this event, and the first list of the kind that the next process sees is from before it.
    StaleStart { news: usize, state: usize },
    /// A watch misses this event, and shows a later one of the same object.
    Deaf { news: usize },
    /// A message is lost.
    Lost { message: usize },
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = |when| match when {
            When::Before => "before",
            When::After => "after",
        };
        let long = |absence| match absence {
            Absence::Brief => "",
            Absence::Long => "-long",
        };
        match *self {
            Self::Agent { when: at, effect, absence } => write!(f, "crash-{}{}/{effect}", when(at), long(absence)),
            Self::Emptied { effect } => write!(f, "crash-emptied/{effect}"),
            Self::Torn { effect, writes } => write!(f, "crash-torn/{effect}-{writes}"),
            Self::Hub { when: at, effect, absence } => write!(f, "hub-crash-{}{}/{effect}", when(at), long(absence)),
            Self::StaleIndex { request, state } => write!(f, "stale-index/{request}-{state}"),
            Self::ReplayedIndex { request, answer } => write!(f, "replayed-index/{request}-{answer}"),
            Self::StaleList { news, state } => write!(f, "stale-list/{news}-{state}"),
            Self::StaleStart { news, state } => write!(f, "stale-start/{news}-{state}"),
            Self::Deaf { news } => write!(f, "deaf/{news}"),
            Self::Lost { message } => write!(f, "lost/{message}"),
        }
    }
}

impl Disturbance {
    /// The kind of disturbance, for counting.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Agent { .. } => "crashes of the agent",
            Self::Emptied { .. } => "lost data directories",
            Self::Torn { .. } => "torn batches",
            Self::Hub { .. } => "crashes of the hub",
            Self::StaleIndex { .. } => "stale indexes",
            Self::ReplayedIndex { .. } => "replayed indexes",
            Self::StaleList { .. } => "stale lists",
            Self::StaleStart { .. } => "stale lists after a crash",
            Self::Deaf { .. } => "dropped events",
            Self::Lost { .. } => "lost messages",
        }
    }
}

/// Everything that can be disturbed in a run that went so.
pub(crate) fn disturbances(record: &Record) -> Vec<Disturbance> {
    let mut all = Vec::new();
    // A long absence includes a brief one: that everything in flight is lost is distinguished from its being done by the brief
    // ones.
    for (when, absence) in [(When::Before, Absence::Brief), (When::After, Absence::Brief), (When::After, Absence::Long)]
    {
        all.extend((0..record.agent.len()).map(|effect| Disturbance::Agent { when, effect, absence }));
        all.extend((0..record.hub.len()).map(|effect| Disturbance::Hub { when, effect, absence }));
    }
    all.extend((0..record.agent.len()).map(|effect| Disturbance::Emptied { effect }));
    for (effect, happened) in record.agent.iter().enumerate() {
        all.extend(happened.cuts.iter().map(|&writes| Disturbance::Torn { effect, writes }));
    }
    for (request, &commits) in record.polls.iter().enumerate() {
        // The last is no older one.
        all.extend((1..commits).map(|state| state - 1).map(|state| Disturbance::StaleIndex { request, state }));
        all.extend((0..record.answers[request]).map(|answer| Disturbance::ReplayedIndex { request, answer }));
    }
    for (news, told) in record.news.iter().enumerate() {
        let earlier = || (0..=news).filter(|state| record.news[*state].kind == told.kind);
        all.extend(earlier().map(|state| Disturbance::StaleList { news, state }));
        all.extend(earlier().map(|state| Disturbance::StaleStart { news, state }));
        if record.news[news + 1..].iter().any(|later| later == told) {
            all.push(Disturbance::Deaf { news });
        }
    }
    all.extend((0..record.messages).map(|message| Disturbance::Lost { message }));
    all
}
