use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_agent::addresses::Addresses;
use tideline_agent::core::{AgentMode, AppliedRecord, Enrolled, Loaded, RemovalPolicy, RestoredObject, Write};
use tideline_common::wire::v1::{Attested, Continuity, Decommission, ObjectReport};
use tideline_common::{
    ApplyPolicy, DesiredSet, Digest, Entry, EntryState, Formers, GroupKind, ObjectKey, SessionName, Tombstone,
};

use crate::ids::{CLUSTER, parse};

/// What the agent's disk holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    enrolled: Option<Enrolled>,
    /// The target that the identity names.
    pub(crate) identity: Option<Enrolled>,
    pub(crate) formers: Formers,
    inherited: Option<Attested>,
    /// The addresses of the hub in the identity.
    pub(crate) addresses: Addresses,
    /// The session that is stored.
    pub(crate) persisted: SessionName,
    /// What the identity keeps of the sets that were accepted.
    floor: Option<Attested>,
    pub(crate) accepted: Option<Attested>,
    pub(crate) history: Continuity,
    pub(crate) mode: AgentMode,
    pub(crate) entries: BTreeMap<ObjectKey, Arc<Entry>>,
    pub(crate) policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
    pub(crate) bodies: BTreeMap<Digest, Arc<str>>,
    pub(crate) applied: BTreeMap<ObjectKey, AppliedRecord>,
    pub(crate) removing: BTreeMap<Tombstone, RemovalPolicy>,
    passed: BTreeMap<u64, Tombstone>,
    held: BTreeSet<Tombstone>,
    ran: BTreeMap<u64, Tombstone>,
    creating: BTreeSet<Tombstone>,
    kinds: BTreeMap<GroupKind, Arc<str>>,
    came_back: BTreeMap<ObjectKey, RestoredObject>,
    pub(crate) decommission: Decommission,
    pub(crate) unsent: BTreeMap<ObjectKey, ObjectReport>,
}

impl Journal {
    /// Writes a batch, all of it.
    pub(crate) fn write(&mut self, writes: &[Write]) {
        for write in writes.iter().cloned() {
            match write {
                Write::Enrolled(enrolled) => {
                    self.enrolled = Some(enrolled);
                    self.accepted = None;
                }
                Write::Body { input, text } => {
                    self.bodies.insert(input, text);
                }
                Write::Accept { accepted, put, remove, policies } => {
                    let accepted = *accepted;
                    for key in &remove {
                        self.entries.remove(key);
                    }
                    self.entries.extend(put.into_iter().map(|entry| (entry.key.clone(), entry)));
                    self.policies.extend(policies);
                    self.accepted = Some(accepted);
                    // A set accepted as another target does not count.
                    if self.identity.as_ref().is_some_and(|identity| identity.target == accepted.attestation.target) {
                        self.floor = Some(accepted);
                    }
                }
                Write::Applied { key, record } => {
                    self.applied.insert(key, *record);
                }
                Write::Forgotten { key } => {
                    self.applied.remove(&key);
                }
                Write::Removing { tombstone, policy } => {
                    self.removing.insert(tombstone, policy);
                }
                Write::Removed(tombstone) => {
                    self.removing.remove(&tombstone);
                }
                Write::Passed { number, tombstone } => {
                    self.passed.insert(number, tombstone);
                }
                Write::Lapsed { number } => {
                    self.passed.remove(&number);
                }
                Write::Held(tombstone) => {
                    self.held.insert(tombstone);
                }
                Write::Unheld(tombstone) => {
                    self.held.remove(&tombstone);
                }
                Write::History(history) => self.history = history,
                Write::Mode(mode) => self.mode = mode,
                Write::Decommission(how) => self.decommission = how,
                Write::Unsent(report) => {
                    self.unsent.insert(report.key.clone(), *report);
                }
                Write::Sent { key } => {
                    self.unsent.remove(&key);
                }
                Write::Ran { number, tombstone } => {
                    self.ran.insert(number, tombstone);
                }
                Write::RanForgotten { number } => {
                    self.ran.remove(&number);
                }
                Write::Creating(creation) => {
                    self.creating.insert(creation);
                }
                Write::CreationKnown(creation) => {
                    self.creating.remove(&creation);
                }
                Write::Kind { kind, version } => {
                    self.kinds.insert(kind, version);
                }
                Write::RestoredObject(it) => {
                    self.came_back.insert(it.key.clone(), it);
                }
                Write::RestoredGone { key } => {
                    self.came_back.remove(&key);
                }
                Write::DropPolicies(policies) => policies.iter().for_each(|policy| drop(self.policies.remove(policy))),
                Write::DropBodies(bodies) => bodies.iter().for_each(|input| drop(self.bodies.remove(input))),
            }
        }
        // Nothing else changes what is checked here, and hashing whole sets takes time.
        if writes
            .iter()
            .any(|write| matches!(write, Write::Accept { .. } | Write::DropBodies(_) | Write::DropPolicies(_)))
        {
            self.check();
        }
    }

