//! Version 1 of the link.
//!
//! | request | answer | |
//! |---|---|---|
//! | `POST /link/v1/enrol` [`EnrolRequest`] | [`EnrolAnswer`] | signed with the token's key |
//! | `POST /link/v1/session` [`SessionRequest`] | [`SessionAnswer`] | offers a session |
//! | `GET /link/v1/desired?…` [`DesiredRequest`] | [`DesiredAnswer`] | long poll |
//! | `POST /link/v1/bodies` [`BodiesRequest`] | [`BodiesAnswer`] | content-addressed |
//! | `PUT /link/v1/reported` [`ReportedRequest`] | [`ReportedAnswer`] | absolute, idempotent |
//!
//! Every request but the first is signed with the agent's key, every answer, refusals ([`Refusal`]) included, with the
//! hub's, as the answer to that very request (see [`crate::signature`]). Every request is taken once
//! ([`crate::replay`]). Messages are JSON, compressed as their media type says.

mod number_refused;
mod refusal;
mod stands;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::address::Authority;
use crate::associated::{AssociatedKind, Made};
use crate::base64_bytes;
use crate::capability::Capabilities;
use crate::desired::{Entry, Tombstone, Unassignment};
use crate::digest::Digest;
use crate::health::Health;
use crate::history::{Attestation, Shown};
use crate::ids::{Epoch, HubId, InstanceId, SessionName, SessionNumber, TargetId, Uid, Version};
use crate::object::{ObjectKey, keyed};
use crate::policy::ApplyPolicy;
use crate::reason::Reason;
use crate::signature::{SigningKey, VerifyingKey};

pub use crate::terminal::{Terminal, TerminalFact};
pub use number_refused::NumberRefused;
pub use refusal::{Refusal, RefusalKind};
pub use stands::Stands;

/// A message as plain JSON.
pub const MEDIA_TYPE: &str = "application/vnd.tideline.v1+json";
/// A message as JSON compressed with raw deflate (RFC 1951). Not a `Content-Encoding`, which proxies may undo.
pub const MEDIA_TYPE_DEFLATE: &str = "application/vnd.tideline.v1+deflate";

pub const ENROL_PATH: &str = "/link/v1/enrol";
pub const SESSION_PATH: &str = "/link/v1/session";
pub const DESIRED_PATH: &str = "/link/v1/desired";
pub const BODIES_PATH: &str = "/link/v1/bodies";
pub const REPORTED_PATH: &str = "/link/v1/reported";

/// What an agent says of the cluster it runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterFacts {
    /// The UID of the namespace kube-system: the cluster's identity.
    pub cluster: Option<Uid>,
    pub kubernetes_version: String,
    pub agent_version: String,
}

/// Asks to join. The HTTP signature is by the token's key with the token's name as key id; sending it again with the
/// same `agent_key` is answered alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolRequest {
    pub token: String,
    /// The agent's Ed25519 public key.
    #[serde(with = "base64_bytes")]
    pub agent_key: Vec<u8>,
    /// The hub that the token is for.
    pub hub: HubId,
    pub facts: ClusterFacts,
    /// Its signature by `agent_key` over hub and token: nobody can enrol somebody else's key with a token.
    #[serde(default, with = "base64_bytes")]
    pub proof: Vec<u8>,
}

impl EnrolRequest {
    /// Enrols with this key.
    #[must_use]
    pub fn proven(self, key: &SigningKey) -> Self {
        let proof = key.sign_statement(&self.statement()).to_vec();
        Self { agent_key: key.public().as_bytes().to_vec(), proof, ..self }
    }

    /// The key, if the request was made by its owner.
    pub fn proven_key(&self) -> Option<VerifyingKey> {
        let key = VerifyingKey::from_bytes(&self.agent_key).ok()?;
        key.verify_statement(&self.statement(), &self.proof).then_some(key)
    }

