//! Tells the hub and the cluster how things are.

pub(super) mod associated;
pub(super) mod kube_events;
mod rate;
pub(super) mod reports;