    /// Whether an object was due for orphaning under the key, before the present entry.
    pub(crate) fn is_overtaken(&self, key: &ObjectKey) -> bool {
        let says = |policy: &RemovalPolicy| matches!(policy, RemovalPolicy::Tombstone(policy) if policy.orphans());
        self.removing.iter().any(|(tombstone, policy)| tombstone.key == *key && says(policy))
    }

    /// The process may end here, so this must be a whole set with its bodies and policies.
    fn check(&self) {
        let Some(accepted) = self.accepted else { return };
        let set: DesiredSet = self.entries.values().cloned().collect();
        assert_eq!(set.digest(), accepted.set.digest, "the journal's entries are not the set it names");
        for entry in self.entries.values() {
            let has = self.bodies.contains_key(&entry.input);
            let withheld = matches!(entry.state, EntryState::Withheld(_));
            assert!(has || withheld, "the set is accepted without the body of {}", entry.key);
            assert!(self.policies.contains_key(&entry.policy), "the set is accepted without a policy of {}", entry.key);
        }
    }

    /// Everything is lost but the identity, which is stored elsewhere.
    pub(crate) fn lose(&mut self) {
        let Self { identity, formers, inherited, addresses, persisted, floor, .. } = std::mem::take(self);
        *self = Self { identity, formers, inherited, addresses, persisted, floor, ..Self::default() };
    }

    /// The hub says what the agent is: the identity has that before the core hears of it.
    pub(crate) fn become_target(&mut self, enrolled: Enrolled) {
        let former = self.identity.as_ref().map(|identity| identity.target).filter(|it| *it != enrolled.target);
        if let Some(former) = former {
            self.formers = self.formers.with(former).without(enrolled.target);
            self.inherited = self.floor.take().or(self.inherited);
        }
        self.identity = Some(enrolled);
    }

    pub(crate) fn load(&self) -> Loaded {
        let applied = self.applied.values().map(|record| record.policy);
        let named: BTreeSet<Digest> = self.entries.values().map(|entry| entry.policy).chain(applied).collect();
        Loaded {
            enrolled: self.enrolled.clone().or_else(|| self.identity.clone()),
            handed_to: self
                .identity
                .clone()
                .filter(|identity| self.enrolled.as_ref().is_some_and(|enrolled| enrolled.target != identity.target)),
            formers: self.formers,
            inherited: self.inherited,
            token_spent: true,
            cluster: self.identity.as_ref().map(|_| parse(CLUSTER)),
            session: self.persisted,
            floor: self.floor,
            accepted: self.accepted,
            history: self.history,
            mode: self.mode.clone(),
            entries: self.entries.values().cloned().collect(),
            // As the real one: a policy that no entry names is kept for objects that were applied under it.
            policies: self.policies.clone().into_iter().filter(|(digest, _)| named.contains(digest)).collect(),
            bodies: self.bodies.keys().copied().collect(),
            applied: self.applied.iter().map(|(key, record)| (key.clone(), record.clone())).collect(),
            removing: self.removing.clone().into_iter().collect(),
            passed: self.passed.clone().into_iter().collect(),
            held: self.held.iter().cloned().collect(),
            ran: self.ran.clone().into_iter().collect(),
            creating: self.creating.iter().cloned().collect(),
            kinds: self.kinds.clone().into_iter().collect(),
            came_back: self.came_back.values().cloned().collect(),
            decommission: self.decommission,
            unsent: self.unsent.values().cloned().collect(),
        }
    }
}
