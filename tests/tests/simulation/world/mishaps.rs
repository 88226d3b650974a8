//! What goes wrong, and what people do.

use std::sync::Arc;
use std::time::Duration;

use tideline_agent::core::Event;
use tideline_agent::simulated_cluster::{Backup, Means, Stripped};
use tideline_common::replay::RunNumbers;
use tideline_common::wire::v1::{Decommission, ObjectReport, RefusalKind};
use tideline_common::{GroupKind, Reason, Tombstone};
use tideline_hub::summary::TargetReports;

use super::{Happening, Stream, ToldMode, World};
use crate::SETTLING;
use crate::faults::{ABSENCE, DELAYED, STOPPED_AFTER};
use crate::ids::{OTHER_HUB, parse};
use crate::plans::{Leaves, as_written};

/// A namespace follows its content, and a definition the objects of its kind.
const ROUNDS_MAX: u32 = 6;

/// Longer than any test.
const NEVER: u64 = 1_000_000_000_000;

/// What becomes of the work in flight when the agent's process ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// Each part is done or not.
    Chance,
    Lost,
    /// All of it is; and this is left of the data directory.
    Done(Leaves),
}

impl World {
    pub(super) fn mishap(&mut self) {
        if self.scenario.approves && self.random.chance(200) {
            return self.approve_some();
        }
        if self.scenario.shuts_out && self.random.chance(120) {
            return self.shut_out_for_a_while();
        }
        if self.scenario.moves && self.random.chance(120) {
            return self.move_hub();
        }
        if self.scenario.restores > 0 {
            self.about_history();
        }
        match self.random.below(100) {
            0..=44 => self.mutate(),
            45..=69 => self.disturb(true),
            70..=74 => self.agent_crashes(),
            75..=76 => self.agent_stops(),
            77..=81 => self.hub_crashes(),
            82..=87 => self.lose_watch(),
            88..=91 => {
                self.note(|| "PARTITION".to_owned());
                self.partitioned = true;
                let after = self.random.below(120_000);
                self.schedule(after, Happening::PartitionEnds);
            }
            92..=95 => self.cluster_outage(),
            96 => {
                if self.scenario.loses_journal {
                    self.lose_data();
                }
            }
            _ => self.back_up_or_restore(),
        }
    }

    fn shut_out_for_a_while(&mut self) {
        let refusals =
            [RefusalKind::TargetGone, RefusalKind::Revoked, RefusalKind::UnknownTarget, RefusalKind::Quarantined];
        let refusal = *self.random.pick(&refusals);
        self.shut_out(refusal);
        let after = self.random.below(1_800_000);
        self.schedule(after, Happening::ShutOutEnds);
    }

    /// The cluster is decommissioned.
    pub(crate) fn decommission(&mut self) -> Decommission {
        let how = if self.random.chance(500) { Decommission::Keep } else { Decommission::Remove };
        self.note(|| format!("the cluster goes out of service: {how:?}"));
        self.workload.retired = true;
        let (now, mut demands) = (self.monotonic(), Vec::new());
        if self.hub.up {
            self.hub.decommission(now, how, &mut demands);
            let changes = self.workload.changes(&self.hub.ledger, self.hub.target());
            self.hub.change(changes);
            self.satisfy(demands);
            self.hub_writes_if_needed();
        } else {
            self.hub.disk.decommission = how;
        }
        how
    }

    /// The agent goes on elsewhere, with its identity and nothing else.
    pub(crate) fn lose_data(&mut self) {
        self.note(|| "the agent's data directory is lost".to_owned());
        self.agent_crashes();
        self.empty_directory();
        self.agent.mode = ToldMode::from(&self.agent.journal.mode);
    }

    fn empty_directory(&mut self) {
        self.agent.journal.lose();
        self.lost_journal = true;
    }

    pub(super) fn mutate(&mut self) {
        let what = self.workload.mutate(&mut self.random);
        self.note(|| format!("hub: {what}"));
        self.workload_changed();
    }

    /// The hub hears of what people did in its spaces, now or when it is up again.
    pub(super) fn workload_changed(&mut self) {
        if self.hub.up {
            self.hub.outdated = self.hub.is_writing();
            let changes = self.workload.changes(&self.hub.ledger, self.hub.target());
            self.hub.change(changes);
            if self.hub.holds() && self.random.chance(200) {
                self.hub.release();
            }
            self.hub_writes_if_needed();
        }
    }

