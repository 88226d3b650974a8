//! What the agent knows of its cluster.
//!
//! An [`Object`](object::Object) is one place at the cluster: its [`WorkState`](work_state::WorkState) says where it is in the
//! work, its [`Presence`](presence::Presence) what is known to stand there, and its [`LiveStatus`](live_status::LiveStatus) what
//! is known of the status of that. A [`Removal`](removal::Removal) is of one source that is to be gone from such a place. Most
//! objects are at rest, and [compacted](compact) into rows of a few bytes; [`objects`] has both kinds, and expands what is
//! touched. What changes is queued for the journal, in [`disk`].

pub(super) mod change;
pub(super) mod compact;
pub(super) mod creations;
pub(super) mod disk;
pub(super) mod forbidden_kinds;
pub(super) mod inputs;
pub(super) mod key_ref;
pub(super) mod kinds;
pub(super) mod live_status;
pub(super) mod object;
pub(super) mod objects;
pub(super) mod ownership;
pub(super) mod presence;
pub(super) mod records;
pub(super) mod removal;
pub(super) mod restored;
pub(super) mod rows;
pub(super) mod seen;
pub(super) mod shared;
pub(super) mod turn;
pub(super) mod work_state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::wire::v1::Decommission;
use tideline_common::{
    ApplyPolicy, DesiredSet, Digest, Formers, GroupKind, HubId, Monotonic, ObjectKey, ReportClass, TargetId, Tombstone,
    Uid,
};

use crate::core::interface::observed::Observed;
use crate::core::interface::write::Write;
use crate::namespaces::Namespaces;
use creations::Creations;
use disk::Disk;
use forbidden_kinds::ForbiddenKinds;
use inputs::Inputs;
use kinds::Kinds;
use object::Me;
use objects::Objects;
use removal::{JournalAge, Removal};
use restored::Restored;
use seen::Seen;
use shared::Shared;

/// Policies beyond twice those that are named, before the others are dropped: each takes about 1 KB.
pub(in crate::core) const POLICIES_SPARE: usize = 100;

/// What is known of the cluster, and what is wanted there. Bounded by what is placed at its target: it keeps no body, and no
/// status that was reported.
#[derive(Debug)]
pub(super) struct Model {
    /// The pinned hub.
    pub(super) hub: HubId,
    pub(super) target: Option<TargetId>,
    /// Former targets of this agent, whose marks are its own.
    pub(super) formers: Formers,
    pub(super) desired: DesiredSet,
    pub(super) policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
    /// With so many, those that nothing names are dropped, at the next switch.
    pub(super) policies_max: usize,
    pub(super) inputs: Inputs,
    pub(super) shared: Shared,
    pub(super) objects: Objects,
    pub(super) removals: BTreeMap<Tombstone, Removal>,
    /// Whether the whole cluster is to be emptied, or left.
    pub(super) decommission: Decommission,
    pub(super) journal_age: JournalAge,
    /// The namespace in which objects show that the journal was set back, while no other has shown that.
    pub(super) later_in: Option<Arc<str>>,
    /// When the API server first answered discovery or a list, if only with a refusal.
    pub(super) heard_at: Option<Monotonic>,
    /// Something could not be applied because its body was missing, since the last set was accepted.
    pub(super) lacks_bodies: bool,
    /// Keys with a terminal fact in a set that is not on disk yet. Nothing else records the fact, so it is kept.
    pub(super) told_ahead: BTreeSet<ObjectKey>,
    /// Objects that stand, as the journal knows them.
    pub(super) recorded: usize,
    pub(super) kinds: Kinds,
    pub(super) restored: Restored,
    pub(super) creations: Creations,
    pub(super) forbidden_kinds: ForbiddenKinds,
    /// The same for refusals of webhooks, policies and quotas: those concern single objects, and are no missing right.
    pub(super) not_admitted: ForbiddenKinds,
    /// The journal was empty at the start, so marks are believed where they match, and nothing is applied twice.
    pub(super) believe_marks: bool,
    /// By which the journal learns of all that.
    pub(super) disk: Disk,
}

impl Model {
    /// Nothing is known yet, of a cluster of which these namespaces are kept.
    pub(super) fn new(hub: HubId, namespaces: Namespaces) -> Self {
        Self {
            hub,
            target: None,
            formers: Formers::default(),
            desired: DesiredSet::default(),
            policies: BTreeMap::new(),
            policies_max: POLICIES_SPARE,
            inputs: Inputs::default(),
            shared: Shared::default(),
            objects: Objects::default(),
            removals: BTreeMap::new(),
            decommission: Decommission::No,
            journal_age: JournalAge::Unknown,
            later_in: None,
            heard_at: None,
            lacks_bodies: false,
            told_ahead: BTreeSet::new(),
            recorded: 0,
            kinds: Kinds::new(namespaces),
            restored: Restored::default(),
            creations: Creations::default(),
            forbidden_kinds: ForbiddenKinds::default(),
            not_admitted: ForbiddenKinds::default(),
            believe_marks: false,
            disk: Disk::default(),
        }
    }

