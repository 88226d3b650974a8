//! The agent's process: what its edges do.

use tideline_agent::core::{Config, Core, Created, Effect, Event, Failure, Loaded, Op, OpId, OpResult, Write};
use tideline_agent::simulated_cluster::Local;
use tideline_common::wire::v1::{ClusterFacts, Continuity, Decommission, EnrolRequest, Instance};
use tideline_common::{InstanceId, Monotonic, ObjectKey, Reason, Uid};

use super::mishaps::Fate;
use super::{Happening, ToldMode, World};
use crate::SHUT;
use crate::faults::{COMMIT, OPERATION, THROTTLED_FOR};
use crate::ids::{CLUSTER, HUB, parse};
use crate::plans::{End, When, place_of};

impl World {
    pub(super) fn agent_starts(&mut self) {
        if self.agent.core.is_some() {
            return;
        }
        self.note(|| "the agent starts".to_owned());
        let capabilities = self.version_starts();
        let facts = ClusterFacts { cluster: Some(parse(CLUSTER)), ..ClusterFacts::default() };
        let enrolment = EnrolRequest {
            token: "token".into(),
            agent_key: Vec::new(),
            proof: Vec::new(),
            hub: parse(HUB),
            facts: facts.clone(),
        };
        self.agent.instance = self.random.next();
        let config = Config {
            hub: parse(HUB),
            facts,
            answered: true,
            instance: Instance { id: InstanceId(self.agent.instance), host: format!("run-{}", self.agent.run) },
            enrolment: Some(enrolment),
            seed: self.random.next(),
            fuse: self.scenario.fuse,
            patrol: self.scenario.patrol,
            namespaces: tideline_agent::Namespaces::All,
            capabilities,
        };
        self.locator_starts();
        self.agent.core = Some(Core::new(config, Loaded { token_spent: !self.token, ..self.agent.journal.load() }));
        self.agent_steps(Event::Started);
    }

    pub(super) fn agent_steps(&mut self, event: Event) {
        let Some(core) = &mut self.agent.core else { return };
        let mut effects = Vec::new();
        core.step(Monotonic::from_millis(self.now), event, &mut effects);
        for effect in effects {
            if self.random.chance(self.faults.agent_crash) {
                return self.agent_crashes();
            }
            let end = self.probe.as_mut().and_then(|probe| probe.agent_effect(&effect));
            if let Some(End { when: When::Before, absence, .. }) = end {
                return self.agent_ends(Fate::Lost, absence.millis());
            }
            self.carry_out(effect);
            if let Some(End { when: When::After, leaves, absence }) = end {
                return self.agent_ends(Fate::Done(leaves), absence.millis());
            }
        }
    }

