//! From one SyncTarget to another, and from one key to another: what people do about it, and what the edges of both sides keep.

use tideline_agent::core::{Answer, Enrolled, LinkFailure};
use tideline_common::wire::v1::{Handover, Refusal, RefusalKind};
use tideline_common::{Formers, ObjectKey, TargetId};
use tideline_hub::link::core as link;
use tideline_hub::placement::Change;

use super::World;
use super::hub::refuse;
use crate::cluster::Agents;
use crate::hub::Hub;
use crate::ids::{HEIR, TARGET, parse};
use crate::wire::Packet;

impl Hub {
    /// What is said to who asks as the target that was deleted: it is another now.
    pub(super) fn hands_over(
        &self,
        asked_as: Option<TargetId>,
        packet: &Packet,
    ) -> Option<Result<link::Answer, Refusal>> {
        let former = asked_as.filter(|asked_as| *asked_as != self.target())?;
        if !matches!(packet, Packet::Session(_)) {
            return Some(Err(refuse(RefusalKind::TargetGone)));
        }
        let (target, name) = (self.target(), "store".to_owned());
        Some(Ok(link::Answer::Session(link::handing_over(Handover { key: Vec::new(), former, target, name }))))
    }
}

impl World {
    /// Its SyncTarget is deleted by mistake.
    pub(crate) fn delete_target(&mut self) {
        self.scenario.shuts_out = true;
        self.shut_out(RefusalKind::TargetGone);
    }

    /// One of its name is made, and takes over the agent. The agent hears of it when it asks.
    pub(crate) fn adopt(&mut self) {
        self.note(|| "the agent is ADOPTED".to_owned());
        self.shut_out = None;
        self.hub.disk.heir = Some(parse(HEIR));
        self.cluster.agents = Agents { target: parse(HEIR), formers: Formers::default().with(parse(TARGET)) };
        self.hub_starts();
        self.hub.history.jump(&self.hub.ledger, parse(HEIR));
        self.hub.change([Change::Forget(parse(TARGET))]);
        let known = self.hub.known();
        self.hub_steps(known);
        self.workload_changed();
    }

    /// Its key is revoked, and the agent is given a token.
    pub(crate) fn revoke(&mut self) {
        self.scenario.shuts_out = true;
        self.shut_out(RefusalKind::Revoked);
    }

    pub(crate) fn give_token(&mut self) {
        self.note(|| "the agent is given a TOKEN".to_owned());
        self.token = true;
        self.agent_crashes();
    }

    /// With a token an agent whose key was revoked comes with another.
    pub(super) fn new_key_enrols(&self, packet: &Packet) -> bool {
        self.shut_out == Some(RefusalKind::Revoked) && matches!(packet, Packet::Enrol) && self.token
    }

    /// The identity has what the hub says that the agent is before the core hears of it.
    pub(super) fn keep_target(&mut self, result: &Result<Answer, LinkFailure>) {
        let became = match result {
            Ok(Answer::Enrolled(answer)) => {
                self.token = false;
                Some((answer.target, answer.name.clone()))
            }
            Ok(Answer::Session(answer)) => answer.handover.as_ref().map(|it| (it.target, it.name.clone())),
            Ok(Answer::Desired(_) | Answer::Bodies(_) | Answer::Reported(_)) | Err(_) => None,
        };
        if let Some((target, name)) = became {
            self.agent.journal.become_target(Enrolled { target, name });
        }
    }

    /// Whether every mark of ours names the SyncTarget that there is now.
    pub(crate) fn check_marks(&self) {
        let theirs = |(key, local): (&ObjectKey, &crate::cluster::Local)| {
            let mark = local.mark.as_ref().filter(|_| local.owner.is_some())?;
            (mark.target == parse(TARGET) && mark.local == *key).then(|| key.clone())
        };
        let left: Vec<_> = self.cluster.objects.iter().filter_map(theirs).collect();
        assert!(left.is_empty(), "marked for the SyncTarget that was deleted: {left:?}");
    }
}
