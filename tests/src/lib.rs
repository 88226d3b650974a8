//! What the tests, the benches and the quickstart share: real clusters, processes under test, a wire that can be
//! cut, and the one way to wait.
//!
//! - [`kubernetes`]: real Kubernetes clusters (etcd, kube-apiserver, kube-controller-manager, kubectl).
//! - [`Binaries`], [`Process`]: Tideline's own binaries, run as processes that a test may kill, pause and measure.
//! - [`fleet`]: a hub and its agents in this process.
//! - [`Relay`]: a TCP relay between two parties that a test cuts, stalls, delays and mends.
//! - [`ask_health`], [`ask_metric`]: what a process says of itself.
//! - [`HostileProxy`]: a peer in the middle that ends TLS and does what a test says.
//! - [`TlsProxy`]: a proxy that ends TLS with a certificate of its own.
//! - [`EmbeddedCluster`]: a workload cluster in this process, nothing to install.
//! - [`Simulator`]: the controllers of a cluster that has none, so that Deployments there become ready.
//! - [`eventually`], [`eventually_ok`]: bounded waiting on a value. Nothing else in the tests sleeps.
//! - [`require_kubernetes!`], [`require_binaries!`]: what a test needs from outside, or a loud skip.

#![expect(clippy::missing_errors_doc, reason = "whatever fails ends the test, with a chain that says what")]

mod binaries;
mod embedded;
pub mod fleet;
mod health;
mod hostile_proxy;
mod hub_tls;
pub mod kubernetes;
mod leash;
mod ports;
mod process;
mod relay;
mod requirement;
mod scratch;
mod simulator;
mod tls_proxy;
mod wait;

pub use crate::binaries::Binaries;
pub use crate::embedded::EmbeddedCluster;
pub use crate::health::{ask_health, ask_metric};
pub use crate::hostile_proxy::{Answered, Asked, HostileProxy, Upstream};
pub use crate::hub_tls::client_config;
pub use crate::ports::free_port;
pub use crate::process::{Finished, Process, run_at_terminal, run_to_end};
pub use crate::relay::{Condition, Relay};
pub use crate::requirement::{enclosing_function, met_or_skipped};
pub use crate::scratch::{Scratch, copy_directory};
pub use crate::simulator::Simulator;
pub use crate::tls_proxy::TlsProxy;
pub use crate::wait::{eventually, eventually_ok};
