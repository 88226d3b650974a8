//! Hands a SyncTarget that was made again to the agent of the one that was deleted, and finds agents that name another target
//! than this hub knows them as.

use std::collections::BTreeSet;

use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{SessionAnswer, SessionRequest};
use tideline_common::{Capability, Reason, TargetId, upgrade};
use tracing::{info, warn};

use super::lineage::{Belongs, Lineage, belongs};
use super::{Contact, Engine, TargetRecord};
use crate::link::core::{self as link, HolderRecord};
use crate::placement::Change;

impl Engine {
    /// The inventory says that `heir` takes over the agent of `former`, whose key it has. Its sessions go on there.
    pub(super) fn adopt(&mut self, former: TargetId, heir: TargetId, record: &TargetRecord) {
        let Some(remembered) = self.memory.get(former) else {
            warn!(sync_target = record.name, %former, "cannot adopt: no target is remembered by the UID in the annotation tideline.dev/adopts; see `tideline-hub targets list`");
            return;
        };
        // Its agent was handed on since, and who holds the place now is not who did when it was here.
        if let Some(other) = remembered.heir.filter(|it| *it != heir) {
            warn!(sync_target = record.name, %former, uid = %other, "cannot adopt: the former agent was handed to another SyncTarget since, with this UID; once that is deleted, adopt its agent; see `tideline-hub targets list`");
            return;
        }
        // The hub may have ended between what says that it was handed over and who holds it.
        if remembered.heir == Some(heir) && self.targets.holder(heir) != HolderRecord::default() {
            return self.inherit(former, heir);
        }
        let same = !remembered.is_revoked() && remembered.known_key().as_ref() == Some(&record.key);
        let elsewhere = self.targets.iter().any(|(it, outline)| it != heir && outline.record.key == record.key);
        if elsewhere || self.memory.is_revoked(&record.key) {
            warn!(sync_target = record.name, %former, "cannot adopt: the agent's key was revoked, or belongs to another SyncTarget; see `tideline-hub targets list`");
            return;
        }
        if remembered.deleted.is_none() || !same || former == heir {
            warn!(sync_target = record.name, %former, "cannot adopt: tideline.dev/agent-key is not the key of the former agent, or the former SyncTarget still exists");
            return;
        }
        info!(sync_target = record.name, %former, uid = %heir, "it takes over the agent of a deleted SyncTarget");
        self.memory.handed(former, heir);
        // Session, holder and whether there are several go with the agent.
        self.hold(heir, self.targets.holder(former));
        self.inherit(former, heir);
    }

    /// The agent of `heir` opens a session, and says what it was before: its key says so too.
    pub(super) fn inherit_from(&mut self, formers: &[TargetId], heir: TargetId) {
        let Some(key) = self.targets.get(heir).map(|outline| outline.record.key.clone()) else { return };
        for former in formers {
            let Some(remembered) = self.memory.get(*former) else { continue };
            if remembered.known_key().as_ref() == Some(&key) {
                self.came.extend((!remembered.ran.is_empty()).then_some((*former, heir)));
                self.inherit(*former, heir);
            }
        }
    }

    /// What ran at `former` does not run again at `heir`, though the agent may have lost its memory of it. Once in each run
    /// of the hub, for the ledger may not have been told before the last one ended.
    fn inherit(&mut self, former: TargetId, heir: TargetId) {
        let Some(remembered) = self.memory.get(former).filter(|it| it.deleted.is_some() && !it.ran.is_empty()) else {
            return;
        };
        let ran = remembered.ran.clone();
        if self.inherited.insert((former, heir)) {
            self.changes.push(Change::Inherit(heir, ran));
        }
    }

    /// What was inherited is persisted. Its agent came as the heir, and names both when it is handed on: what ran is known of
    /// that one, and need not be of the former.
    pub(super) fn inherited(&mut self, came: BTreeSet<(TargetId, TargetId)>) {
        for (former, heir) in came {
            if self.is_registered(heir) {
                self.memory.inherited(former);
            }
        }
    }

    /// What is answered to the agent that asks as `target`, by its verified key, where it belongs to another.
    pub(super) fn handover(&mut self, target: TargetId, request: &SessionRequest) -> Option<SessionAnswer> {
        match belongs(self, target, request) {
            Belongs::Here => None,
            Belongs::Elsewhere(handover) => Some(link::handing_over(handover)),
            Belongs::TooOld { heir, name } => {
                warn!(sync_target = name, "cannot take over its former agent: {}", upgrade(&[Capability::Handover]));
                self.targets.problem(heir, Reason::AgentTooOld);
                self.dirty.targets.insert(heir);
                None
            }
        }
    }

    /// What is to be done about the agent of a deleted target before it can go on as another, as far as is known of its last
    /// session.
    pub fn upgrade_before_handover(&self, target: TargetId) -> Option<String> {
        let holder = self.targets.holder(target);
        let too_old = !holder.session().is_none() && !holder.capabilities().has(Capability::Handover);
        too_old.then(|| upgrade(&[Capability::Handover]))
    }

    /// What is to be done about the agent that was handed to this target and has not come yet, if it cannot.
    pub fn upgrade_before_it_comes(&self, heir: TargetId) -> Option<String> {
        let outline = self.targets.get(heir)?;
        if outline.record.adopts.is_none() || outline.contact != Contact::Never {
            return None;
        }
        // As it asked last, or as it was when its SyncTarget was deleted.
        let asked = outline.problems.contains(&Reason::AgentTooOld);
        asked.then(|| upgrade(&[Capability::Handover])).or_else(|| self.upgrade_before_handover(heir))
    }
}

impl Lineage for Engine {
    fn key(&self, target: TargetId) -> Option<VerifyingKey> {
        self.key_of(target)
    }

    fn name(&self, target: TargetId, key: &VerifyingKey) -> Option<String> {
        let record = &self.targets.get(target)?.record;
        (record.key == *key).then(|| record.name.clone())
    }

    fn heir(&self, target: TargetId) -> Option<TargetId> {
        self.memory.get(target)?.heir
    }
}
