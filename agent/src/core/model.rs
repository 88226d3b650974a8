//! What the agent knows of its cluster.
//!
//! An [`Object`](object::Object) is one place at the cluster: its [`WorkState`](work_state::WorkState) says where it is in the
//! work, its [`Presence`](presence::Presence) what is known to stand there. Most are at rest, and [compacted](compact) into rows
//! of a few bytes; [`objects`] has both kinds, and expands what is touched. [`observe`] takes in what the cluster says.

pub(super) mod change;
pub(super) mod compact;
pub(super) mod forbidden_kinds;
pub(super) mod inputs;
pub(super) mod key_ref;
pub(super) mod kinds;
pub(super) mod object;
pub(super) mod objects;
pub(super) mod observe;
pub(super) mod presence;
pub(super) mod removal;
pub(super) mod rows;
pub(super) mod seen;
pub(super) mod shared;
pub(super) mod work_state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::wire::v1::Decommission;
use tideline_common::{ApplyPolicy, DesiredSet, Digest, Formers, HubId, Monotonic, ObjectKey, TargetId, Tombstone};

use crate::namespaces::Namespaces;
use forbidden_kinds::ForbiddenKinds;
use inputs::Inputs;
use kinds::Kinds;
use object::Me;
use objects::Objects;
use removal::{JournalAge, Removal};
use shared::Shared;

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
    pub(super) inputs: Inputs,
    pub(super) shared: Shared,
    pub(super) objects: Objects,
    pub(super) removals: BTreeMap<Tombstone, Removal>,
    /// Whether the whole cluster is to be emptied, or left.
    pub(super) decommission: Decommission,
    pub(super) journal_age: JournalAge,
    /// When the API server first answered discovery or a list, if only with a refusal.
    pub(super) heard_at: Option<Monotonic>,
    /// Something could not be applied because its body was missing, since the last set was accepted.
    pub(super) lacks_bodies: bool,
    /// Keys with a terminal fact in a set that is not on disk yet. Nothing else records the fact, so it is kept.
    pub(super) told_ahead: BTreeSet<ObjectKey>,
    /// Objects that stand, as the journal knows them.
    pub(super) recorded: usize,
    pub(super) kinds: Kinds,
    pub(super) forbidden_kinds: ForbiddenKinds,
    /// The same for refusals of webhooks, policies and quotas: those concern single objects, and are no missing right.
    pub(super) not_admitted: ForbiddenKinds,
    /// The journal was empty at the start, so marks are believed where they match, and nothing is applied twice.
    pub(super) believe_marks: bool,
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
            inputs: Inputs::default(),
            shared: Shared::default(),
            objects: Objects::default(),
            removals: BTreeMap::new(),
            decommission: Decommission::No,
            journal_age: JournalAge::Unknown,
            heard_at: None,
            lacks_bodies: false,
            told_ahead: BTreeSet::new(),
            recorded: 0,
            kinds: Kinds::new(namespaces),
            forbidden_kinds: ForbiddenKinds::default(),
            not_admitted: ForbiddenKinds::default(),
            believe_marks: false,
        }
    }

    /// Whose agent this is, once it is a target.
    pub(super) fn me(&self) -> Option<Me> {
        self.target.map(|target| Me { hub: self.hub, target, formers: self.formers })
    }
}