    fn statement(&self) -> String {
        format!("tideline enrolment\nhub {}\ntoken {}\n", self.hub, self.token)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolAnswer {
    pub hub: HubId,
    pub target: TargetId,
    /// The SyncTarget's name, for messages to people.
    pub name: String,
}

/// One process of an agent, as people tell it from another with the same identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    pub id: InstanceId,
    /// Of its machine, or of its Pod.
    pub host: String,
}

/// Asks for a session. What the agent proves to have seen lets the hub notice that it lost history; the session that the agent
/// has stored tells its restart from another agent with the same identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRequest {
    pub facts: ClusterFacts,
    /// The newest set that the agent ever accepted, if any, with the hub's word of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Attested>,
    pub instance: Instance,
    /// The newest session in its session store. Every session is stored before its first use.
    #[serde(rename = "home", default, skip_serializing_if = "SessionName::is_none")]
    pub persisted: SessionName,
    /// The newest session that it has heard of. One is opened only if there is no newer: a request that comes late or twice
    /// says nothing about the session that was opened since.
    #[serde(default, skip_serializing_if = "is_first")]
    pub last: SessionNumber,
    /// This process was told that another holds the identity, and has not found that session in its own session store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced: Option<Fenced>,
    /// What this agent understands. The rest is withheld from it from the first use of the session on. Names that a hub does
    /// not know mean nothing to it.
    #[serde(default, skip_serializing_if = "Capabilities::is_empty")]
    pub capabilities: Capabilities,
    /// What this agent was before, the latest last: the hub may find it as one of these. In the query.
    #[serde(skip)]
    pub formers: Vec<TargetId>,
    /// As what it asked, where the hub found it as another. Never sent.
    #[serde(skip)]
    pub asked_as: Option<TargetId>,
}

/// That the hub refused a session because another was in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fenced {
    /// The one that this process had.
    pub session: SessionName,
    pub by: SessionName,
}

/// Offers a session. It is the agent's when it is used first, and not before; until then the present one goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionAnswer {
    pub session: SessionName,
    /// Nothing was offered: `session` is the one in use, and newer than the request says. A process that wants to open one
    /// asks again, naming it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outdated: bool,
    /// Higher than the agent's own after a person accepted that history was lost.
    pub epoch: Epoch,
    pub poll: PollSettings,
    /// Where the hub is reached, from now on too.
    #[serde(default)]
    pub addresses: HubAddresses,
    #[serde(default, skip_serializing_if = "is_whole")]
    pub history: Continuity,
    /// The cluster that this target is of, where the hub knows it: a person may have corrected that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Uid>,
    /// Nothing was opened: this agent is another target from now on. It opens a session as that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
}

/// An agent is handed from one target to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    /// The agent's Ed25519 public key. Another agent ignores the message.
    #[serde(with = "base64_bytes")]
    pub key: Vec<u8>,
    /// What the agent was, as the hub knows it.
    pub former: TargetId,
    pub target: TargetId,
    /// The SyncTarget's name, for messages to people.
    pub name: String,
}

/// Whether a hub's history is the one that agents know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Continuity {
    #[default]
    Whole,
    /// The hub was set back, or is on a copy: some agent knows of sets that it does not know of. The agent keeps what it has
    /// and begins no removal, until it gets a set, or hears that nothing is new.
    Broken,
    /// What a newer hub says; read as [`Continuity::Broken`], which removes nothing.
    #[serde(other)]
    Unknown,
}

/// The hub's addresses and authorities: all that are in use or will be soon. An agent also keeps those that it knew, until it
/// no longer needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HubAddresses {
    /// In the order in which they are to be tried. Values that the reader cannot parse as [`crate::HubUrl`] are ignored.
    pub urls: Vec<String>,
    pub authorities: Vec<Authority>,
}

/// A desired set by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    pub version: Version,
    pub digest: Digest,
}

/// A set that was accepted, with the hub's signed statement that it gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attested {
    pub set: Accepted,
    #[serde(rename = "word")]
    pub attestation: Attestation,
}

/// How often to ask. Set by the hub, so that it can be changed for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollSettings {
    pub wait_seconds: u64,
    /// Seconds without contact after which the hub calls the target stale; the agent says that it is well more often.
    pub stale_after_seconds: u64,
}

/// Asks for what changed. In the query: `session`, `since` and `digest` (absent: everything), `after` (a page's cursor),
/// `wait` in seconds, `approved` (what is held of the removals that a person approved), `decommission` (whether the agent
/// was told to go out of service; both left out where there is nothing to say), `shown` (the newest set that it knows of), `history`
/// (that it was told that it is broken), `stands` (the report that stands).
///
/// **Paging.** A page holds the *present* state of the keys after `after`, in key order, that are in the set or have a
/// tombstone (snapshot) or changed since `since` (delta). Each page is of its own revision. An agent that has read the last page asks for the
/// delta since the *first* page's version, onto what it has gathered, until a delta fits one page: then what it has
/// gathered has that page's digest, or it starts again with a snapshot. So the hub keeps nothing between pages and
/// a set that changes all the time is still delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredRequest {
    pub session: SessionName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Version>,
    /// Of the whole set at `since`. Absent while pages are being gathered, when the agent holds no whole set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ObjectKey>,
    #[serde(default)]
    pub wait_seconds: u64,
    /// What the agent holds of the removals that were approved.
    #[serde(default, skip_serializing_if = "ApprovedHeld::is_nothing")]
    pub approved: ApprovedHeld,
    /// What the agent was told and keeps.
    #[serde(default, skip_serializing_if = "is_in_service")]
    pub decommission: Decommission,
    /// The newest set that the agent ever accepted. The hub answers only if that is part of its history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Shown>,
    /// Whether the agent removes nothing, because it was told that the hub's history is broken.
    #[serde(default, skip_serializing_if = "is_whole")]
    pub history: Continuity,
    /// That a report stands: such a poll is as good as that sent again. Said only to a hub that answers a report with
    /// [`ReportedAnswer::stands`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands: Option<Stands>,
}

