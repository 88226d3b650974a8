//! Which of several replicas is the agent: the one that holds a Lease of its cluster (`--leader-elect`).
//!
//! ```text
//!              nobody holds it, or it was not renewed for so long ┌─ renewed every two seconds ─┐
//!  standing by ───────────────────────────────────────────▶ leading ◀───────────────────────────┘
//!   looks every two seconds                                   │ └─ asked to stop: released, the next leads at once
//!                                                             └─ not renewed in time, or taken: the process ends
//! ```
//!
//! The rules and numbers are those of Kubernetes' own components (client-go, leaderelection). No clock is compared with
//! another's: a candidate measures how long it has seen no change, by its own. [`election`] decides, [`record`] is the
//! object, [`candidate`] asks the API server.
//!
//! A journal is one agent's, and operations in flight cannot be called back. So an agent that lost the Lease does not stand by
//! again: it stops at once, and is restarted. Between the last renewal that succeeded and that end are ten seconds at most,
//! and fifteen until another may begin.

mod candidate;
mod election;
mod record;

pub(crate) use candidate::{Candidate, Leading, LeaseRef, Term};

#[cfg(test)]
mod tests;
