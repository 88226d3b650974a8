//! Tells the hub and the cluster how things are.

pub(super) mod associated;
pub(super) mod notice;
pub(super) mod reports;
