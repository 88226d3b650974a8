//! Reports the state of objects and target to the hub and the cluster.

pub(super) mod associated;
pub(super) mod kube_events;
mod rate;
pub(super) mod reports;

use tideline_common::wire::v1::DecommissionReport;

use associated::Associates;
use kube_events::KubeEvents;
use reports::Reports;

/// What was told, and what is to be told.
#[derive(Debug, Default)]
pub(super) struct Reporting {
    pub(super) reports: Reports,
    pub(super) associates: Associates,
    pub(super) kube_events: KubeEvents,
    /// The decommission, as the edges know it.
    pub(super) told_decommission: Option<DecommissionReport>,
}
