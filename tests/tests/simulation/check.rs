//! What must hold at rest.

use tideline_agent::core::{AgentMode, Served};
use tideline_agent::simulated_cluster::{has_ttl, is_deployment};
use tideline_common::rollup::Freshness;
use tideline_common::wire::v1::{Continuity, Decommission, DecommissionReport, ObjectReport, Progress, Terminal};
use tideline_common::{
    ApplyMode, ApplyPolicy, AssociatedKind, DriftPolicy, Entry, EntryState, Formers, ObjectKey, Ownership, Reason,
};
use tideline_hub::summary::TargetReports;

use crate::world::World;

/// How an assigned object compares with its entry.
enum Verdict {
    AsAssigned,
    /// The difference, or why there is no object.
    Otherwise(&'static str),
}

impl World {
    fn verdict(&self, entry: &Entry, policy: &ApplyPolicy) -> Verdict {
        let Some(local) = self.cluster.objects.get(&entry.key) else { return Verdict::Otherwise("is missing") };
        if entry.implied {
            return Verdict::AsAssigned;
        }
        if local.deleting {
            return Verdict::Otherwise("is being deleted");
        }
        let ours = self.cluster.ownership(&entry.key) == Some(Ownership::Ours);
        let source = local.mark.as_ref().is_some_and(|mark| mark.source.uid == entry.source.uid);
        if policy.mode == ApplyMode::CreateOnly {
            return if local.created || ours { Verdict::AsAssigned } else { Verdict::Otherwise("is another's") };
        }
        // Somebody changed it, or made it another's by removing the label, and the policy leaves it so.
        let edited = local.input.is_none_or(|input| input == entry.input);
        if policy.drift == DriftPolicy::Report && local.owner.as_ref() == Some(&entry.source.uid) && edited {
            return Verdict::AsAssigned;
        }
        match (ours && local.label.is_some(), source, local.input == Some(entry.input)) {
            (false, _, _) => Verdict::Otherwise("is not marked as ours"),
            (true, false, _) => Verdict::Otherwise("carries another source's identity"),
            (true, true, false) => Verdict::Otherwise("has another input"),
            (true, true, true) => Verdict::AsAssigned,
        }
    }

    fn report(&self, key: &ObjectKey) -> Option<&ObjectReport> {
        let reports = self.hub.summary.target(self.hub.target())?;
        reports.objects().find(|report| report.key == *key).map(|report| &**report)
    }

    /// Whether another object has its key, so that a failure is right.
    fn explains(&self, key: &ObjectKey, reason: Reason) -> bool {
        let there = self.cluster.objects.get(key);
        match reason {
            Reason::Conflict => self.cluster.ownership(key) == Some(Ownership::Foreign),
            Reason::Copy => self.cluster.ownership(key) == Some(Ownership::Copy),
            // With the journal lost and the mark stripped, nothing shows any more that it is ours.
            Reason::Unmanaged => {
                there.is_some_and(|local| local.owner.is_none() || (self.lost_journal && local.mark.is_none()))
            }
            Reason::KindMissing => self.cluster.served(&key.kind) == Served::No,
            Reason::MayHaveRun => self.restored && key.kind.is_job(),
            Reason::Vanished => has_ttl(key) && there.is_none(),
            Reason::NamespaceUnavailable => !self.cluster.has_namespace(&key.namespace),
            _ => false,
        }
    }

    /// Invariants 1 and 4, and that the hub knows of everything.
    pub(crate) fn check_converged(&self) {
        let view = self.hub.ledger.target(self.hub.target()).expect("the target is registered");
        let accepted = self.journal().accepted.map(|accepted| (accepted.set.version, accepted.set.digest));
        assert_eq!(accepted, Some((view.version(), view.digest())), "the agent keeps another set than the hub's");
        assert_eq!(self.journal().history, Continuity::Whole, "the agent keeps still, and nothing is broken");
        assert!(self.is_active(), "the agent does not work, and nothing keeps it from that");
        assert_eq!(self.journal().mode, AgentMode::Active, "a restart would stop it");
        assert!(self.restored || self.hub.accepts == 0, "a person had to accept what was never lost");
        assert!(self.restored || !self.hub.is_broken(), "the history is broken, and nothing was lost");
        assert_eq!(self.hub.freshness(), Some(Freshness::Fresh));
        for entry in view.entries() {
            let key = &entry.key;
            let report = self.report(key).unwrap_or_else(|| panic!("{key} is not reported"));
            assert_eq!(report.source_uid, entry.source.uid, "{key} is reported for another source");
            let policy = &self.journal().policies[&entry.policy];
            if entry.state == EntryState::Withheld(Reason::AgentTooOld) {
                let (progress, reason) = (report.progress, report.reason);
                assert_eq!((progress, reason), (Progress::Withheld, Some(Reason::AgentTooOld)), "{key}");
                continue;
            }
            match self.verdict(entry, policy) {
                Verdict::AsAssigned => {
                    assert_eq!(report.progress, Progress::Applied, "{key}: {report:?}");
                    self.check_identity(entry, policy);
                    let free = entry.implied || policy.mode == ApplyMode::CreateOnly;
                    assert!(free || report.input == Some(entry.input), "{key}: {report:?}");
                    self.check_status(key, report);
                    self.check_associated(entry, policy);
                }
                Verdict::Otherwise(how) => {
                    // It was created, and what became of it since is up to the target.
                    let made = policy.mode == ApplyMode::CreateOnly || report.terminal == Some(Terminal::Finished);
                    let once = made && report.progress == Progress::Applied;
                    let explained = report.reason.is_some_and(|reason| self.explains(key, reason));
                    let failed = report.progress != Progress::Applied;
                    assert!(once || (failed && explained), "{key} {how}, and the report is {report:?}");
                }
            }
        }
        self.check_leftovers();
    }

