//! How a plan disturbs the world, other than by ending a process; and what people do in one.

use tideline_agent::core::Event;
use tideline_agent::simulated_cluster::Cluster;
use tideline_common::wire::v1::DesiredRequest;
use tideline_common::{GroupKind, Reason};

use super::hub::Asked;
use super::mishaps::Fate;
use super::{Happening, Stream, World};
use crate::plans::{Absence, HubProbe, Instead, Leaves, Probe, Record, Telling};
use crate::workload::Workload;

/// A lagging API server answers a list, and then lags for as long as an agent needs to act on it.
const LISTED_AFTER: u64 = 500;
const CAUGHT_UP_AFTER: u64 = 8_000;

impl World {
    pub(crate) fn set_probes(&mut self, probe: Probe, hub: HubProbe) {
        self.probe = Some(Box::new(probe));
        self.hub.probe = Some(hub);
    }

    /// Counting begins now.
    pub(crate) fn arm(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.arm(&self.cluster);
        }
        if let Some(probe) = &mut self.hub.probe {
            probe.armed = true;
        }
    }

    pub(crate) fn disarm(&mut self) -> Record {
        let mut record = self.probe.as_mut().map(|probe| probe.disarm()).unwrap_or_default();
        if let Some(probe) = &mut self.hub.probe {
            probe.armed = false;
            record.hub = std::mem::take(&mut probe.effects);
        }
        record
    }

    /// People change something in the hub's spaces.
    pub(crate) fn act(&mut self, what: impl FnOnce(&mut Workload)) {
        what(&mut self.workload);
        self.note(|| "hub: the workload goes on".to_owned());
        self.workload_changed();
    }

    /// People do something at the cluster.
    pub(crate) fn touch(&mut self, what: impl FnOnce(&mut Cluster)) {
        what(&mut self.cluster);
        self.note(|| "cluster: the workload goes on".to_owned());
        self.cluster_changed();
    }

    /// A number for decisions by a seed of their own.
    pub(crate) fn draw(&mut self) -> u64 {
        self.random.next()
    }

    pub(crate) fn set_link(&mut self, up: bool) {
        self.note(|| format!("the link is {}", if up { "there" } else { "cut" }));
        self.partitioned = !up;
    }

    /// The hub's answers to reports get lost, or no longer.
    pub(crate) fn lose_acknowledgements(&mut self, lost: bool) {
        self.note(|| format!("acknowledgements {}", if lost { "get lost" } else { "arrive" }));
        self.loses_acknowledgements = lost;
    }

    /// The API server refuses everything, or works again.
    pub(crate) fn set_outage(&mut self, outage: Option<Reason>) {
        self.note(|| format!("cluster: outage {outage:?}"));
        self.cluster.faults.outage = outage;
    }

    pub(crate) fn restart_agent(&mut self) {
        if self.agent.core.is_some() {
            self.agent_ends(Fate::Done(Leaves::All), Absence::Brief.millis());
        }
    }

    pub(crate) fn restart_hub(&mut self) {
        if self.hub.up {
            self.hub_ends(Absence::Brief.millis());
        }
    }

    /// Somebody approves what is held for that, if the hub shows anything. Returns whether it did.
    pub(crate) fn approve_held(&mut self) -> bool {
        let held = self.held();
        let shown = self.hub.up && !held.is_empty();
        self.approve(held, 3_600_000);
        shown
    }

    /// Has something other than the hub answer a poll, if the plan says so; otherwise gives it back.
    pub(super) fn answered_instead(&mut self, asked: Asked, request: &DesiredRequest) -> Option<Asked> {
        let commits = self.hub.probe.as_ref().map_or(0, |probe| probe.commits.len());
        let Some(instead) = self.probe.as_mut().and_then(|probe| probe.poll(commits)) else { return Some(asked) };
        let to = asked.waits();
        self.note(|| format!("{to:?} is answered by {instead:?}"));
        let (at, answer) = match instead {
            Instead::Former(commit) => {
                let answer = self.hub.lagging(self.monotonic(), commit, request);
                answer.expect("every poll is answered in its time")
            }
            Instead::Replay(number) => {
                let answer = self.probe.as_ref().map(|probe| probe.answer(number).clone());
                (self.monotonic(), answer.expect("it was asked"))
            }
        };
        let after = at.as_millis() - self.now + self.transit();
        let reply = match answer {
            Ok(answer) => self.sign(&asked, 200, &self.hub.signer.complete(answer)),
            Err(refusal) => self.sign(&asked, refusal.refusal.status(), &refusal),
        };
        self.schedule(after, Happening::Reply { to, reply: Box::new(reply) });
        None
    }

    /// Whether a watch does anything but show this event.
    pub(super) fn tells_otherwise(&mut self, event: &Event) -> bool {
        match self.probe.as_mut().map_or(Telling::AsUsual, |probe| probe.news(event)) {
            Telling::AsUsual => return false,
            Telling::Never => self.note(|| format!("watch: never tells {event:?}")),
            Telling::Late(state) => {
                let kind = kind_of(event).clone();
                self.break_watch(&kind);
                self.tell_late(&kind, state);
            }
            Telling::AfterCrash(state) => {
                let kind = kind_of(event).clone();
                // Not now: its effect is still being carried out.
                self.schedule(0, Happening::AgentEnds);
                if let Some(probe) = &mut self.probe {
                    probe.stale_start = Some((kind, state));
                }
            }
        }
        true
    }

    /// Whether the first list of a kind is an older one.
    pub(super) fn starts_stale(&mut self, kind: &GroupKind) -> bool {
        let stale = self.probe.as_mut().and_then(|probe| probe.stale_start.take_if(|(stale, _)| stale == kind));
        let Some((_, state)) = stale else { return false };
        let served = self.cluster.served(kind);
        self.tell(kind, Event::Kind { kind: kind.clone(), served });
        self.tell_late(kind, state);
        true
    }

    fn break_watch(&mut self, kind: &GroupKind) {
        self.streams += 1;
        if !self.agent.streams.contains_key(kind) {
            return;
        }
        self.agent.streams.insert(kind.clone(), Stream { number: self.streams, last: self.now, lost: false });
        let message = "cut".to_owned();
        self.tell(kind, Event::WatchLost { kind: kind.clone(), reason: Reason::Unavailable, message });
    }

    /// A list from before, and later what happened since.
    fn tell_late(&mut self, kind: &GroupKind, state: usize) {
        let Some((objects, since)) = self.probe.as_ref().map(|probe| probe.former(kind, state)) else { return };
        self.note(|| format!("watch: {kind} is listed as it was before {state}"));
        self.delay_watch(kind, LISTED_AFTER);
        self.tell(kind, Event::Listed { kind: kind.clone(), objects });
        self.delay_watch(kind, CAUGHT_UP_AFTER);
        for event in since {
            self.tell(kind, event);
        }
    }

    fn delay_watch(&mut self, kind: &GroupKind, by: u64) {
        if let Some(stream) = self.agent.streams.get_mut(kind) {
            stream.last = stream.last.max(self.now) + by;
        }
    }
}

fn kind_of(event: &Event) -> &GroupKind {
    match event {
        Event::Observed(observed) => &observed.key.kind,
        Event::Gone { key, .. } => &key.kind,
        _ => panic!("this is no news: {event:?}"),
    }
}