    pub(super) fn carry_out(&mut self, effect: Effect) {
        let run = self.agent.run;
        match effect {
            Effect::Send { id, request } => self.send(id, &request),
            Effect::Persist { id, writes } => {
                self.note(|| format!("agent: writes {id:?} {writes:?}"));
                self.agent.writing.push_back((id, writes.to_vec()));
                let after = self.random.within(COMMIT);
                self.schedule(after, Happening::Written { run });
            }
            Effect::Execute { id, op } => {
                self.note(|| format!("agent: {id:?} {op:?}"));
                self.check_removal_is_authorised(&op);
                self.check_mode(&op);
                self.check_understood(&op);
                self.agent.operations.insert(id, op);
                let after = self.random.within(OPERATION);
                self.schedule(after, Happening::Lands { run, id });
            }
            Effect::SetTimer { timer, at } => {
                self.agent.timers.insert(timer, at);
                let after = at.as_millis().saturating_sub(self.now);
                self.schedule(after, Happening::AgentTimer { run, timer, at });
            }
            Effect::Watch(kinds) => {
                self.agent.streams.retain(|kind, _| kinds.contains_key(kind));
                for kind in kinds.keys() {
                    if !self.agent.streams.contains_key(kind) {
                        self.watch(kind);
                    }
                }
            }
            Effect::Relist(kinds) => {
                for kind in kinds {
                    let objects = self.cluster.list(&kind);
                    let well = self.agent.streams.get(&kind).is_some_and(|stream| !stream.lost);
                    if well && self.is_served(&kind) {
                        self.tell(&kind, Event::Listed { kind: kind.clone(), objects });
                    }
                }
            }
            Effect::ListMetadata { id, kind, .. } => {
                let after = self.random.within(OPERATION);
                self.schedule(after, Happening::ListMetadata { run, id, kind });
            }
            Effect::RecordEvent(kube_event) => self.note(|| format!("agent: {kube_event:?}")),
            Effect::Follow(follow) => self.follow(follow),
            Effect::Patrolled(tally) => {
                self.note(|| format!("agent: {tally:?}"));
                self.agent.patrol = Some(tally);
            }
            Effect::Decommissioned(report) => self.note(|| format!("agent: {report:?}")),
            Effect::Stopped => {
                assert!(self.agent.stopping, "nobody asked it to stop");
                self.agent_ends_after_all(Fate::Lost);
            }
            Effect::Freeze(reason) => {
                assert!(self.scenario.shuts_out || self.other.is_some(), "the only agent freezes: {reason:?}");
                self.note(|| format!("agent: FROZEN, {reason:?}"));
                self.agent.mode = ToldMode::Frozen;
            }
            Effect::UnknownToHub => {
                assert!(self.scenario.shuts_out, "the agent of the only target is not known");
                self.note(|| "agent: UNKNOWN to the hub".to_owned());
                self.agent.mode = ToldMode::UnknownToHub;
            }
            Effect::KeepSession { session, .. } => {
                self.note(|| format!("agent: stores session {session}"));
                self.agent.keeping = Some(session);
                let after = self.random.within(COMMIT);
                self.schedule(after, Happening::SessionKept { run });
            }
            Effect::ReadStoredSession => {
                let after = self.random.within(COMMIT);
                self.schedule(after, Happening::StoredSessionRead { run });
            }
            Effect::Replaced { by } => panic!("no other process has its store, and {by} is there"),
            Effect::Thaw => {
                self.note(|| "agent: goes on".to_owned());
                self.agent.mode = ToldMode::Good;
            }
        }
    }

    pub(super) fn written(&mut self) {
        let Some((id, writes)) = self.agent.writing.pop_front() else { return };
        self.agent.writes += 1;
        let result = if self.random.chance(self.faults.disk) {
            Err("full".to_owned())
        } else {
            self.write_journal(&writes);
            Ok(())
        };
        self.agent_steps(Event::Persisted { id, result });
    }

    /// The agent knows of a set that it has accepted, whether or not it lives to hear that it is written.
    pub(super) fn write_journal(&mut self, writes: &[Write]) {
        self.agent.journal.write(writes);
        for write in writes {
            if let Write::Accept { accepted, .. } = write {
                self.hub.history.on_attestation(accepted.attestation);
            }
        }
    }

    pub(super) fn session_kept(&mut self) {
        let Some(session) = self.agent.keeping.take() else { return };
        let result = if self.random.chance(self.faults.disk) {
            Err("full".to_owned())
        } else {
            self.agent.journal.persisted = session;
            Ok(session)
        };
        self.agent_steps(Event::SessionKept { result });
    }

    pub(super) fn stored_session_read(&mut self) {
        let fails = self.random.chance(self.faults.disk);
        let result = if fails { Err("no".to_owned()) } else { Ok(self.agent.journal.persisted) };
        self.agent_steps(Event::StoredSessionRead { result });
    }

    pub(super) fn operation_lands(&mut self, id: OpId) {
        let Some(op) = self.agent.operations.remove(&id) else { return };
        let run = self.agent.run;
        let fails = self.random.chance(self.faults.operation);
        let result = if fails && self.random.chance(500) { None } else { Some(self.lands(&op)).filter(|_| !fails) };
        let result = result.unwrap_or_else(|| {
            let throttled = self.random.chance(300);
            let reason = if throttled { Reason::Throttled } else { Reason::Unavailable };
            let retry_after = throttled.then_some(THROTTLED_FOR);
            op.failed(Failure { retry_after, ..Failure::new(reason, "no time").unanswered() })
        });
        let after = self.random.within(OPERATION);
        self.schedule(after, Happening::Ends { run, id, result: Box::new(result) });
    }

