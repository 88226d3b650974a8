//! What every process of Tideline needs around its own work.
//!
//! In reading order: [`exit`] (what a process says and returns when it ends), [`environment`] (variables that are ignored),
//! [`telemetry`] (logs), [`tls`] (the one
//! crypto provider, and whom servers and clients believe), [`Shutdown`] (every task, and how a run ends), [`retry`]
//! (when to try again), [`bind`] (a port, or why not), [`health`] (liveness, readiness and metrics on a local port),
//! [`ProcessCollector`] (what the process costs).
//!
//! Tasks made here: one that waits for signals, one that serves the health port.

mod bind;
pub mod environment;
pub mod exit;
pub mod health;
mod process;
pub mod retry;
mod shutdown;
pub mod telemetry;
pub mod tls;

pub use bind::{BindError, bind};
pub use process::ProcessCollector;
pub use retry::Backoff;
pub use shutdown::{GRACE, Shutdown, TaskError};