/// Whether a cluster is in service, and if not, what becomes of all that was placed there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Decommission {
    /// It is in service.
    #[default]
    No,
    /// It is orphaned: it stays, without the mark.
    Keep,
    /// It is removed, in the order and within the bounds of other removals, except that no fuse holds them.
    Remove,
    /// What a newer hub says; read as [`Decommission::Keep`], which destroys nothing.
    #[serde(other)]
    Unknown,
}

impl Decommission {
    /// Whether the cluster goes out of service and nothing of it is deleted.
    pub const fn keeps(self) -> bool {
        match self {
            Self::Keep | Self::Unknown => true,
            Self::No | Self::Remove => false,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "No",
            Self::Keep => "Keep",
            Self::Remove => "Remove",
            Self::Unknown => "Unknown",
        }
    }
}

/// How far a cluster has gone out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecommissionReport {
    pub how: Decommission,
    /// Removals that are not done, or that the hub has not acknowledged.
    pub left: u64,
}

/// How much of a list of approved removals an agent has been given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedHeld {
    /// The list, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<Digest>,
    /// How many removals of it came, from its beginning.
    #[serde(default)]
    pub count: u64,
}

impl ApprovedHeld {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all_fields = "camelCase")]
pub enum DesiredAnswer {
    /// The set named in the request is the present one.
    NothingNew,
    Page(DesiredPage),
    /// A delta cannot be had from there (gap, compaction, epoch change, digests differ): ask again without `since`.
    SnapshotRequired {
        epoch: Epoch,
    },
    /// Other removals are approved than the agent holds: take these, and ask the same again.
    Approved(ApprovedPage),
    /// The hub's history is [`Continuity::Broken`].
    Broken,
    /// The hub does not know the report that stands, as an earlier run of it was told that: report again, and ask the same.
    ReportAgain,
    #[serde(other)]
    Unknown,
}

/// Removals that a person has approved, however many they are and whatever else permits them, and those that a person has
/// released: a list, or a part of one. It says nothing about removals that are not on it.
///
/// A list never changes under its name. An agent that gets another drops the former, whole. By default nothing is approved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedPage {
    /// Names the list. Absent: nothing is approved, or not any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<Digest>,
    /// How many removals of the list come before these.
    pub offset: u64,
    /// How many of the list this page is: those that are assigned again by now are left out of it.
    pub count: u64,
    /// How many the whole list is of.
    pub total: u64,
    /// How long these may be made use of, from now on, by the agent's own measure of time. The hub's clock decides; this
    /// bounds it for an agent that hears no more of the hub.
    pub expires_seconds: u64,
    /// Removals that may be done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removals: Vec<Tombstone>,
    /// Objects to be orphaned: they stay, without the mark. Apart from `removals`, so that an agent that does not know of this
    /// deletes nothing for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<Tombstone>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredPage {
    /// The version this page was read at.
    pub at: Version,
    /// The hub's statement that it gave `at`, to be kept with the set and to be shown.
    #[serde(rename = "word")]
    pub attestation: Attestation,
    /// The digest of the whole set at `at`.
    pub digest: Digest,
    /// Entries in the whole set at `at`.
    pub total: u64,
    /// True for a page of everything, false for one of changes.
    pub snapshot: bool,
    pub entries: Vec<Arc<Entry>>,
    /// Of deltas: what is not assigned any more. Of snapshots: every removal not confirmed yet. At most one for each key, the
    /// latest; for a key with an entry only if its object was due for orphaning before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tombstones: Vec<Unassignment>,
    /// The policies that the entries of this page name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
    /// Terminal facts that the hub was told before, for the keys of this page: a lost journal must not run a Job again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminal: Vec<TerminalFact>,
    /// The cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ObjectKey>,
    /// Said with the empty set of a cluster that goes out of service, and with no other.
    #[serde(default, skip_serializing_if = "is_in_service")]
    pub decommission: Decommission,
    /// The hub does not remember the agent's set well enough: nothing was unassigned just for being absent from this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absence_unexplained: bool,
}