    pub(super) fn lands(&mut self, op: &Op) -> OpResult {
        self.check_deletion(op);
        if let Op::Create { entry, .. } | Op::Apply { entry, .. } = op
            && !self.agent.journal.bodies.contains_key(&entry.input)
        {
            return op.failed(Failure::new(Reason::BodyMissing, "not there"));
        }
        let before = self.cluster.objects.get(place_of(op)).cloned();
        let result = self.cluster.execute(op);
        if let Some(probe) = &mut self.probe {
            probe.finished(op, &result, before.as_ref());
        }
        let written = matches!(result, OpResult::Create(Ok(Created::Made(_))) | OpResult::Apply(Ok(_)));
        if let Op::Create { entry, .. } | Op::Apply { entry, .. } = op
            && written
        {
            let place = (entry.key.clone(), entry.source.uid.clone());
            // Where the epoch rises, a person has accepted that the hub lost history.
            let accepted = self.agent.journal.accepted.map(|accepted| accepted.attestation);
            let epoch = accepted.map(|accepted| (accepted.target, accepted.version.epoch));
            if std::mem::replace(&mut self.applied_in, epoch) != epoch {
                self.applied.clear();
            }
            // Operations of a former set may arrive late.
            if self.agent.journal.entries.get(&entry.key).is_some_and(|now| now.input == entry.input) {
                let newest = self.applied.entry(place).or_default();
                assert!(*newest <= entry.generation, "{} goes back to an older input", entry.key);
                *newest = entry.generation;
            }
        }
        self.cluster_changed();
        result
    }

    /// Nothing is removed that the accepted set assigns.
    pub(super) fn check_removal_is_authorised(&self, op: &Op) {
        if let Op::Delete { key, .. } | Op::Orphan { key, .. } = op {
            let keeps = self.agent.journal.decommission == Decommission::Keep;
            assert!(!keeps || matches!(op, Op::Orphan { .. }), "{key} is deleted, though all is to be kept");
            // What was due for orphaning before it was assigned again is orphaned if it may not be adopted.
            let overtaken = self.agent.journal.is_overtaken(key) && matches!(op, Op::Orphan { .. });
            let assigned = self.agent.journal.entries.contains_key(key);
            assert!(overtaken || !assigned, "{key} is removed though the accepted set has it");
            let broken = self.agent.journal.history == Continuity::Broken;
            assert!(!broken, "{key} is removed though the agent was told that the history is broken");
        }
        for (key, local) in self.goes_with(op) {
            if let Some(owner) = &local.owner {
                self.hub.history.check_deletion(key, owner);
            }
        }
    }

    /// What an operation deletes: an object, and what is in it or of its kind, unless that is being deleted already.
    fn goes_with(&self, op: &Op) -> Vec<(&ObjectKey, &Local)> {
        let Op::Delete { key, uid, .. } = op else { return Vec::new() };
        let object = self.cluster.objects.get_key_value(key).filter(|(_, local)| local.uid == *uid);
        let Some(object) = object else { return Vec::new() };
        let contents = self.cluster.contents(key).filter(|_| !object.1.deleting);
        std::iter::once(object).chain(contents.map(|inner| (inner, &self.cluster.objects[inner]))).collect()
    }

    /// A frozen agent changes nothing, and one that the hub does not know removes nothing.
    fn check_mode(&self, op: &Op) {
        let removes = matches!(op, Op::Delete { .. } | Op::Orphan { .. });
        match self.agent.mode {
            ToldMode::Good => {}
            ToldMode::UnknownToHub => assert!(!removes, "{op:?}, and the hub does not know this target"),
            ToldMode::Frozen => panic!("{op:?}, and the agent is frozen"),
        }
    }

    /// What is deleted, and what goes with it, is ours to delete. What others created there since the inspection is not known.
    pub(super) fn check_deletion(&self, op: &Op) {
        for (nth, (key, local)) in self.goes_with(op).into_iter().enumerate() {
            match &local.owner {
                Some(owner) => self.check_goes(key, local, owner),
                None => assert!(nth > 0, "{key} is deleted and is not ours"),
            }
        }
    }

    fn check_goes(&self, key: &ObjectKey, local: &Local, owner: &Uid) {
        let place = (key.clone(), owner.clone());
        let history = &self.hub.history;
        let created = local.created || history.pruned_as_created.contains(&place);
        assert!(created, "{key} is deleted though it was adopted");
        let approved = history.approved.contains_key(&place);
        assert!(
            approved || history.unassigned.contains(&place),
            "{key} of {owner} is deleted and was never unassigned"
        );
        let in_advance = || history.approved_in_advance.iter().any(|(at, _)| at == key);
        let leave = approved || history.is_place_approved(key) || in_advance();
        assert!(leave || self.scenario.fuse != SHUT, "{key} of {owner} is deleted and nobody approved that");
    }
}
