//! The API types of the group `tideline.dev/v1alpha1`, and their CRDs.
//!
//! In the root space: [`SyncTarget`], [`Location`], [`Space`], [`EnrolmentToken`], [`DeletionApproval`],
//! [`UnassignmentApproval`], [`HistoryAcceptance`]. In every workload
//! space: [`Placement`]. [`root_crds`] and [`workload_crds`] are what a space must hold to serve them; the files in `crds/`
//! show them as they are sent.
//!
//! The schemas refuse what cannot be meant and write every default; the types accept unknown fields, so that an older
//! hub reads objects of a newer one. What the types cannot read is an error of one object, by [`decode`], never of a
//! whole list. [`Selector`] is a label selector that was checked.
//!
//! No I/O, no clock, no async.

#![expect(clippy::duplicated_attributes, reason = "two printer columns may well have the same type and priority")]

mod crds;
mod decode;
mod deletion_approval;
mod enrolment_token;
mod history_acceptance;
mod location;
mod placement;
mod schema;
mod selector;
mod space;
mod sync_target;
mod unassignment_approval;

pub use crds::{crds, root_crds, workload_crds};
pub use decode::{DecodeError, decode};
pub use deletion_approval::{ApprovedDeletion, DeletionApproval, DeletionApprovalSpec};
pub use enrolment_token::{EnrolmentToken, EnrolmentTokenSpec, EnrolmentTokenStatus, TokenUse};
pub use history_acceptance::{HistoryAcceptance, HistoryAcceptanceSpec, ShownHistory};
pub use location::{Location, LocationSpec, LocationStatus};
pub use placement::{
    ApplyMode, ApplyPolicy, ApproveDeletions, AssociatedResource, ConflictPolicy, DriftPolicy, FieldMode, FieldPolicy,
    NamespaceMapping, ObjectClause, Ordering, Placement, PlacementSpec, PlacementStatus, Problem, Prune, Recreate,
    StatusPolicy, StatusReturn, Takeover, TargetSelector, WhenStale,
};
pub use selector::{Requirement, Selector, SelectorError};
pub use space::{
    Allow, EmbeddedSpace, Impersonate, KindPattern, KindPatternError, KubeconfigSpace, SecretReference, Space,
    SpaceProvider, SpaceProviderError, SpaceSpec, SpaceStatus,
};
pub use sync_target::{
    AgentInstance, Decommission, Poll, PollProfile, SetVersion, SyncTarget, SyncTargetPhase, SyncTargetSpec,
    SyncTargetStatus,
};
pub use unassignment_approval::{UnassignmentApproval, UnassignmentApprovalSpec};

/// The API group of everything here.
pub const GROUP: &str = "tideline.dev";
/// The one version that is served.
pub const VERSION: &str = "v1alpha1";
/// The category that lists all kinds: `kubectl get tideline`.
pub const CATEGORY: &str = "tideline";
