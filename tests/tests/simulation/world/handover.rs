//! From one SyncTarget to another, and from one key to another: what people do about it, and what the edges of both sides
//! store.

use std::collections::{BTreeMap, BTreeSet};

use tideline_agent::core::{Answer, Enrolled, LinkFailure};
use tideline_agent::simulated_cluster::{Local, widget};
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{Refusal, RefusalKind};
use tideline_common::{Formers, ObjectKey, Owner, TargetId, Uid};
use tideline_hub::engine::{Belongs, Lineage, belongs};
use tideline_hub::link::core as link;
use tideline_hub::link::exchange::Sender;
use tideline_hub::placement::Change;

use super::World;
use super::hub::refuse;
use crate::hub::Hub;
use crate::ids::{HEIR, SECOND_HEIR, TARGET, owner, parse};
use crate::wire::AGENT_KEY;

impl Hub {
    /// The answer to an agent of a target that is not in the inventory any more, or not yet.
    pub(super) fn of_another(&self, found: TargetId, request: &link::Request) -> Option<Result<link::Answer, Refusal>> {
        let link::Request::Session(request, _) = request else {
            return (found != self.target()).then(|| Err(refuse(RefusalKind::TargetGone)));
        };
        match belongs(self, found, request) {
            Belongs::Here if found == self.target() => None,
            Belongs::Here | Belongs::TooOld { .. } => Some(Err(refuse(RefusalKind::TargetGone))),
            Belongs::Elsewhere(handover) => Some(Ok(link::Answer::Session(link::handing_over(handover)))),
        }
    }
}

impl Lineage for Hub {
    fn key(&self, target: TargetId) -> Option<VerifyingKey> {
        let first = target == parse(TARGET) && !self.disk.forgot_first;
        let known = first || Some(target) == self.disk.heir;
        known.then(|| AGENT_KEY.public())
    }

    fn name(&self, target: TargetId, _: &VerifyingKey) -> Option<String> {
        (target == self.target()).then(|| "store".to_owned())
    }

    fn heir(&self, target: TargetId) -> Option<TargetId> {
        self.disk.heir.filter(|heir| *heir != target)
    }
}

impl World {
    /// Its SyncTarget is deleted by mistake.
    pub(crate) fn delete_target(&mut self) {
        self.scenario.shuts_out = true;
        self.shut_out(RefusalKind::TargetGone);
    }

    /// People delete some of what is placed. Returns which other objects exist at the cluster.
    pub(crate) fn unassign_some(&mut self) -> BTreeMap<ObjectKey, Uid> {
        let share = 200 + self.random.below(500);
        let named: BTreeSet<_> = self.workload.keys.iter().map(|key| (key.kind.clone(), key.name.clone())).collect();
        let gone: BTreeSet<_> = named.into_iter().filter(|_| self.random.chance(share)).collect();
        let goes = |key: &ObjectKey| gone.contains(&(key.kind.clone(), key.name.clone()));
        self.note(|| format!("UNASSIGNED: {gone:?}"));
        // What a fuse holds exists there too, and is not placed any more.
        let placed = self.hub.history.assigned().cloned().collect::<BTreeSet<_>>();
        self.act(|spaces| spaces.delete(goes));
        // A definition is deleted with all of its kind, and a namespace with the last object in it.
        let depends = |key: &ObjectKey| key.kind.is_namespace() || key.kind.is_definition() || key.kind == widget();
        self.uids().into_iter().filter(|(key, _)| placed.contains(key) && !goes(key) && !depends(key)).collect()
    }

    /// One of its name is created, and adopts the agent. The agent hears of it when it asks.
    pub(crate) fn adopt(&mut self) {
        self.adopt_as(parse(HEIR));
    }

    /// The same, after the hub was set back to before that.
    pub(crate) fn adopt_again(&mut self) {
        self.adopt_as(parse(SECOND_HEIR));
    }

    fn adopt_as(&mut self, heir: TargetId) {
        self.note(|| format!("the agent is ADOPTED as {heir}"));
        self.shut_out = None;
        let former = self.hub.target();
        self.hub.disk.heir = Some(heir);
        let Owner { target, formers, .. } = self.cluster.agent;
        self.cluster.agent = owner(heir, formers.with(target));
        self.hub_starts();
        self.hub.history.jump(&self.hub.ledger, heir);
        let ran = self.hub.ledger.target(former).map(|view| view.facts()).unwrap_or_default();
        self.hub.change([Change::Inherit(heir, ran), Change::Forget(former)]);
        let known = self.hub.known();
        self.hub_steps(known);
        self.workload_changed();
    }

    /// The hub runs on a copy from before the adoption.
    pub(crate) fn restore_before_adoption(&mut self) {
        assert!(self.restore(false), "there is a copy");
        self.cluster.agent = owner(parse(TARGET), Formers::default().with(parse(HEIR)));
        self.hub_starts();
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

    /// The hub's directory is lost: it starts with its key and address, and knows of nothing else. Then a SyncTarget is
    /// created, as which nobody has enrolled.
    pub(crate) fn lose_store(&mut self) {
        self.note(|| "the hub's directory is LOST".to_owned());
        self.applied.clear();
        self.restored = true;
        self.scenario.shuts_out = true;
        self.hub_crashes();
        self.hub.disk = self.hub.empty.clone();
        self.hub.disk.heir = Some(parse(HEIR));
        self.hub.disk.forgot_first = true;
        self.workload.lose();
        self.hub.rolled_back = false;
        self.hub.set_back();
        self.shut_out(RefusalKind::UnknownTarget);
    }

    /// The agent is given a token of that SyncTarget.
    pub(crate) fn enrol_anew(&mut self) {
        self.cluster.agent = owner(parse(HEIR), Formers::default().with(parse(TARGET)));
        self.give_token();
    }

    /// A token brings back an agent whose key was revoked, or that the hub does not know.
    pub(super) fn new_key_enrols(&self, sender: &Sender) -> bool {
        let replaced = matches!(self.shut_out, Some(RefusalKind::Revoked | RefusalKind::UnknownTarget));
        replaced && matches!(sender, Sender::Token(_)) && self.token
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

    /// Whether every mark of ours names the present SyncTarget.
    pub(crate) fn check_marks(&self) {
        let theirs = |(key, local): (&ObjectKey, &Local)| {
            let mark = local.mark.as_ref().filter(|_| local.owner.is_some() && !self.may_be_unknown(key))?;
            (mark.target != self.cluster.agent.target && mark.local == *key).then(|| key.clone())
        };
        let left: Vec<_> = self.cluster.objects.iter().filter_map(theirs).collect();
        assert!(left.is_empty(), "marked for another SyncTarget: {left:?}");
    }
}
