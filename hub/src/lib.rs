//! The hub: serves the spaces, decides what each cluster is to hold, tells the agents, and sums up what they report.
//!
//! In reading order: [`run`] puts a hub together. `ingest` reads what the spaces hold and tells the [`engine`], which is the
//! hub's whole state. Of that, [`clean`] says what leaves a space, [`placement`] where it goes, the [`ledger`] which set each
//! target has by that, the core of the [`link`] what its agent is told, and the [`summary`] what the agents say; none of them
//! does I/O. The edges around the engine do: `committer` writes the ledger, `listener` and `service` bring the agents'
//! requests, `statuses` writes into the spaces what came back. What a person does from elsewhere goes through a kubeconfig.
//!
//! Tasks of a hub: `ingest`; `committer`; `ticks`, which calls the engine when its timer is due, and while agents are left to
//! be told something; `statuses`; the listener, with one task for each connection and one more for each HTTP/2 request; the
//! controller of the API server; and those that look now and then: `heartbeat` (whether the engine answers), `approvals`
//! (deletes those that ended), `reserve` (room on the disk), `compactor` (old revisions of the store). What takes long is done on threads of the runtime's pool: plans and reads of the
//! store. Threads of their own: the writer of the store, and the health port.
//!
//! Channels: none between tasks. They share the engine behind one lock (`shared`), held for a step and never across I/O, which
//! wakes the committer, `ticks` and `statuses` by a `Notify` each, and counts in a `watch` what changed for whoever watches
//! virtual resources. A request of an agent waits on a `oneshot`; there are as many as the listener lets be under way.

// How a hub is put together, and what it starts from.
mod addresses;
mod certificates;
pub mod identity;
mod limits;
mod metrics;
mod options;
mod run;
mod written_by;

// The state, and what decides; no I/O.
mod bitmap;
pub mod clean;
pub mod engine;
pub mod history_break;
pub mod history_change;
pub mod ledger;
mod object_name;
pub mod placement;
mod printable;
pub mod removal_guards;
pub mod summary;

// What reads the spaces, writes them, and keeps the store.
mod committer;
mod deletion_guard;
mod ingest;
mod patch;
mod reserve;
mod shared;
pub mod spaces;
mod statuses;

// The public port.
mod enrol;
pub mod link;
mod listener;
mod service;

// What is computed when it is read, as Kubernetes objects.
pub mod agents;
pub mod history;
mod last_contact;
mod virtual_resources;

// What a person does about a hub, over its API or its data directory.
pub mod backup;
pub mod duplicates;
pub mod kubeconfig;
pub mod removals;
pub mod sync_target;
pub mod token;

pub use addresses::{Error as AddressError, PublicCa};
pub use certificates::Authority;
pub use options::{Options, duration};
pub use printable::printable;
pub use run::{Error, run};
pub use virtual_resources::GROUP as VIRTUAL_RESOURCES_GROUP;
