//! What the cluster says of objects, as the edges decode it.

use std::sync::{Arc, LazyLock};

use serde_json::value::RawValue;
use tideline_common::associated::Phase;
use tideline_common::health::Health;
use tideline_common::limits::{STATUS_BYTES_MAX, STATUS_LEVELS_MAX};
use tideline_common::wire::v1::Terminal;
use tideline_common::{Digest, GroupKind, Mark, ObjectKey, Owner as Agent, Ownership, Uid, nesting};

/// How the target's API server serves a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    Yes {
        namespaced: bool,
        status: bool,
    },
    No,
    /// Discovery failed: neither yes nor no.
    Unknown,
}

/// What is known of a local object from a list, a watch or a write. Cheap: no spec.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is of one thing about an object, as its metadata says it")]
pub struct Observed {
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: Arc<str>,
    /// Zero where the kind has none.
    pub generation: i64,
    /// The hash of the managedFields entries of our managers, without their time; none if there are none.
    pub managed: Option<Digest>,
    /// The mark, if there is a readable one.
    pub mark: Option<Arc<Mark>>,
    /// There is a mark that this build cannot read: of a later layout, or of nobody.
    pub illegible: bool,
    /// Whether the label names this target.
    pub labelled: bool,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    pub health: Health,
    pub health_message: String,
    /// `.status.observedGeneration`.
    pub observed_generation: Option<i64>,
    pub terminal: Option<Terminal>,
    /// Of a Job that was just created or applied, or found unchanged: the digest of its Pod template, as its source has it.
    pub template: Option<Digest>,
    pub status: ObservedStatus,
    /// Somebody else manages it declaratively: a server-side-apply manager, Helm, Argo CD or Flux.
    pub managed_elsewhere: bool,
    /// The hash of other managers' entries in `managedFields`; none if there are no others.
    pub others: Option<Digest>,
}

impl Observed {
    /// Whether an object that this agent placed is another's by now: by its mark, or by the label beside a mark that cannot be
    /// read.
    pub fn is_anothers(&self, agent: Agent) -> bool {
        match self.mark.as_ref().map(|mark| mark.ownership(agent, &self.key)) {
            Some(Ownership::Foreign | Ownership::Copy) => true,
            Some(Ownership::Ours) => false,
            None => self.illegible && !self.labelled,
        }
    }
}

/// `.status` of an object, for kinds that have one. Not kept by the core beyond the report.
#[derive(Clone, Debug, Default)]
pub enum ObservedStatus {
    /// There is none.
    #[default]
    None,
    Text(Arc<RawValue>),
    /// The hub would refuse it: that is all there is to know of it.
    TooLarge,
    /// There is one, to be read if it is to be reported: the object does not seem to be ours.
    Left,
}

impl ObservedStatus {
    /// Keeps what may be reported.
    pub fn of(text: Option<Box<RawValue>>) -> Self {
        match text {
            None => Self::None,
            Some(text) if is_too_large(&text) => Self::TooLarge,
            Some(text) => Self::Text(text.into()),
        }
    }
}

/// Whether the hub would refuse a status, and report that this agent sends too much.
pub(in crate::core) fn is_too_large(status: &RawValue) -> bool {
    status.get().len() > STATUS_BYTES_MAX || nesting(status.get()) > STATUS_LEVELS_MAX
}

/// An item of a list of metadata, which says nothing of the status.
#[derive(Clone, Debug)]
pub struct ListedItem {
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: Arc<str>,
    pub labelled: bool,
    details: Arc<LazyLock<Option<Details>, Reader>>,
}

/// Reads the details, once.
type Reader = Box<dyn FnOnce() -> Option<Details> + Send>;

/// Read only from the few objects whose version differs from what the watch showed.
#[derive(Clone, Debug)]
pub struct Details {
    pub generation: i64,
    pub managed: Option<Digest>,
    pub mark: Option<Arc<Mark>>,
    pub illegible: bool,
    pub deleting: bool,
    pub managed_elsewhere: bool,
    pub others: Option<Digest>,
}

impl ListedItem {
    /// `details` returns none if they cannot be read.
    pub fn new(
        key: ObjectKey,
        uid: Uid,
        resource_version: Arc<str>,
        labelled: bool,
        details: impl FnOnce() -> Option<Details> + Send + 'static,
    ) -> Self {
        Self { key, uid, resource_version, labelled, details: Arc::new(LazyLock::new(Box::new(details))) }
    }

    pub fn details(&self) -> Option<&Details> {
        LazyLock::force(&self.details).as_ref()
    }
}

impl From<Observed> for ListedItem {
    fn from(observed: Observed) -> Self {
        let Observed { key, uid, resource_version, generation, managed, mark, labelled, deleting, .. } = observed;
        let Observed { illegible, managed_elsewhere, others, .. } = observed;
        let details = Details { generation, managed, mark, illegible, deleting, managed_elsewhere, others };
        Self::new(key, uid, resource_version, labelled, || Some(details))
    }
}

/// The facts kept of an object that may be associated with a placed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Associate {
    pub uid: Uid,
    pub namespace: String,
    pub name: String,
    /// Its controller.
    pub owner: Option<Owner>,
    /// The default where only its metadata was asked for.
    pub condition: Condition,
}

/// The owner that an object names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub kind: GroupKind,
    pub name: String,
    /// None where a label names the owner.
    pub uid: Option<Uid>,
}

/// The health of such an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub phase: Phase,
    pub ready: bool,
    pub reason: Option<Box<str>>,
    pub restarts: u32,
    pub node: Option<Box<str>>,
    pub endpoints: u32,
    pub endpoints_ready: u32,
}
