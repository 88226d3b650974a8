//! The hub.

mod addresses;
pub mod approvals;
pub mod approve;
pub mod backup;
pub mod certificates;
pub mod clean;
mod committer;
pub mod duplicates;
pub mod engine;
pub mod enrol;
pub mod fuse;
pub mod held_deletions;
pub mod held_unassignments;
pub mod history;
pub mod identity;
mod ingest;
pub mod kubeconfig;
pub mod ledger;
mod limits;
pub mod link;
mod listener;
mod metrics;
mod options;
pub mod placement;
mod run;
mod service;
mod shared;
pub mod spaces;
mod statuses;
pub mod summary;
pub mod token;
pub mod virtual_resources;
mod written_by;

pub use addresses::{Error as AddressError, PublicCa};
pub use options::{Options, duration};
pub use run::{Error, run};