    /// Whose agent this is, once it is a target.
    pub(super) fn me(&self) -> Option<Me> {
        self.target.map(|target| Me { hub: self.hub, target, formers: self.formers })
    }

    /// Whether the set assigns this source to a key.
    pub(in crate::core) fn assigns(&self, key: &ObjectKey, source: &Uid) -> bool {
        self.desired.get(key).is_some_and(|entry| entry.source.uid == *source)
    }

    /// A tree that grew in the order of its keys is half empty: it is rebuilt.
    pub(in crate::core) fn pack(&mut self) {
        self.desired.pack();
        self.objects.pack();
        self.inputs.pack();
        self.removals = std::mem::take(&mut self.removals).into_iter().collect();
    }

    /// After a start: bodies that a crash left behind.
    pub(in crate::core) fn drop_bodies(&mut self) {
        let unnamed = self.inputs.take_all_unnamed();
        self.drop_inputs(unnamed);
    }

    pub(in crate::core) fn drop_inputs(&mut self, unnamed: Vec<Digest>) {
        if !unnamed.is_empty() {
            self.disk.write(Write::DropBodies(unnamed));
        }
    }

    /// Forgets the policies that no entry, no object as it was applied last, no removal and nothing under way names. It walks
    /// all of them, so it waits until that is worth it.
    pub(in crate::core) fn drop_policies(&mut self, in_flight: impl Iterator<Item = Digest>) {
        if self.policies.len() < self.policies_max {
            return;
        }
        let entries = self.desired.iter().map(|(_, entry)| entry.policy);
        let mut named: BTreeSet<Digest> = entries.chain(in_flight).collect();
        let objects = self.objects.keys().filter_map(|key| self.objects.get(key));
        named.extend(objects.filter_map(|object| object.record.as_ref().map(|record| record.policy)));
        // Its gates say for which waves a removal waits.
        named.extend(self.removals.values().filter_map(Removal::last_policy));
        let (kept, dropped) =
            std::mem::take(&mut self.policies).into_iter().partition(|(digest, _)| named.contains(digest));
        self.policies = kept;
        let dropped: Vec<Digest> = BTreeMap::into_keys(dropped).collect();
        if !dropped.is_empty() {
            self.disk.write(Write::DropPolicies(dropped));
        }
        self.policies_max = POLICIES_SPARE + 2 * self.policies.len();
    }

    pub(in crate::core) fn compact(&mut self) {
        let me = self.me();
        self.objects.compact(&self.desired, me);
    }

    /// For steps that touch many objects.
    pub(in crate::core) fn compact_if_many(&mut self) {
        if self.objects.is_wide_open() {
            self.compact();
        }
    }

    /// Every key of a kind of which something is known, in order.
    pub(in crate::core) fn keys_of(&self, kind: &GroupKind) -> Vec<ObjectKey> {
        let from = ObjectKey::new(kind.clone(), "", "");
        self.objects.keys_from(&from).take_while(|key| key.kind == *kind).cloned().collect()
    }

    /// How much is reported of an object: as its entry says, or the entry that it was last written for.
    pub(in crate::core) fn report_class(&self, key: &ObjectKey) -> &ReportClass {
        let recorded = || self.objects.get(key).and_then(|object| Some(object.record.as_ref()?.policy));
        let policy = self.desired.get(key).map(|entry| entry.policy).or_else(recorded);
        policy.and_then(|policy| self.policies.get(&policy)).map_or(&ReportClass::Status, |policy| &policy.report)
    }

    /// Whether the journal was found to be older than the cluster, and the hub was not heard since.
    pub(super) fn is_set_back(&self) -> bool {
        self.journal_age == JournalAge::SetBack
    }

    /// Whether that goes for its namespace alone.
    pub(in crate::core) fn is_set_back_at(&self, key: &ObjectKey) -> bool {
        self.journal_age == JournalAge::Unknown && self.later_in.as_ref() == Some(namespace_of(key))
    }

    /// Takes a look at an object into account: whether it could change a decision. None if a later look was taken.
    pub(super) fn see(&mut self, key: &ObjectKey, observed: Observed) -> Option<bool> {
        let asked = self.report_class(key).has_body();
        let object = self.objects.at(key);
        let seen = Seen::from(&observed);
        if object.seen().is_some_and(|former| seen.is_older_than(former)) {
            return None;
        }
        let news = !object.seen().is_some_and(|former| former.decides_like(&seen));
        object.presence.show(seen);
        object.live.health = observed.health;
        object.live.message = observed.health_message;
        object.live.status.show(observed.status, asked);
        object.translate_generation();
        Some(news)
    }
}

/// The namespace that an object is in. A Namespace is in itself: who may edit it is not who may edit what else has none.
pub(super) fn namespace_of(key: &ObjectKey) -> &Arc<str> {
    if key.kind.is_namespace() { &key.name } else { &key.namespace }
}