    /// Everything assigned is reported as it is.
    pub(crate) fn check_nothing_withheld(&self) {
        let view = self.hub.ledger.target(self.hub.target()).expect("the target is registered");
        assert!(view.entries().all(|entry| entry.state == EntryState::Apply), "something is still withheld");
    }

    /// Invariant 2. A change that is only to be reported may be of the mark.
    fn check_identity(&self, entry: &Entry, policy: &ApplyPolicy) {
        let key = &entry.key;
        if self.cluster.ownership(key) == Some(Ownership::Ours) && policy.drift == DriftPolicy::Correct {
            let mark = self.cluster.objects[key].mark.as_ref().map(|mark| &mark.source.uid);
            assert_eq!(mark, Some(&entry.source.uid), "{key} carries another source's identity");
        }
    }

    fn check_status(&self, key: &ObjectKey, report: &ObjectReport) {
        if self.cluster.objects[key].label.is_none() {
            // Created once and then left alone, even without its label: it is not checked.
            return;
        }
        let status = report.status.as_ref().map(|status| status.get().to_owned());
        let expected = is_deployment(&key.kind).then(|| self.cluster.objects[key].status_text());
        assert_eq!(status, expected, "the status of {key} is not what the hub was told");
    }

    /// What was made of it is counted where that is asked for, and what others made is not.
    fn check_associated(&self, entry: &Entry, policy: &ApplyPolicy) {
        let key = &entry.key;
        let made = self.hub.summary.made(self.hub.target(), key, &entry.source.uid);
        let told = |kind| made.and_then(|made| Some(made.made.get(&kind)?.tally.clone()));
        if policy.associated.is_empty() || !is_deployment(&key.kind) {
            assert!(made.is_none_or(|made| made.made.values().all(|made| made.tally.total == 0)), "{key}: {made:?}");
            return;
        }
        let local = &self.cluster.objects[key];
        if local.label.is_none() || self.cluster.ownership(key) != Some(Ownership::Ours) {
            // It is not checked.
            return;
        }
        let pods = told(AssociatedKind::Pods).unwrap_or_else(|| panic!("the Pods of {key} are not counted: {made:?}"));
        let expected = (local.pods(), local.pods() * local.status);
        assert_eq!((pods.total, pods.restarts), expected, "the Pods of {key}");
        assert_eq!(told(AssociatedKind::ReplicaSets).map(|sets| sets.total), Some(1), "the ReplicaSets of {key}");
    }

    /// An agent that lost its journal does not know of kinds that are no longer placed.
    pub(crate) fn may_be_unknown(&self, key: &ObjectKey) -> bool {
        let view = self.hub.ledger.target(self.hub.target()).expect("the target is registered");
        self.lost_journal && !view.entries().any(|entry| entry.key.kind == key.kind)
    }

