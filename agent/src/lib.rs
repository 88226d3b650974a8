//! The agent: applies the hub's desired set to one workload cluster, and reports its state.
//!
//! In reading order: [`run`] puts an agent together; the driver owns the [`core`](mod@core), which decides everything and
//! does nothing; the edges do what it asks for: the journal (disk), the link (hub), the [`cluster`].
//!
//! Tasks of an agent: the driver; one per kind watched; one per request to the hub, write to the journal and operation
//! under way (each bounded by the core); the health port; the keeper of the Lease, where replicas share one. One thread: the journal's. Channels: the events of all of them
//! to the driver, and the batches to the journal; both bounded.

pub mod addresses;
mod certificates;
mod clock;
pub mod cluster;
pub mod core;
mod data_dir;
mod driver;
mod identity;
pub mod journal;
mod lease;
pub mod link;
mod metrics;
mod mode_reporter;
mod namespaces;
mod own_namespace;
mod proxy;
mod run;
#[cfg(any(test, feature = "simulated-cluster"))]
pub mod simulated_cluster;
mod start_input;
mod status_logger;
mod write_watchdog;

pub use namespaces::{NamespaceName, Namespaces};
pub use own_namespace::{NoNamespace, OwnNamespace};
pub use run::{Error, Events, Listen, Options, PATROL_EVERY, run};
pub use start_input::HubAddress;
