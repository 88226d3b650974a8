//! What the hub and the agent must agree on, and nothing else.
//!
//! In reading order: identities ([`HubId`], [`TargetId`], [`ObjectKey`], [`SourceRef`]), digests ([`Digest`],
//! [`SetDigest`]), what is desired ([`Entry`], [`DesiredSet`], [`ApplyPolicy`]), what of it an agent understands
//! ([`Capability`]), who owns a local object ([`Mark`]),
//! the messages between the two sides ([`wire::v1`]), their signatures ([`signature`]) and what keeps them from being
//! taken twice ([`replay`]), how well an object does
//! ([`health`]) and what was made of it ([`associated`]), how that is summed up over targets ([`rollup`]), and the bounds of
//! all of it ([`limits`]).
//!
//! No clock, no I/O, no async: time enters as [`Monotonic`].

mod address;
mod base64_bytes;
mod capability;
mod desired;
mod digest;
mod freshness;
mod history;
mod ids;
mod mark;
mod nesting;
mod object;
mod pointer;
mod policy;
mod reason;
mod terminal;
mod time;
mod token;

pub mod associated;
pub mod health;
pub mod limits;
pub mod replay;
pub mod rollup;
pub mod signature;
pub mod wire;

pub use address::{Authority, HubUrl, InvalidHubUrl};
pub use associated::AssociatedKind;
pub use capability::{
    CAPABILITIES_MAX, CAPABILITY_BYTES_MAX, Capabilities, Capability, WithheldEntry, needs, upgrade, withheld,
};
pub use desired::{DesiredSet, Entry, EntryState, Impersonation, Tombstone, Unassignment};
pub use digest::{BUCKETS, Digest, Hasher, ItemHash, ParseDigestError, SetDigest};
pub use history::{Attestation, RevisionPoint, Shown};
pub use ids::{
    Epoch, HubId, InstanceId, InvalidId, Revision, RevisionId, RunId, SegmentId, SessionId, SessionName, SessionNumber,
    SpaceName, TargetId, Uid, Version,
};
pub use mark::{FORMERS_MAX, Formers, MARK_ANNOTATION, MARK_LABEL, Mark, MarkError, Origin, Owner, Ownership};
pub use nesting::nesting;
pub use object::{GroupKind, ObjectKey, SourceRef};
pub use pointer::{pointer_escaped, pointer_unescaped};
pub use policy::{
    Additions, ApplyMode, ApplyPolicy, ApproveDeletions, ConflictPolicy, DriftPolicy, FieldMode, FieldPath,
    FieldPathError, FieldPolicy, Gate, ObjectPath, PathElement, Prune, PruneAdopted, PrunePolicy, Recreate,
    ReportClass, StatusPathError, StatusPaths, Takeover,
};
pub use reason::Reason;
pub use time::Monotonic;
pub use token::{EnrolmentToken, TokenError};

/// The field manager of everything the agent keeps applied.
pub const FIELD_MANAGER: &str = "tideline";
/// The agent's second manager: holds fields it set once and leaves to others from then on.
pub const FIELD_MANAGER_INITIAL: &str = "tideline-initial";
/// The field manager of what the hub writes into spaces.
pub const FIELD_MANAGER_HUB: &str = "tideline-hub";
/// Assigns an object directly: a JSON list of Location names.
pub const ASSIGNED_LOCATIONS_ANNOTATION: &str = "tideline.dev/assigned-locations";
/// Overrides the wave that an object's kind would give it.
pub const WAVE_ANNOTATION: &str = "tideline.dev/wave";
/// Sends fields along that a target's server would otherwise assign: a JSON list of [`FieldPath`]s.
pub const KEEP_FIELDS_ANNOTATION: &str = "tideline.dev/keep-fields";
