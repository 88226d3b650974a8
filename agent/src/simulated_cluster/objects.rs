//! What an object is, and what is seen of it. Every object has one field, which holds what its input says.

use std::sync::Arc;

use serde_json::value::RawValue;
use tideline_common::health::Health;
use tideline_common::wire::v1::Terminal;
use tideline_common::{Digest, GroupKind, Mark, ObjectKey, Owner, TargetId, Uid};

use crate::core::{Observed, ObservedStatus};

/// What makes an object what it is.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "an object's properties are independent of each other")]
pub struct Local {
    pub uid: Uid,
    pub version: u64,
    pub(super) generation: i64,
    /// What its field holds, if that is what an input says; none once somebody changed it.
    pub input: Option<Digest>,
    pub(super) managed: Option<Managed>,
    pub mark: Option<Arc<Mark>>,
    /// The target that its label names.
    pub label: Option<TargetId>,
    pub deleting: bool,
    pub(super) finalizer: bool,
    /// Somebody manages it declaratively.
    pub declarative: bool,
    /// Which other manager applies its field, too.
    pub(super) rival: Option<u8>,
    /// It is not ready, whatever its controllers have observed.
    pub(super) starting: bool,
    pub(super) observed_generation: i64,
    pub status: u64,
    /// The source for which an agent of ours wrote it last, whatever its mark says by now.
    pub owner: Option<Uid>,
    /// It stands because an agent of ours created it.
    pub created: bool,
    /// Of a Job: it ended.
    pub finished: bool,
}

/// Our entries of an object's managedFields. What was applied under which input stands for the fields that are in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says of one field who manages it")]
pub(super) struct Managed {
    input: Digest,
    /// It is the entry of a POST: an apply makes another of it.
    posted: bool,
    /// The mark was written by itself since, so that our fields are in two entries.
    apart: bool,
    /// What others wrote since is theirs.
    pub(super) field_taken: bool,
    pub(super) mark_taken: bool,
    pub(super) label_taken: bool,
}

impl Managed {
    pub(super) fn applied(input: Digest) -> Self {
        Self { input, posted: false, apart: false, field_taken: false, mark_taken: false, label_taken: false }
    }

    pub(super) fn posted(input: Digest) -> Self {
        Self { posted: true, ..Self::applied(input) }
    }

    /// What is left, or comes to be, of our entries when mark and label are written by themselves, in an entry of their own.
    pub(super) fn marked(former: Option<Self>, mark: &Mark) -> Self {
        let nothing = Self { field_taken: true, ..Self::applied(mark.input) };
        Self { apart: true, mark_taken: false, label_taken: false, ..former.unwrap_or(nothing) }
    }

    fn digest(&self) -> Digest {
        Digest::of(format!("{self:?}").as_bytes())
    }
}

impl Local {
    pub(super) fn new(uid: Uid) -> Self {
        Self {
            uid,
            version: 0,
            generation: 1,
            input: None,
            managed: None,
            mark: None,
            label: None,
            deleting: false,
            finalizer: false,
            declarative: false,
            rival: None,
            starting: false,
            observed_generation: 0,
            status: 0,
            owner: None,
            created: false,
            finished: false,
        }
    }

    /// As if nobody had changed it.
    pub fn restore(&mut self, input: Option<Digest>) {
        self.input = input;
        self.generation = 1;
        self.observed_generation = self.observed_generation.min(1);
        if let Some(managed) = &mut self.managed {
            managed.field_taken = false;
        }
    }

    /// How many Pods controllers made of it.
    pub fn pods(&self) -> u64 {
        self.status % 4
    }

    pub fn status_text(&self) -> String {
        format!("{{\"n\":{}}}", self.status)
    }

    /// Under this mark, and the label that goes with it.
    pub(super) fn marked(self, mark: &Arc<Mark>) -> Self {
        Self { mark: Some(Arc::clone(mark)), label: Some(mark.target), ..self }
    }

    pub(super) fn is_labelled_for(&self, agent: &Owner) -> bool {
        self.label.is_some_and(|target| agent.owns(target))
    }

    /// Its controllers have not observed the present generation.
    pub(super) fn lags(&self, key: &ObjectKey) -> bool {
        is_deployment(&key.kind) && self.observed_generation != self.generation
    }

    fn health(&self, key: &ObjectKey) -> Health {
        if self.lags(key) || self.starting { Health::Progressing } else { Health::Ready }
    }

    fn terminal(&self, key: &ObjectKey) -> Option<Terminal> {
        if self.finished { Some(Terminal::Finished) } else { has_ttl(key).then_some(Terminal::Started) }
    }

    pub(super) fn observed(&self, key: &ObjectKey, agent: &Owner) -> Observed {
        let has_status = is_deployment(&key.kind);
        let status = has_status.then(|| RawValue::from_string(self.status_text()).expect("it is JSON"));
        let health = self.health(key);
        Observed {
            key: key.clone(),
            uid: self.uid.clone(),
            resource_version: self.version.to_string().into(),
            generation: if has_status { self.generation } else { 0 },
            managed: self.managed.as_ref().map(Managed::digest),
            mark: self.mark.clone(),
            labelled: self.is_labelled_for(agent),
            deleting: self.deleting,
            health,
            health_message: if health == Health::Ready { String::new() } else { "it starts".to_owned() },
            observed_generation: has_status.then_some(self.observed_generation),
            terminal: self.terminal(key),
            template: None,
            status: ObservedStatus::of(status),
            illegible: false,
            managed_elsewhere: self.declarative,
            others: self.rival.map(|rival| Digest::of(&[rival])),
        }
    }
}

/// The kind that every definition defines.
pub fn widget() -> GroupKind {
    GroupKind::new("example.com", "Widget")
}

/// They have generations, a status, and Pods.
pub fn is_deployment(kind: &GroupKind) -> bool {
    kind.is("apps", "Deployment")
}

/// Whether it is a Job that is deleted some time after it ended.
pub fn has_ttl(key: &ObjectKey) -> bool {
    key.kind.is_job() && key.name.starts_with("ttl")
}