    /// What is not assigned is gone, or the reason is reported.
    fn check_leftovers(&self) {
        let view = self.hub.ledger.target(self.hub.target()).expect("the target is registered");
        // Where history was lost, or forgotten; otherwise there must be a reason for it.
        let lost = self.lost_journal || self.restored || self.hub.has_forgotten();
        let held = |key: &ObjectKey, unexplained: bool| {
            self.report(key).is_some_and(|report| {
                report.progress == Progress::DeletionHeld
                    && report.reason.is_some_and(|reason| unexplained || reason != Reason::HistoryLost)
            })
        };
        let adopted = self.cluster.agent.formers != Formers::default();
        // What its former target was to remove does not concern the present one, so nobody reports it.
        let may_be_unknown = |key: &ObjectKey| (self.restored || adopted) && self.may_be_unknown(key);
        for (key, local) in self.cluster.objects.iter().filter(|(key, _)| !may_be_unknown(key)) {
            let ours = self.cluster.ownership(key) == Some(Ownership::Ours) && local.label.is_some();
            // A removal may have ended with its target.
            let untold = || self.hub.tombstones().iter().all(|tombstone| tombstone.key != *key);
            let unexplained = lost || (adopted && untold());
            let held = || held(key, unexplained);
            assert!(!ours || view.entry(key).is_some() || held(), "{key} is left over, and nothing says why");
        }
        // And what is held as nothing explains it is there. Of a kind that is not served nothing is known.
        let reports = self.hub.summary.target(self.hub.target()).into_iter().flat_map(TargetReports::objects);
        for ObjectReport { key, progress, reason, .. } in reports.map(|report| &**report) {
            let held = (*progress, *reason) == (Progress::DeletionHeld, Some(Reason::HistoryLost));
            let stands = self.cluster.objects.contains_key(key) || self.cluster.served(&key.kind) == Served::No;
            assert!(!held || stands, "{key} is held, and is gone");
        }
        for tombstone in self.hub.tombstones() {
            // What was confirmed since the backup is not confirmed again, if the set is still the same.
            let ours = self.cluster.ownership(&tombstone.key) == Some(Ownership::Ours);
            if self.restored && !ours {
                continue;
            }
            assert!(held(&tombstone.key, lost), "the removal of {} is neither done nor held", tombstone.key);
        }
    }

    /// The hub knows how far it is, and there is nothing else to report.
    pub(crate) fn check_decommissioned(&self, how: Decommission) {
        let told = self.hub.summary.target(self.hub.target()).and_then(TargetReports::decommission);
        let left = self.hub.tombstones();
        assert_eq!(told, Some(DecommissionReport { how, left: left.len() as u64 }), "{left:?}");
    }

    /// Invariant 5: the accepted set is in force without a hub.
    pub(crate) fn check_kept(&self) {
        for entry in self.journal().entries.values() {
            let policy = &self.journal().policies[&entry.policy];
            if let Verdict::Otherwise(how) = self.verdict(entry, policy) {
                let stranger = self.cluster.objects.get(&entry.key).is_some_and(|local| local.owner.is_none());
                let awaits_namespace = self.explains(&entry.key, Reason::NamespaceUnavailable);
                let unserved = self.explains(&entry.key, Reason::KindMissing);
                let once = policy.mode == ApplyMode::CreateOnly;
                // It may have run.
                let vanished = self.explains(&entry.key, Reason::Vanished);
                let excused =
                    stranger || (entry.key.is_namespaced() && awaits_namespace) || unserved || once || vanished;
                assert!(excused, "{} {how}, with the hub gone", entry.key);
            }
        }
    }

    /// Whether everything assigned exists and is reported. An object whose mark was removed under a report-only policy is not:
    /// without the journal it must be adopted. A create-only object that was deleted since is created again.
    pub(crate) fn is_all_marked(&self) -> bool {
        let marked = |key: &ObjectKey| {
            let local = self.cluster.objects.get(key);
            local.is_some_and(|local| local.label.is_some() && self.cluster.ownership(key) == Some(Ownership::Ours))
        };
        self.journal().entries.keys().all(marked)
    }

    /// Whether a local change is only reported somewhere, and so found by every patrol.
    fn reports_drift(&self) -> bool {
        let journal = self.journal();
        journal.entries.values().any(|entry| journal.policies[&entry.policy].drift == DriftPolicy::Report)
    }

    /// Invariant 6: at rest nothing is written anywhere, and nothing piles up.
    pub(crate) fn check_at_rest(&mut self, hub: bool) {
        let before = self.writes();
        self.sleep(self.scenario.rest);
        assert!(self.writes() == before, "at rest something is written: {:?}, {before:?}", self.writes());
        let (writing, _retries, requests, at_hub) = self.under_way();
        assert_eq!(writing, 0);
        assert!(requests <= 2 && at_hub <= 2, "requests pile up: {requests} at the agent, {at_hub} at the hub");
        assert!(!hub || self.hub.is_idle());
        if let Some(found) = self.patrol() {
            let mended = found.missing + found.drifted + found.unassigned + found.unseen + found.unknown;
            let excused =
                self.scenario.loses_journal || self.restored || self.hub.has_forgotten() || self.reports_drift();
            assert!(mended == 0 || excused, "at rest a patrol finds {found:?}");
        }
    }
}
