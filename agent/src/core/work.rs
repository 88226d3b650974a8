//! Carries out what was decided.
//!
//! ```text
//!  queue ── what is next, if the limiter allows ─▶ begin ══ operation ══▶ result ─▶ conclude: it stands, or is retried
//!                                                                           ├────▶ removing: its next step
//!                                                                           └────▶ read: what stands there
//! ```
//!
//! [`queue`] has the state. [`removals`] says where a removal comes from and where it goes, [`removing`] what is between, and
//! [`removal_waves`] which of them wait for others.

pub(super) mod aimd;
pub(super) mod begin;
pub(super) mod conclude;
pub(super) mod in_flight;
pub(super) mod limiter;
pub(super) mod queue;
pub(super) mod read;
pub(super) mod rebuild;
pub(super) mod removal_waves;
pub(super) mod removals;
pub(super) mod removing;
pub(super) mod result;