    /// Somebody approves a part of what is held, for a while.
    fn approve_some(&mut self) {
        let share = 200 + self.random.below(800);
        let mut removals = self.held();
        removals.retain(|_| self.random.chance(share));
        let lasts = self.random.below(900_000);
        self.approve(removals, lasts);
    }

    /// Somebody approves everything that is held, and what is held because of that, until nothing is.
    pub(crate) fn approve_all(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let removals = self.held();
            if removals.is_empty() {
                return;
            }
            self.approve(removals, 3_600_000);
            self.sleep(SETTLING);
        }
        panic!("these are held, whatever is approved: {:?}", self.held());
    }

    pub(super) fn approve(&mut self, removals: Vec<Tombstone>, lasts: u64) {
        if !self.hub.up || removals.is_empty() {
            return;
        }
        self.note(|| format!("somebody approves for {lasts} ms: {removals:?}"));
        let (now, mut demands) = (self.monotonic(), Vec::new());
        self.approvals += 1;
        let until = now + Duration::from_millis(lasts);
        self.hub.approve(now, self.approvals, until, removals, &mut demands);
        self.satisfy(demands);
        self.hub_writes_if_needed();
    }

    /// What waits for an approval, as far as the hub was told.
    pub(super) fn held(&self) -> Vec<Tombstone> {
        let reports = self.hub.summary.target(self.hub.target()).into_iter().flat_map(TargetReports::held);
        let waits = |reason| matches!(reason, Some(Reason::FuseHeld | Reason::HistoryLost));
        let removal =
            |report: &Arc<ObjectReport>| Tombstone { key: report.key.clone(), source: report.source_uid.clone() };
        reports.filter(|report| waits(report.reason)).map(removal).collect()
    }

    /// Saves the hub's disk; or swaps in another, and keeps the former: a copy that is started for a while, and then the right
    /// one again, is two of these.
    pub(super) fn back_up_or_restore(&mut self) {
        if self.restores == self.scenario.restores {
            return;
        }
        let Some((disk, workload)) = self.backup.take() else {
            self.backup = Some((self.hub.disk.clone(), self.workload.clone()));
            return;
        };
        self.restores += 1;
        self.restored = true;
        let how = self.random.below(10);
        self.note(|| format!("the hub is RESTORED from a backup, in way {how}"));
        self.hub_crashes();
        if how < 5 {
            self.backup = Some((self.hub.disk.clone(), self.workload.clone()));
        }
        if how == 9 {
            self.hub.disk = self.hub.empty.clone();
            self.workload.lose();
        } else {
            self.hub.disk = disk;
            self.workload.restore(workload);
        }
        // A snapshot of a machine goes on as if nothing had happened.
        self.hub.rolled_back = [0, 3, 6].contains(&how);
        if how == 8 {
            self.hub.says_restored();
        }
        self.hub.set_back();
        self.restoring_until = self.now + DELAYED.1;
    }

    /// The hub's disk as it is, and the content of its spaces.
    pub(crate) fn back_up(&mut self) {
        self.note(|| "the hub is backed up".to_owned());
        self.backup = Some((self.hub.disk.clone(), self.workload.clone()));
    }

    /// Starts the hub on the backup, or `swap`s the two. False if there is none.
    pub(crate) fn restore(&mut self, swap: bool) -> bool {
        let Some((disk, workload)) = self.backup.take() else { return false };
        self.note(|| format!("the hub is RESTORED, and what it had is {}", if swap { "kept" } else { "lost" }));
        self.restored = true;
        self.hub_crashes();
        if swap {
            self.backup = Some((self.hub.disk.clone(), self.workload.clone()));
        }
        self.hub.disk = disk;
        self.workload.restore(workload);
        self.hub.rolled_back = false;
        self.hub.set_back();
        true
    }

    /// The hub's machine is set back to the backup while it runs: nothing is started.
    pub(crate) fn roll_back(&mut self) -> bool {
        let Some((disk, workload)) = self.backup.take() else { return false };
        self.note(|| "the hub's machine is SET BACK".to_owned());
        self.restored = true;
        self.hub_crashes();
        self.hub.disk = disk;
        self.workload.restore(workload);
        self.hub.rolled_back = true;
        self.hub.set_back();
        true
    }

    /// The agent of the other target connects, and accepts its set.
    pub(crate) fn hear_the_other(&mut self) {
        if self.hub.up {
            self.note(|| "the agent of the other target is heard".to_owned());
            self.hub.hear_the_other();
            self.hub_writes_if_needed();
        }
    }

    /// A person releases Jobs that may have run.
    pub(crate) fn let_run(&mut self) {
        self.note(|| "somebody RELEASES what may have run".to_owned());
        let withheld = |report: &&Arc<ObjectReport>| report.reason == Some(Reason::MayHaveRun);
        let reports = self.hub.summary.target(self.hub.target()).into_iter().flat_map(TargetReports::objects);
        self.cluster.released = reports.filter(withheld).map(|report| report.source_uid.clone()).collect();
        self.hub.let_run();
        self.hub_writes_if_needed();
    }

    /// A person accepts the history that the hub does not know, until no agent shows more.
    pub(crate) fn accept_history(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.hub.is_broken() {
                return;
            }
            self.accept_once();
            self.sleep(SETTLING);
        }
        panic!("the history stays broken, whatever is accepted: {:?}", self.hub.ledger.missing().collect::<Vec<_>>());
    }

    pub(crate) fn accept_once(&mut self) {
        self.note(|| "somebody ACCEPTS the history".to_owned());
        self.hub.accept_history();
        self.hub_writes_if_needed();
    }

    /// What other agents and people do about a hub that may have been set back.
    fn about_history(&mut self) {
        if self.hub.is_broken() && self.random.chance(300) {
            self.accept_once();
        } else if self.hub.up && self.random.chance(300) {
            self.hear_the_other();
        }
    }

    /// Somebody does something at the cluster.
    pub(super) fn disturb(&mut self, strangers: bool) {
        let key = self.random.pick(&self.workload.keys).clone();
        let what = match self.random.below(if strangers { 10 } else { 7 }) {
            0 | 1 => {
                self.cluster.delete(&key);
                "deletes"
            }
            2 => {
                self.cluster.edit(&key);
                "edits"
            }
            3 => {
                let what = *self.random.pick(&[Stripped::Both, Stripped::Mark, Stripped::Label]);
                self.cluster.strip(&key, what);
                "strips"
            }
            4 => {
                self.cluster.hold(&key);
                "holds"
            }
            5 | 6 => {
                self.cluster.progress(&key);
                "progresses"
            }
            7 => {
                let means = if self.random.chance(500) { Means::Declaratively } else { Means::ByHand };
                self.cluster.intrude(&key, means);
                "intrudes at"
            }
            8 => {
                let marks: Vec<_> = self.cluster.objects.values().filter_map(|local| local.mark.clone()).collect();
                if !marks.is_empty() {
                    let mark = self.random.pick(&marks).clone();
                    self.cluster.copy_to(&key, &mark);
                }
                "copies to"
            }
            _ => {
                let marks: Vec<_> = self.cluster.objects.values().filter_map(|local| local.mark.clone()).collect();
                if !marks.is_empty() {
                    let mut mark = (**self.random.pick(&marks)).clone();
                    mark.hub = parse(OTHER_HUB);
                    mark.local = key.clone();
                    self.cluster.copy_to(&key, &Arc::new(mark));
                }
                "another hub takes"
            }
        };
        self.note(|| format!("cluster: somebody {what} {key}"));
        self.cluster_changed();
    }

    pub(super) fn cluster_outage(&mut self) {
        let reasons = [Reason::Unavailable, Reason::Throttled, Reason::Forbidden];
        self.cluster.faults.outage = Some(*self.random.pick(&reasons));
        self.note(|| "cluster: OUTAGE".to_owned());
        let after = self.random.below(60_000);
        self.schedule(after, Happening::OutageEnds);
    }

    pub(super) fn lose_watch(&mut self) {
        self.lose_follow();
        let kinds: Vec<_> = self.agent.streams.keys().cloned().collect();
        if kinds.is_empty() {
            return;
        }
        let kind = self.random.pick(&kinds).clone();
        self.lose_watch_of(kind);
    }

    /// The store of the API server is restored from a backup, under an agent that goes on. No watch does.
    pub(crate) fn set_back_cluster(&mut self, to: Backup) {
        self.note(|| "the cluster is SET BACK".to_owned());
        self.cluster.set_back(to);
        for kind in self.agent.streams.keys().cloned().collect::<Vec<_>>() {
            self.lose_watch_of(kind);
        }
        self.cluster_changed();
    }

    fn lose_watch_of(&mut self, kind: GroupKind) {
        self.note(|| format!("watch of {kind} is lost"));
        self.streams += 1;
        let (run, stream) = (self.agent.run, self.streams);
        self.agent.streams.insert(kind.clone(), Stream { number: stream, last: self.now, lost: true });
        let message = "cut".to_owned();
        let event = Event::WatchLost { kind: kind.clone(), reason: Reason::Unavailable, message };
        self.tell(&kind, event);
        let after = self.random.within(ABSENCE);
        self.schedule(after, Happening::Relist { run, kind, stream });
    }

    pub(super) fn agent_crashes(&mut self) {
        if self.agent.core.is_some() {
            let absence = self.random.within(ABSENCE);
            self.agent_ends(Fate::Chance, absence);
        }
    }

    /// Somebody stops the agent's process in order: it finishes its operations in flight and says goodbye, if there is time.
    fn agent_stops(&mut self) {
        if self.agent.core.is_some() && !self.agent.stopping {
            self.note(|| "the agent is to END".to_owned());
            self.agent.stopping = true;
            let run = self.agent.run;
            self.schedule(STOPPED_AFTER, Happening::Killed { run });
            self.agent_steps(Event::Stop);
        }
    }

    /// The process has ended in order, or takes too long for it.
    pub(super) fn agent_ends_after_all(&mut self, fate: Fate) {
        let absence = self.random.within(ABSENCE);
        self.agent_ends(fate, absence);
    }

    /// The machine of the agent is gone.
    pub(crate) fn lose_agent(&mut self) {
        self.agent_ends(Fate::Lost, NEVER);
        self.agent.lost = true;
    }

    /// The agent's process ends, and comes back after a while.
    pub(super) fn agent_ends(&mut self, fate: Fate, absence: u64) {
        (self.agent.core, self.agent.locator) = (None, None);
        self.agent.stopping = false;
        self.note(|| "the agent CRASHES".to_owned());
        self.runs += 1;
        self.agent.run = self.runs;
        // Each operation in flight was done or was not; what was not written before is not written after.
        let writing = std::mem::take(&mut self.agent.writing);
        let last = writing.len().saturating_sub(1);
        for (number, (_, writes)) in writing.into_iter().enumerate() {
            if !self.is_done(fate) {
                break;
            }
            match fate {
                Fate::Done(Leaves::Torn(cut)) if number == last => {
                    self.write_journal(&as_written(&writes)[..cut]);
                }
                Fate::Done(_) | Fate::Lost | Fate::Chance => self.write_journal(&writes),
            }
        }
        if let Some(session) = self.agent.keeping.take()
            && self.is_done(fate)
        {
            self.agent.journal.persisted = session;
        }
        for op in std::mem::take(&mut self.agent.operations).into_values() {
            if self.is_done(fate) {
                self.lands(&op);
            }
        }
        if let Fate::Done(Leaves::Nothing) = fate {
            self.empty_directory();
        }
        self.agent.requests.clear();
        self.agent.numbers = RunNumbers::default();
        self.agent.timers.clear();
        self.agent.streams.clear();
        self.agent.following.clear();
        self.agent.patrol = None;
        self.agent.mode = ToldMode::from(&self.agent.journal.mode);
        if let Some(probe) = &mut self.probe {
            probe.agent_ended(&self.agent.journal);
        }
        let run = self.agent.run;
        self.schedule(absence, Happening::AgentStarts { run });
    }

    fn is_done(&mut self, fate: Fate) -> bool {
        match fate {
            Fate::Chance => self.random.chance(500),
            Fate::Lost => false,
            Fate::Done(_) => true,
        }
    }

    pub(super) fn hub_crashes(&mut self) {
        if self.hub.up {
            let absence = self.random.within(ABSENCE);
            self.hub_ends(absence);
        }
    }

    pub(super) fn hub_ends(&mut self, absence: u64) {
        self.note(|| "the hub CRASHES".to_owned());
        self.hub.crash();
        self.requests.clear();
        self.schedule(absence, Happening::HubStarts);
    }
}
