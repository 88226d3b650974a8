//! The conversation with the hub, from a session to an accepted set, and what may be done without one.
//!
//! [`session`] asks; [`gather`] puts a set together from pages, [`fetch`] gets its bodies, and [`switch`] goes over to it once
//! it is on disk; [`accepted`] knows which it was. [`mode`], [`cluster_identity`] and [`history`] say when something must not
//! be changed or removed.

pub(super) mod accepted;
pub(super) mod cluster_identity;
pub(super) mod decommission;
pub(super) mod fetch;
pub(super) mod gather;
pub(super) mod handover;
pub(super) mod history;
pub(super) mod mode;
pub(super) mod session;
pub(super) mod switch;

use tideline_common::wire::v1::Continuity;

use crate::core::interface::write::{AgentMode, Enrolled};
use accepted::AcceptedSets;
use cluster_identity::ClusterIdentity;
use session::{Session, Token};

/// How this agent stands with its hub.
#[derive(Debug)]
pub(super) struct HubSync {
    pub(super) session: Session,
    pub(super) sets: AcceptedSets,
    pub(super) history: Continuity,
    pub(super) mode: AgentMode,
    /// How often the hub was asked in the present mode.
    pub(super) asked: u32,
    pub(super) token: Token,
    /// Set until the journal has it.
    pub(super) handed_to: Option<Enrolled>,
    pub(super) cluster_identity: ClusterIdentity,
}
