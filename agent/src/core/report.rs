//! Reports the state of objects and target to the hub and the cluster.

pub(super) mod associated;
pub(super) mod kube_events;
mod rate;
pub(super) mod reports;
