//! Real Kubernetes clusters on loopback: etcd, kube-apiserver and, when asked for, kube-controller-manager.
//!
//! No nodes: Pods stay Pending, everything that needs no kubelet is as in production. The binaries are pinned by
//! `tests/kubernetes/go.mod`.

mod assets;
mod audit;
mod cluster;
mod credentials;
mod kubectl;

pub use assets::Assets;
pub use audit::{Audit, Request, acting_as};
pub use cluster::{Cluster, ClusterOptions};
pub(crate) use credentials::Serving;
pub use kubectl::Kubectl;