/// Asks for the rendered objects of entries. Any number may come back; the rest is asked for again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BodiesRequest {
    pub session: SessionName,
    pub wanted: Vec<BodyWanted>,
}

keyed! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct BodyWanted {
        pub key: ObjectKey,
        pub input: Digest,
        /// Bytes already had of a body larger than one answer.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub offset: u64,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BodiesAnswer {
    /// In the order asked for; those that did not fit are left out.
    pub bodies: Vec<Body>,
    /// No longer what the set says: poll again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outdated: Vec<Digest>,
}

/// A rendered object, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Body {
    pub input: Digest,
    /// SHA-256 of the whole text.
    pub sha256: Digest,
    /// Bytes of the whole text.
    pub size: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// The object as JSON, without what belongs to the space alone; or as much of it as fits.
    pub text: String,
}

/// Reports states. Absolute: sending it twice, late or out of order does no harm. The newest (session, seq) wins, per object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedRequest {
    pub session: SessionName,
    /// Rises by one with every report of the session.
    pub seq: u64,
    /// The set that is being kept, if any was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Accepted>,
    /// The highest version of which every entry was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Version>,
    /// Whether the agent's own view of its cluster is complete and current. A target that says no is stale.
    pub in_sync: bool,
    /// Counted reasons why things are not well at this target as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<TargetCondition>,
    #[serde(default)]
    pub objects: Vec<ObjectReport>,
    /// Associated objects. Apart from the reports of objects, because they change apart from them, and more often.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub associated: Vec<AssociatedReport>,
    /// Removals done: the local object is gone, or is no longer ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Tombstone>,
    /// Of `removed`: what ran before it went. The hub may not have heard of it while it was assigned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminal: Vec<TerminalFact>,
    /// Removals that ended without effect because their keys were assigned again: an object that was due for orphaning counts
    /// as adopted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overtaken: Vec<Tombstone>,
    /// Of a cluster that goes out of service, or has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decommission: Option<DecommissionReport>,
    /// The process ends, in order, and uses its session no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goodbye: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetCondition {
    pub reason: Reason,
    pub count: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedAnswer {
    pub seq: u64,
    /// Names what the hub remembers of this target's reports. Where it is not what the last answer said, the hub was
    /// restarted, has lost some, or another agent with this identity has spoken since: send every object again. No single
    /// answer need arrive for that to be noticed.
    #[serde(default)]
    pub memory: u64,
    /// The hub reads in polls that this report stands, so that an agent at rest has nothing to send beside them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stands: bool,
}

/// How far one assigned object is at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Progress {
    /// Not tried yet.
    Pending,
    /// There, as `input` says.
    Applied,
    /// The last attempt failed; `input` is the last one applied.
    Failed,
    /// Deliberately not applied.
    Withheld,
    /// No longer assigned; its removal is under way.
    Deleting,
    /// No longer assigned; its removal waits, for the reason given.
    DeletionHeld,
    #[serde(other)]
    Unknown,
}

keyed! {
    /// The latest state of one object at one target.
    #[derive(Clone, Debug)]
    pub struct ObjectReport {
        pub key: ObjectKey,
        pub source_uid: Uid,
        pub progress: Progress,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<Reason>,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// The input that was last applied, whatever is desired by now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub input: Option<Digest>,
        pub health: Health,
        /// The *source* generation that `status` is about: that of the last apply whose local generation the local
        /// controller has observed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub observed_generation: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub terminal: Option<Terminal>,
        /// The local object's `.status`, whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<Arc<RawValue>>,
    }
}

impl PartialEq for ObjectReport {
    fn eq(&self, other: &Self) -> bool {
        let text = |report: &Self| report.status.as_ref().map(|raw| raw.get().to_owned());
        self.key == other.key
            && self.source_uid == other.source_uid
            && self.progress == other.progress
            && self.reason == other.reason
            && self.message == other.message
            && self.input == other.input
            && self.health == other.health
            && self.observed_generation == other.observed_generation
            && self.terminal == other.terminal
            && text(self) == text(other)
    }
}

keyed! {
    /// The associated objects of one object at one target, in their latest state. Sent in every session anew: reports of an
    /// earlier one do not count any more.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AssociatedReport {
        pub key: ObjectKey,
        pub source_uid: Uid,
        /// The kinds that are asked for and known. Without any, it is not asked for any more.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub made: BTreeMap<AssociatedKind, Made>,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_first(session: &SessionNumber) -> bool {
    *session == SessionNumber::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_in_service(decommission: &Decommission) -> bool {
    *decommission == Decommission::No
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_whole(history: &Continuity) -> bool {
    *history == Continuity::Whole
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests;
